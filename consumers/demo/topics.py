"""The demo's topics on a stack, removed when it ends."""

from aiokafka.admin import AIOKafkaAdminClient

from consumers import config
from consumers.adapters.kafka_client import connection, opened, within


async def delete_topics(cfg: config.Config) -> None:
    """Input, output and dead-letter topic, as the settings name them."""
    admin = AIOKafkaAdminClient(**connection(cfg.kafka))
    what = "the removal of the demo's topics"
    async with opened(admin, cfg.kafka, what), within(what, cfg.kafka.timeout_ms / 1000):
        await admin.delete_topics(
            [cfg.kafka.input_topic, cfg.output.topic, cfg.output.dead_letter_topic]
        )
