"""Makes a group move a member's partitions at once, and asks for the session after which it would.

Rule: a member with an instance id does not leave by itself: the source says so when it stops for
good, the supervisor for a dead process. With the protocol `consumer` (KIP-848) session and
heartbeat are the broker's, so they are read and shown: they tell how long partitions stand still
after a crash.
"""

import logging
from typing import Any, Final, NamedTuple

from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.protocol.admin import DescribeConfigsRequest

from penstock import config
from penstock.adapters.kafka.client import LEAVE_S, answered_within, check_code, connection, opened
from penstock.adapters.kafka.inside.consumers import client_of
from penstock.adapters.kafka.requests import LeaveGroup
from penstock.errors import PenstockError, usage

log = logging.getLogger(__name__)

# This answer means that the member is no longer in the group, so there is nothing left to do.
UNKNOWN_MEMBER_ID: Final = 25


async def leave_at_last(settings: config.Kafka, instance_id: str) -> None:
    """Call this for a member that stops. If the request fails, only a warning is logged: the group
    notices after the session that the member is gone.
    """
    try:
        await leave_for(settings, instance_id, LEAVE_S)
    except PenstockError as error:
        log.warning("the place in group %s is kept for its session: %s", settings.group, error)


async def leave_for(settings: config.Kafka, instance_id: str, seconds: float) -> None:
    """The request names the member by its instance id, so the caller need not know the id that the
    broker gave to the member. Raises `Unreachable` after `seconds` without an answer, or another
    error of ours.
    """
    what = f"the leaving of {instance_id} from group {settings.group}"
    admin = AIOKafkaAdminClient(**connection(settings))
    async with answered_within(what, seconds), opened(admin, settings, what):
        client = client_of(admin)
        node = await client.coordinator_lookup(CoordinationType.GROUP, settings.group)
        answer = await client.send(node, LeaveGroup(settings.group, instance_id))
        check_code(answer.error_code)
        for *_, code in answer.members:
            check_code(0 if code == UNKNOWN_MEMBER_ID else code)


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
    (resource,) = answer.to_object()["resources"]
    if resource["error_code"] in _NOT_FOR_US:
        return None
    values: dict[str, Any] = {
        entry["config_names"]: entry["config_value"] for entry in resource["config_entries"]
    }
    if resource["error_code"] or not {SESSION, HEARTBEAT} <= values.keys():
        raise usage(
            'this broker does not know kafka.group_protocol = "consumer", which needs Kafka 4.0; '
            'set it to "classic"'
        )
    return ConsumerTerms(int(values[SESSION]), int(values[HEARTBEAT]))
