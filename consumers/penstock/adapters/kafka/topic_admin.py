"""Creates, removes and describes topics for commands: `topics create`, the demo, the bench.

Rule: a topic that exists already is left as it is. Owner: the command that calls.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError, for_code

from penstock import config
from penstock.adapters.kafka.client import connection, opened, within
from penstock.adapters.kafka.inside.handles import client_of
from penstock.adapters.kafka.inside.sending import BATCH_BYTES, RECORD_OVERHEAD_BYTES
from penstock.adapters.kafka.topic_metadata import max_batch_bytes, topic_settings
from penstock.errors import Fatal

LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class TopicShape:
    """Partitions and replicas of a topic. `settings`: Kafka's settings of a topic, for example
    `retention.ms`.
    """

    partitions: int
    replication: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)


@asynccontextmanager
async def _admin(kafka: config.Kafka, what: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(**connection(kafka))
    async with opened(admin, kafka, what), within(what, kafka.timeout_ms / 1000):
        yield admin


async def create_topics(
    kafka: config.Kafka, topics: Sequence[str], shape: TopicShape
) -> list[tuple[str, str]]:
    """Create the topics that are missing, and wait until the brokers know them, so that a worker
    can start at once. Returns (topic, "created" or "was there") for each topic, in the given order.

    Raises `Fatal`: with Kafka's reason if Kafka refuses, with exit code 3 after `kafka.timeout_ms`.
    """
    async with _admin(kafka, "the creation of topics") as admin:
        await controller_known(admin)
        made = [(topic, await _create(admin, topic, shape)) for topic in topics]
        await topics_known(admin, topics)
        return made


async def delete_topics(kafka: config.Kafka, topics: Sequence[str]) -> None:
    """Returns when Kafka has agreed. Kafka removes the topics some time later."""
    async with _admin(kafka, "the removal of topics") as admin:
        await controller_known(admin)
        await admin.delete_topics(list(topics))


async def controller_known(admin: AIOKafkaAdminClient) -> None:
    """Wait until the controller is known: the broker that creates and removes topics. While brokers
    start or elect, an answer names no controller; aiokafka asks only once, and would then raise
    AttributeError.
    """
    client = client_of(admin)
    while client.cluster.controller is None:
        await asyncio.sleep(LOOK_S)
        await client.force_metadata_update()


async def topics_known(admin: AIOKafkaAdminClient, topics: Sequence[str]) -> None:
    """Wait until the brokers know the topics. The controller knows them first; a busy broker may
    answer for another second that there is no such topic.
    """
    described = await admin.describe_topics(list(topics))
    while any(each["error_code"] for each in described):
        await asyncio.sleep(LOOK_S)
        described = await admin.describe_topics(list(topics))


async def partition_counts(kafka: config.Kafka, topics: Sequence[str]) -> dict[str, int]:
    """How many partitions each topic has. Topics that do not exist are left out."""
    return {topic: shape.partitions for topic, shape in (await topic_shapes(kafka, topics)).items()}


async def topic_shapes(
    kafka: config.Kafka, topics: Sequence[str], settings: Sequence[str] = ()
) -> dict[str, TopicShape]:
    """The shape of each topic, with those of its settings that `settings` names. Topics that do not
    exist are left out.
    """
    async with _admin(kafka, "the description of topics") as admin:
        described = await admin.describe_topics(list(topics))
        client = client_of(admin)
        return {
            topic: TopicShape(
                len(parts),
                len(parts[0]["replicas"]),
                await topic_settings(client, topic, settings) if settings else {},
            )
            for each in described
            if not each["error_code"] and (parts := each["partitions"])
            for topic in (each["topic"],)
        }


async def record_bytes(kafka: config.Kafka, topics: Sequence[str]) -> dict[str, int]:
    """For each topic, the most bytes that key and value of one of our records may have together."""
    return {
        topic: min(BATCH_BYTES, most) - RECORD_OVERHEAD_BYTES
        for topic, most in (await most_bytes(kafka, topics)).items()
    }


async def most_bytes(kafka: config.Kafka, topics: Sequence[str]) -> dict[str, int]:
    """For each topic, the most bytes that a batch may have; a batch can be one record."""
    async with _admin(kafka, "a question about the settings of topics") as admin:
        found = {topic: await max_batch_bytes(client_of(admin), topic) for topic in topics}
    return {topic: most or BATCH_BYTES for topic, most in found.items()}


async def _create(admin: AIOKafkaAdminClient, topic: str, shape: TopicShape) -> str:
    new = NewTopic(topic, shape.partitions, shape.replication, topic_configs=dict(shape.settings))
    try:
        answer = await admin.create_topics([new])
    except TopicAlreadyExistsError:
        return "was there"
    for _, code, *message in answer.topic_errors:
        if code == TopicAlreadyExistsError.errno:
            return "was there"
        if code:
            why = " ".join([for_code(code).__name__, *map(str, message)])
            raise Fatal(f"Kafka did not create {topic}: {why}")
    return "created"
