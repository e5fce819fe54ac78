"""Asks the broker about a topic: how many partitions, how large a batch, how long a record is kept.

Rule: "there is no such topic" is an answer; every other error code is raised. aiokafka's own
functions log these errors and return the rest of the answer, which then looks like a smaller topic.
Owner: the sink, at the start and when partitions were added.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import errors as kafka_errors
from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import DescribeConfigsRequest
from aiokafka.protocol.metadata import MetadataRequest

from penstock import config
from penstock.adapters.kafka.client import check_code, translated
from penstock.errors import Fatal, Transient, usage

MOST_BYTES = "max.message.bytes"
RETENTION_MS = "retention.ms"


def no_topic(topic: str, settings: config.Kafka) -> Fatal:
    return usage(
        f"there is no topic {topic} on {settings.bootstrap_servers}; "
        "create it: penstock topics create"
    )


async def count_partitions(client: AIOKafkaClient, topic: str) -> int:
    """How many partitions the topic has; 0 if it does not exist. Raises aiokafka's errors."""
    answer = await _send(client, MetadataRequest([topic]))
    for found in answer.to_object()["topics"]:
        if found["topic"] == topic:
            if found["error_code"] == kafka_errors.UnknownTopicOrPartitionError.errno:
                return 0
            check_code(found["error_code"], topic)
            return len(found["partitions"])
    raise kafka_errors.StaleMetadata(f"no word about {topic}")


async def know(client: AIOKafkaClient, topic: str, count: int) -> None:
    """Make the client know at least `count` partitions now. By itself the client asks about a known
    topic every five minutes, and until then it refuses batches for a partition that was added.
    """
    if len(client.cluster.partitions_for_topic(topic) or ()) < count:
        await client.force_metadata_update()
    if len(client.cluster.partitions_for_topic(topic) or ()) < count:
        raise kafka_errors.StaleMetadata(f"not all partitions of {topic} are known")


async def ask_for_inputs(client: AIOKafkaClient, settings: config.Kafka) -> None:
    """Raises `Transient` unless the broker answers and has the input topics."""
    with translated("a question about the input topic"):
        for topic in settings.inputs or [settings.input_topic]:
            # Topics that a pattern finds may come and go.
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
    found = (await topic_settings(client, topic, [name])).get(name)
    return None if found is None else int(found)


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
    told: dict[str, str] = {}
    for found in answer.to_object()["resources"]:
        if found["error_code"] in _NOT_FOR_US:
            return {}
        check_code(found["error_code"], topic)
        for entry in found["config_entries"]:
            if entry["config_names"] in names:
                told[entry["config_names"]] = entry["config_value"]
    return told


_NOT_FOR_US = (
    kafka_errors.TopicAuthorizationFailedError.errno,
    kafka_errors.ClusterAuthorizationFailedError.errno,
)


async def _send(client: AIOKafkaClient, request: Any) -> Any:
    return await client.send(client.get_random_node(), request)
