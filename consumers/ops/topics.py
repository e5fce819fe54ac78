"""`penstock topics create`: the three topics, as the configuration names them."""

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError, for_code

from consumers import config
from consumers.adapters.kafka_client import connection, opened, within
from consumers.errors import Fatal


async def create_topics(
    cfg: config.Config, *, partitions: int, replication: int
) -> list[tuple[str, str]]:
    """Create what is missing; (topic, "created" or "was there") for each."""
    topics = (cfg.kafka.input_topic, cfg.output.topic, cfg.output.dead_letter_topic)
    admin = AIOKafkaAdminClient(**connection(cfg.kafka))
    what = "the creation of topics"
    async with opened(admin, cfg.kafka, what), within(what, cfg.kafka.timeout_ms / 1000):
        return [(topic, await _create(admin, topic, partitions, replication)) for topic in topics]


async def _create(admin: AIOKafkaAdminClient, topic: str, partitions: int, replication: int) -> str:
    try:
        answer = await admin.create_topics([NewTopic(topic, partitions, replication)])
    except TopicAlreadyExistsError:
        return "was there"
    for _, code, *message in answer.topic_errors:
        if code == TopicAlreadyExistsError.errno:
            return "was there"
        if code:
            why = " ".join([for_code(code).__name__, *map(str, message)])
            raise Fatal(f"Kafka did not create {topic}: {why}")
    return "created"
