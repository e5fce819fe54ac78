"""Session and heartbeat of a group with the protocol `consumer` (KIP-848), which the broker sets.

Rule: with this protocol no client may ask for a shorter session. So both figures are read from the
broker and shown to people, because they tell how long partitions stand still after a crash. Owner:
the source, and `doctor`.
"""

from typing import Any, Final, NamedTuple

from aiokafka import errors as kafka_errors
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import DescribeConfigsRequest

from penstock.errors import usage

GROUP: Final = 32  # the resource type "group", which aiokafka's list does not have yet
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
_NOT_FOR_US: Final = (
    kafka_errors.GroupAuthorizationFailedError.errno,
    kafka_errors.ClusterAuthorizationFailedError.errno,
)


class ConsumerTerms(NamedTuple):
    session_ms: int
    heartbeat_ms: int

    def __str__(self) -> str:
        return (
            f"the broker moves a crashed worker's partitions after {self.session_ms / 1000:g} s, "
            f"and those of one that leaves within its heartbeat of {self.heartbeat_ms / 1000:g} s "
            "(its group.consumer.session.timeout.ms and group.consumer.heartbeat.interval.ms; the "
            "minimums are its own, too)"
        )


async def consumer_terms(client: AIOKafkaClient, group: str) -> ConsumerTerms | None:
    """The session and the heartbeat of the group. None: the broker refuses to tell us. Raises
    `Fatal` if the broker does not know the protocol, and raises aiokafka's errors.
    """
    request = DescribeConfigsRequest([(GROUP, group, [SESSION, HEARTBEAT])], False)
    answer = await client.send(client.get_random_node(), request)
    (found,) = answer.to_object()["resources"]
    if found["error_code"] in _NOT_FOR_US:
        return None
    values: dict[str, Any] = {
        entry["config_names"]: entry["config_value"] for entry in found["config_entries"]
    }
    if found["error_code"] or not {SESSION, HEARTBEAT} <= values.keys():
        raise usage(
            'this broker does not know kafka.group_protocol = "consumer", which needs Kafka 4.0; '
            'set it to "classic"'
        )
    return ConsumerTerms(int(values[SESSION]), int(values[HEARTBEAT]))
