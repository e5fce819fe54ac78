"""Makes aiokafka say its instance id with each request of the group, not only when it joins.

Rule: aiokafka 0.14 heartbeats and commits by the member id alone. Two workers with one instance id
would then take the place from each other for ever, as each hears only that it is unknown, and joins
again. With the instance id the broker says to the one that lost the place that it is fenced. Owner:
the source.
"""

from collections.abc import Callable
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka.protocol.api import Request, RequestStruct
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetCommitResponse_v3
from aiokafka.protocol.group import HeartbeatRequest, HeartbeatResponse_v1
from aiokafka.protocol.types import Array, Int32, Int64, Schema, String

from penstock.adapters.kafka.group.refusals import FENCED_INSTANCE_ID

NO_EPOCH: Final = -1


class _Heartbeat(RequestStruct):  # type: ignore[misc]
    API_KEY = 12
    API_VERSION = 3
    RESPONSE_TYPE = HeartbeatResponse_v1
    SCHEMA = Schema(
        ("group", String("utf-8")),
        ("generation_id", Int32),
        ("member_id", String("utf-8")),
        ("group_instance_id", String("utf-8")),
    )


class _Commit(RequestStruct):  # type: ignore[misc]
    API_KEY = 8
    API_VERSION = 7
    RESPONSE_TYPE = OffsetCommitResponse_v3
    SCHEMA = Schema(
        ("group", String("utf-8")),
        ("generation_id", Int32),
        ("member_id", String("utf-8")),
        ("group_instance_id", String("utf-8")),
        (
            "topics",
            Array(
                ("topic", String("utf-8")),
                (
                    "partitions",
                    Array(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", String("utf-8")),
                    ),
                ),
            ),
        ),
    )


class _NamedHeartbeat(Request[_Heartbeat]):  # type: ignore[misc]
    API_KEY = 12

    def __init__(self, plain: HeartbeatRequest, instance_id: str) -> None:
        self._fields = (plain._group, plain._generation_id, plain._member_id, instance_id)

    def build(self, request_struct_class: type[_Heartbeat]) -> _Heartbeat:
        return request_struct_class(*self._fields)


class _NamedCommit(Request[_Commit]):  # type: ignore[misc]
    API_KEY = 8

    def __init__(self, plain: OffsetCommitRequest, instance_id: str) -> None:
        topics = [
            (topic, [(number, offset, NO_EPOCH, said) for number, offset, said in partitions])
            for topic, partitions in plain._topics
        ]
        member = (plain._consumer_group, plain._consumer_group_generation_id, plain._consumer_id)
        self._fields = (*member, instance_id, topics)

    def build(self, request_struct_class: type[_Commit]) -> _Commit:
        return request_struct_class(*self._fields)


def name_each_request(consumer: AIOKafkaConsumer, fenced: Callable[[], object]) -> None:
    """After the start of a consumer with an instance id, before it subscribes. `fenced` is called
    when the broker says that another member has the place.
    """
    coordinator = consumer._coordinator
    send, instance_id = coordinator._send_req, coordinator._group_instance_id

    async def send_named(request: Any) -> Any:
        answer = await send(_named(request, instance_id))
        if FENCED_INSTANCE_ID in _codes(answer):
            fenced()
        return answer

    coordinator._send_req = send_named


def watch_topics(consumer: AIOKafkaConsumer) -> None:
    """After each assignment. Only the group's leader looks for added partitions; a leader that is
    started again in its place is not told that it leads, and nobody would look.
    """
    coordinator = consumer._coordinator
    if coordinator._group_subscription is None:
        coordinator._group_subscription = set(consumer.subscription())
        coordinator._metadata_snapshot = coordinator._get_metadata_snapshot()


def _named(request: Any, instance_id: str) -> Any:
    match request:
        case HeartbeatRequest():
            return _NamedHeartbeat(request, instance_id)
        case OffsetCommitRequest():
            return _NamedCommit(request, instance_id)
        case _:
            return request


def _codes(answer: Any) -> set[int]:
    topics = getattr(answer, "topics", ())
    return {
        getattr(answer, "error_code", 0),
        *(code for _, partitions in topics for *_, code in partitions),
    }
