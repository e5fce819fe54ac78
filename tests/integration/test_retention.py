"""How long a topic keeps its records, as the broker tells it."""

from penstock import config
from penstock.adapters.kafka.sink import KafkaSink
from penstock.process.asyncio_additions import SystemClock
from tests.integration.conftest import MakeTopics
from tests.support.services import Services


async def test_the_retention_of_a_topic_is_known(
    services: Services, make_topics: MakeTopics
) -> None:
    topics = await make_topics(1, retention_ms="90000")
    endless = await make_topics(1, retention_ms="-1")
    sink = KafkaSink(config.Kafka(bootstrap_servers=services.bootstrap_servers), SystemClock())
    await sink.start()
    try:
        assert await sink.retention_s(topics.output) == 90.0
        assert await sink.retention_s(endless.output) is None
    finally:
        await sink.stop()
