"""Makes aiokafka name the member in its requests: heartbeats and commits carry the instance id.

Rule: aiokafka 0.14 heartbeats and commits with the member id alone. If two workers then had one
instance id, the broker would tell each in turn only that its member id is unknown; each would join
again, and so expel the other, for ever. If requests carry the instance id, the broker tells the
worker that joined first that it is fenced. Owner: the source.
"""

from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.group import HeartbeatRequest

from penstock.adapters.kafka.group.membership import FENCED_INSTANCE_ID
from penstock.adapters.kafka.requests import NO_EPOCH, NamedCommit, NamedHeartbeat


def name_each_request(consumer: AIOKafkaConsumer, fenced: Callable[[], object]) -> None:
    """Call this after the start of a consumer with an instance id, before it subscribes. `fenced`
    is called when the broker says that another member has joined under the instance id.
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
    """Call this after each assignment, so that this member looks for added partitions. In aiokafka
    only the group's leader looks for them. But a leader that is restarted under its instance id
    does not learn that it leads, so no member would look.
    """
    coordinator = consumer._coordinator
    if coordinator._group_subscription is None:
        coordinator._group_subscription = set(consumer.subscription())
        coordinator._metadata_snapshot = coordinator._get_metadata_snapshot()


def _named(request: Any, instance_id: str) -> Any:
    match request:
        case HeartbeatRequest():
            member = request._group, request._generation_id, request._member_id
            return NamedHeartbeat(*member, instance_id)
        case OffsetCommitRequest():
            topics = [
                (topic, [(number, offset, NO_EPOCH, said) for number, offset, said in partitions])
                for topic, partitions in request._topics
            ]
            group, generation = request._consumer_group, request._consumer_group_generation_id
            return NamedCommit(group, generation, request._consumer_id, instance_id, topics)
        case _:
            return request


def _codes(answer: Any) -> set[int]:
    topics = getattr(answer, "topics", ())
    return {
        getattr(answer, "error_code", 0),
        *(code for _, partitions in topics for *_, code in partitions),
    }
