"""Makes aiokafka's transactions carry who we are to the group (KIP-447).

Rule: aiokafka 0.14 sends a transaction's positions without it, so the broker would take them of a
member that the group has gone on without. Owner: the transactions.
"""

from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka_errors
from aiokafka.client import CoordinationType
from aiokafka.producer.sender import TxnOffsetCommitHandler

from penstock.adapters.kafka.group.identity import GroupMember
from penstock.adapters.kafka.inside.giving_up import seen
from penstock.adapters.kafka.requests import MembersOffsets
from penstock.errors import Fenced

# Codes by which the group says that it has gone on without this member.
UNKNOWN_MEMBER: Final = 25
NO_MEMBER: Final = (22, UNKNOWN_MEMBER, 27, 82, 110)
# By the protocol `consumer`: a member learns its new epoch by its next heartbeat. It keeps what it
# has not handed back, so the request is made again.
STALE_EPOCH: Final = 113


class NotMemberError(kafka_errors.KafkaError):  # type: ignore[misc]
    """`code`: the broker's."""

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
    """What waits for the positions raises it; nobody waits for the end of the transaction."""
    transactions = sender._txn_manager
    ended = transactions.wait_for_transaction_end()
    transactions.error_transaction(why)
    ended.add_done_callback(seen)


def commit_as(producer: AIOKafkaProducer, member: Callable[[], GroupMember]) -> None:
    """Before the producer starts. `member` is asked when the positions leave."""
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
