"""Asks brokers about topics (partitions, largest batch, retention) and about themselves; creates
and removes topics for commands.

Rule: "no such topic" is a result; every other error code is raised. aiokafka's own functions only
log it and return the rest, so the topic would look smaller than it is. A broker that does not tell
of itself is no error: managed clusters keep their settings to themselves.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import ApiVersionRequest, DescribeConfigsRequest
from aiokafka.protocol.metadata import MetadataRequest

from penstock import config
from penstock.adapters.kafka.client import check_code, connection, opened, translated, within
from penstock.adapters.kafka.inside.consumers import client_of
from penstock.adapters.kafka.inside.producers import BATCH_BYTES, RECORD_OVERHEAD_BYTES
from penstock.adapters.kafka.requests import TopicIds
from penstock.errors import Fatal, Transient, usage
from penstock.ports import Where

MOST_BYTES = "max.message.bytes"
RETENTION_MS = "retention.ms"
# The pause between two questions whether the brokers know a topic, or which broker is the
# controller.
LOOK_S = 0.1
_NOT_FOR_US = (
    kafka_errors.TopicAuthorizationFailedError.errno,
    kafka_errors.ClusterAuthorizationFailedError.errno,
)


def no_topic(topic: str, settings: config.Kafka) -> Fatal:
    return usage(
        f"there is no topic {topic} on {settings.bootstrap_servers}; "
        "create it: penstock topics create"
    )


async def count_partitions(client: AIOKafkaClient, topic: str) -> int:
    """How many partitions the topic has; 0 if it does not exist. Raises aiokafka's errors."""
    answer = await _send(client, MetadataRequest([topic]))
    for description in answer.to_object()["topics"]:
        if description["topic"] == topic:
            if description["error_code"] == kafka_errors.UnknownTopicOrPartitionError.errno:
                return 0
            check_code(description["error_code"], topic)
            return len(description["partitions"])
    raise kafka_errors.StaleMetadata(f"the broker's answer leaves out {topic}")


async def topic_ids(client: AIOKafkaClient, partitions: Iterable[Where]) -> Mapping[str, bytes]:
    """The ids of the topics of these partitions, without topics that do not exist. Empty if the
    broker has no ids (before Kafka 2.8). Raises aiokafka's errors.
    """
    topics = sorted({where.topic for where in partitions})
    try:
        return TopicIds.plain(await _send(client, TopicIds(topics))) if topics else {}
    except kafka_errors.IncompatibleBrokerVersion:
        return {}


async def know(client: AIOKafkaClient, topic: str, count: int) -> None:
    """Make the client know at least `count` partitions now. By itself the client asks about a known
    topic every five minutes, and until then it refuses batches for a partition that was added.
    """
    if len(client.cluster.partitions_for_topic(topic) or ()) < count:
        await client.force_metadata_update()
    if len(client.cluster.partitions_for_topic(topic) or ()) < count:
        raise kafka_errors.StaleMetadata(f"not all partitions of {topic} are known")


async def ask_for_inputs(client: AIOKafkaClient, settings: config.Kafka) -> None:
    """Raise `Transient` if the broker does not answer, or does not have the input topics."""
    with translated("a question about the input topic"):
        for topic in settings.inputs or [settings.input_topic]:
            # If a pattern selects the topics, a missing topic is no error, because topics may come
            # and go.
            if not await count_partitions(client, topic) and settings.inputs:
                raise Transient(f"there is no topic {topic} now")


async def max_batch_bytes(client: AIOKafkaClient, topic: str) -> int | None:
    """`max.message.bytes` of the topic. None if the broker does not know this request or refuses
    it.
    """
    return await _number(client, topic, MOST_BYTES)


async def retention_s(client: AIOKafkaClient, topic: str) -> float | None:
    """How long the topic keeps a record. None: for ever, or the broker does not tell us."""
    found_ms = await _number(client, topic, RETENTION_MS)
    return None if found_ms is None or found_ms < 0 else found_ms / 1000


async def _number(client: AIOKafkaClient, topic: str, name: str) -> int | None:
    value = (await topic_settings(client, topic, [name])).get(name)
    return None if value is None else int(value)


async def topic_settings(
    client: AIOKafkaClient, topic: str, names: Sequence[str]
) -> Mapping[str, str]:
    """The topic's settings with these names. Empty if the broker does not know this request or
    refuses it.
    """
    request = DescribeConfigsRequest([(ConfigResourceType.TOPIC, topic, list(names))], False)
    try:
        answer = await _send(client, request)
    except (kafka_errors.IncompatibleBrokerVersion, NotImplementedError):
        return {}
    settings: dict[str, str] = {}
    for resource in answer.to_object()["resources"]:
        if resource["error_code"] in _NOT_FOR_US:
            return {}
        check_code(resource["error_code"], topic)
        for entry in resource["config_entries"]:
            if entry["config_names"] in names:
                settings[entry["config_names"]] = entry["config_value"]
    return settings


async def _send(client: AIOKafkaClient, request: Any) -> Any:
    return await client.send(client.get_random_node(), request)


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

    Raises `Fatal` in two cases: if Kafka refuses, with Kafka's reason; and after
    `kafka.timeout_ms`, with exit code 3.
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


async def brokers_of(kafka: config.Kafka) -> list[tuple[str, int]]:
    """The host and the port that each broker tells its clients."""
    async with _admin(kafka, "a question about the brokers") as admin:
        return sorted({(broker.host, broker.port) for broker in client_of(admin).cluster.brokers()})


async def controller_known(admin: AIOKafkaAdminClient) -> None:
    """Wait until it is known which broker is the controller, which creates and removes topics.
    While brokers start, or elect a controller, an answer may name none. aiokafka asks only once,
    and would raise AttributeError.
    """
    client = client_of(admin)
    while client.cluster.controller is None:
        await asyncio.sleep(LOOK_S)
        await client.force_metadata_update()


async def topics_known(admin: AIOKafkaAdminClient, topics: Sequence[str]) -> None:
    """Wait until the brokers know the topics. The controller knows them first. Another broker, if
    it is busy, may answer for a second more that there is no such topic.
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
    """For each topic: the most bytes that the key and the value of one of our records may have
    together.
    """
    return {
        topic: min(BATCH_BYTES, most) - RECORD_OVERHEAD_BYTES
        for topic, most in (await most_bytes(kafka, topics)).items()
    }


async def most_bytes(kafka: config.Kafka, topics: Sequence[str]) -> dict[str, int]:
    """For each topic: the most bytes that a batch may have. Even a batch of one record may not be
    larger.
    """
    async with _admin(kafka, "a question about the settings of topics") as admin:
        sizes = {topic: await max_batch_bytes(client_of(admin), topic) for topic in topics}
    return {topic: most or BATCH_BYTES for topic, most in sizes.items()}


async def _create(admin: AIOKafkaAdminClient, topic: str, shape: TopicShape) -> str:
    new = NewTopic(topic, shape.partitions, shape.replication, topic_configs=dict(shape.settings))
    try:
        answer = await admin.create_topics([new])
    except kafka_errors.TopicAlreadyExistsError:
        return "was there"
    for _, code, *message in answer.topic_errors:
        if code == kafka_errors.TopicAlreadyExistsError.errno:
            return "was there"
        if code:
            why = " ".join([kafka_errors.for_code(code).__name__, *map(str, message)])
            raise Fatal(f"Kafka did not create {topic}: {why}")
    return "created"


class BrokerWords(NamedTuple):
    """`requests`: the numbers of those that it knows. `settings`: those that it tells us."""

    requests: frozenset[int]
    settings: Mapping[str, str]


async def broker_words(kafka: config.Kafka, names: Sequence[str]) -> BrokerWords:
    """Asks one broker, for these settings."""
    what = "a question about the broker"
    admin = AIOKafkaAdminClient(**connection(kafka))
    async with opened(admin, kafka, what), within(what, kafka.timeout_ms / 1000):
        client = client_of(admin)
        node = client.get_random_node()
        versions = await client.send(node, ApiVersionRequest())
        known = frozenset(key for key, *_ in versions.api_versions)
        resource = (ConfigResourceType.BROKER, str(node), list(names))
        settings: dict[str, str] = {}
        try:
            answer = await client.send(node, DescribeConfigsRequest([resource], False))
        except (kafka_errors.IncompatibleBrokerVersion, NotImplementedError):
            return BrokerWords(known, settings)
        for words in answer.to_object()["resources"]:
            for entry in () if words["error_code"] else words["config_entries"]:
                if entry["config_names"] in names and entry["config_value"] is not None:
                    settings[entry["config_names"]] = entry["config_value"]
        return BrokerWords(known, settings)
