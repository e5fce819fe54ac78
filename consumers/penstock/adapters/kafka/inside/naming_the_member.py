"""Makes aiokafka name the member in its requests: heartbeats and commits carry the instance id, and
a transaction's positions carry the whole membership (KIP-447).

Rule: aiokafka 0.14 heartbeats and commits with the member id alone. If two workers then had one
instance id, the broker would tell each in turn only that its member id is unknown; each would join
again, and so expel the other, for ever. If requests carry the instance id, the broker tells the
worker that joined first that it is fenced. Likewise, aiokafka sends a transaction's positions
without the membership. Then the broker would accept positions from a worker even after the group
has gone on without that worker. Owner: the source, and the transactions.
"""

from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import errors as kafka_errors
from aiokafka.client import CoordinationType
from aiokafka.producer.sender import TxnOffsetCommitHandler
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.group import HeartbeatRequest

from penstock.adapters.kafka.group.membership import FENCED_INSTANCE_ID, GroupMember
from penstock.adapters.kafka.inside.sending import seen
from penstock.adapters.kafka.requests import NO_EPOCH, MembersOffsets, NamedCommit, NamedHeartbeat
from penstock.errors import Fenced


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


# With these codes the broker says that the group has gone on without this member.
UNKNOWN_MEMBER: Final = 25
NO_MEMBER: Final = (22, UNKNOWN_MEMBER, 27, 82, 110)
# With the protocol `consumer`, a member learns its new epoch by its next heartbeat. Until that
# heartbeat the broker answers with this code. The member still has all partitions that it has not
# handed back, so the request may be made again.
STALE_EPOCH: Final = 113


class NotMemberError(kafka_errors.KafkaError):  # type: ignore[misc]
    """`code`: the error code that the broker sent."""

    def __init__(self, code: int) -> None:
        super().__init__(f"error {code}")
        self.code = code


class _Handler(TxnOffsetCommitHandler):  # type: ignore[misc]
    def __init__(self, sender: Any, offsets: Any, member: GroupMember) -> None:
        super().__init__(sender, offsets, member.group)
        self._member = member

    def create_request(self) -> MembersOffsets:
        transactions, member = self._sender._txn_manager, self._member
        topics: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        for where, at in sorted(self._offsets.items()):
            topics[where.topic].append((where.partition, at.offset, at.metadata))
        return MembersOffsets(
            (
                transactions.transactional_id,
                member.group,
                transactions.producer_id,
                transactions.producer_epoch,
            ),
            (member.generation, member.member_id, member.instance_id),
            list(topics.items()),
        )

    def handle_response(self, resp: Any) -> float | None:
        plain = SimpleNamespace(errors=MembersOffsets.plain(resp))
        for _, partitions in plain.errors:
            for _, code in partitions:
                if code == STALE_EPOCH:
                    return float(self._default_backoff)
                if code in NO_MEMBER:
                    _fail(self._sender, NotMemberError(code))
                    return None
        found: float | None = super().handle_response(plain)
        return found


def _fail(sender: Any, why: Exception) -> None:
    """Fail the transaction: the caller who waits for the positions gets `why`. Nobody waits for the
    transaction's end, so its future is marked as seen.
    """
    transactions = sender._txn_manager
    ended = transactions.wait_for_transaction_end()
    transactions.error_transaction(why)
    ended.add_done_callback(seen)


def commit_as(producer: AIOKafkaProducer, member: Callable[[], GroupMember]) -> None:
    """Call this before the producer starts. `member`: a function that returns our membership in the
    group; it is called whenever positions are sent.
    """
    sender = producer._sender

    async def commit(offsets: Any, group: str) -> None:
        who = member()
        try:
            node = await sender._find_coordinator(CoordinationType.GROUP, group)
            who.check()
        except (kafka_errors.GroupAuthorizationFailedError, Fenced) as error:
            why = NotMemberError(UNKNOWN_MEMBER) if isinstance(error, Fenced) else error
            _fail(sender, why)
            return
        await _Handler(sender, offsets, who).do(node)

    sender._do_txn_offset_commit = commit
