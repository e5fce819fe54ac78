"""What the broker says of a topic: how many partitions, and how large a batch it takes.

Rule: "there is no such topic" is an answer, everything else that is no answer is an error. aiokafka
logs the errors of metadata and of configurations and gives what is left. Owner: the sink, at the
start and when partitions were added.
"""

from typing import Any

from aiokafka import errors as kafka_errors
from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import DescribeConfigsRequest
from aiokafka.protocol.metadata import MetadataRequest

MOST_BYTES = "max.message.bytes"


async def count_partitions(client: AIOKafkaClient, topic: str) -> int:
    """0: there is no such topic. Raises aiokafka's errors."""
    answer = await _send(client, MetadataRequest([topic]))
    for found in answer.to_object()["topics"]:
        if found["topic"] == topic:
            if found["error_code"] == kafka_errors.UnknownTopicOrPartitionError.errno:
                return 0
            _check(found["error_code"], topic)
            return len(found["partitions"])
    raise kafka_errors.StaleMetadata(f"no word about {topic}")


async def max_batch_bytes(client: AIOKafkaClient, topic: str) -> int | None:
    """`max.message.bytes` of the topic; None where the broker does not tell such things, to us
    or to anybody.
    """
    request = DescribeConfigsRequest([(ConfigResourceType.TOPIC, topic, [MOST_BYTES])], False)
    try:
        answer = await _send(client, request)
    except (kafka_errors.IncompatibleBrokerVersion, NotImplementedError):
        return None
    for found in answer.to_object()["resources"]:
        if found["error_code"] in _NOT_FOR_US:
            return None
        _check(found["error_code"], topic)
        for entry in found["config_entries"]:
            if entry["config_names"] == MOST_BYTES:
                return int(entry["config_value"])
    return None


_NOT_FOR_US = (
    kafka_errors.TopicAuthorizationFailedError.errno,
    kafka_errors.ClusterAuthorizationFailedError.errno,
)


async def _send(client: AIOKafkaClient, request: Any) -> Any:
    return await client.send(client.get_random_node(), request)


def _check(code: int, topic: str) -> None:
    if code:
        raise kafka_errors.for_code(code)(topic)
