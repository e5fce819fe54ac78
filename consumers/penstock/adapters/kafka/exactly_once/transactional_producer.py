"""Speaks the protocol of transactions over aiokafka's connections: one producer, one transaction
after the other.

Rule: a question is repeated until its answer lasts: as long as a coordinator moves or loads, or a
leader is not known. The owner sets the deadlines, and gives the producer up at the first error. A
batch keeps its sequence numbers however often it is sent, and a partition has one on its way at a
time, so what arrives twice is written once.

With the second version of transactions (KIP-890, Kafka 4.0) a write adds its partition by itself,
and the end's answer has the epoch of the next transaction: a request that arrives late cannot touch
another than its own. Older brokers are told of each partition and of the group first.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.protocol.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from aiokafka.structs import OffsetAndMetadata

from penstock.adapters.kafka.client import check_code
from penstock.adapters.kafka.error_codes import BROKER, RECORD, about
from penstock.adapters.kafka.group.membership import GroupMember
from penstock.adapters.kafka.inside.producers import STALE_S, RefusedIndices, mended, sealed
from penstock.adapters.kafka.requests import (
    AddingOffsets,
    AddingProduce,
    EndAndBump,
    Features,
    MembersOffsets,
    Produce,
)

# The pause before a question is repeated, as in aiokafka.
RETRY_S: Final = 0.1
# The pause while a coordinator is at work on the same producer's transaction: it writes to its own
# log, or the markers of the last transaction, both within some milliseconds.
CONCURRENT_S: Final = 0.003
# The coordinator refuses what is to be added to a transaction while it writes another addition to
# its log. A group's coordinator tells us so at once, but a leader tries again by itself, after 20
# ms (`add.partitions.to.txn.retry.backoff.ms`). So the leaders go first, by the time that an
# addition takes. Over a long way records and positions then travel together.
HEAD_START_S: Final = 0.005
# How long a leader waits for its replicas before it refuses a batch, as in aiokafka.
REPLICAS_MS: Final = 40_000

DUPLICATE_SEQUENCE: Final = 46
CONCURRENT: Final = 51
NOT_ATTEMPTED: Final = 55
# With the protocol `consumer`, a member learns its new epoch by its next heartbeat. Until then it
# still has all partitions that it has not handed back.
STALE_EPOCH: Final = 113
# With these codes the broker says that another producer has this id, or that the transaction is
# over.
_FENCED: Final = (47, 90)
# The coordinator is another broker now, or may be.
_MOVED: Final = (7, 15, 16)
# A coordinator may answer otherwise soon. It may also not know a topic yet (3), or load its log
# (14).
_PASSING: Final = {3, 14, CONCURRENT, STALE_EPOCH, *_MOVED}
# With these codes the broker says that the group has gone on without this member.
NO_MEMBER: Final = (22, 25, 27, 82, 110)
_UNANSWERED: Final = (
    kafka_errors.NodeNotReadyError,
    kafka_errors.RequestTimedOutError,
    kafka_errors.KafkaConnectionError,
    kafka_errors.CorrelationIdError,
)
# A partition without a leader, in the brokers' metadata.
_NONE: Final = -1
_SECOND: Final = ("transaction.version", 2)


class NotMemberError(kafka_errors.KafkaError):  # type: ignore[misc]
    """`code`: the error code that the broker sent."""

    def __init__(self, code: int) -> None:
        super().__init__(f"error {code}")
        self.code = code


class TransactionalProducer:
    """`rests_until_s`: until when the broker leaves the connection unread, because of a quota. All
    methods raise aiokafka's errors.
    """

    def __init__(self, client: AIOKafkaClient, transactional_id: str, timeout_ms: int) -> None:
        self.client = client
        self.rests_until_s = 0.0
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._is_second = False
        self._id, self._epoch = -1, -1
        # The number of the next record of each partition, since the epoch began.
        self._sequences: dict[TopicPartition, int] = {}
        # By group; None: that of the transactions.
        self._coordinators: dict[str | None, int] = {}
        # What older brokers know of the open transaction.
        self._added: set[TopicPartition | str] = set()

    async def start(self) -> None:
        """Fence the producer that had this id before, and wait for the end of its transaction."""
        await self.client.bootstrap()
        self._is_second = await self._brokers_have_second()
        await self._fence()

    async def _fence(self) -> None:
        request = InitProducerIdRequest(self._transactional_id, self._timeout_ms)
        answer = await self._coordinated(lambda: request)
        self._id, self._epoch = answer.producer_id, answer.producer_epoch

    @property
    def head_start_s(self) -> float | None:
        """How long the positions wait for the records that are written. None: until the brokers
        have the records.
        """
        return HEAD_START_S if self._is_second else None

    async def _brokers_have_second(self) -> bool:
        try:
            answer = await self.client.send(self.client.get_random_node(), Features())
        except (kafka_errors.IncompatibleBrokerVersion, NotImplementedError):
            return False
        name, level = _SECOND
        return not answer.error_code and Features.levels(answer).get(name, 0) >= level

    async def write(self, batches: Iterable[tuple[TopicPartition, BatchBuilder]]) -> None:
        """Returns when the brokers have all batches. Those of a partition keep their order."""
        waiting: defaultdict[TopicPartition, deque[BatchBuilder]] = defaultdict(deque)
        for where, batch in batches:
            waiting[where].append(batch)
        if not self._is_second:
            await self._add(waiting.keys() - self._added)
        while waiting:
            turns = [
                self._write_to(node, {where: waiting[where] for where in places})
                for node, places in (await self._by_leader(waiting)).items()
            ]
            # All have ended before a failure is raised.
            pauses_s: list[float] = []
            for pause_s in await asyncio.gather(*turns, return_exceptions=True):
                if isinstance(pause_s, BaseException):
                    raise pause_s
                pauses_s.append(pause_s)
            for where in [where for where, queue in waiting.items() if not queue]:
                del waiting[where]
            await asyncio.sleep(max(pauses_s))

    async def _add(self, partitions: Iterable[TopicPartition]) -> None:
        topics: defaultdict[str, list[int]] = defaultdict(list)
        for where in partitions:
            topics[where.topic].append(where.partition)
        if topics:
            request = AddPartitionsToTxnRequest(*self._names, list(topics.items()))
            await self._coordinated(lambda: request)
            self._added.update(partitions)

    async def _by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[int, list[TopicPartition]]:
        cluster = self.client.cluster
        while True:
            nodes: defaultdict[int, list[TopicPartition]] = defaultdict(list)
            for where in partitions:
                leader = cluster.leader_for_partition(where)
                nodes[_NONE if leader is None else leader].append(where)
            unled = nodes.pop(_NONE, [])
            if not unled:
                return nodes
            for where in unled:
                if where.topic in cluster.unauthorized_topics:
                    raise kafka_errors.TopicAuthorizationFailedError(where.topic)
                self.client.add_topic(where.topic)
            await self.client.force_metadata_update()
            if any(cluster.leader_for_partition(where) in (None, _NONE) for where in unled):
                await asyncio.sleep(STALE_S)

    async def _write_to(
        self, node: int, queues: Mapping[TopicPartition, deque[BatchBuilder]]
    ) -> float:
        """Send the first batch of each queue, and take those that the broker has from their queues.
        Returns the pause before the next turn.
        """
        topics: defaultdict[str, list[tuple[int, bytes]]] = defaultdict(list)
        for where, queue in queues.items():
            data = sealed(queue[0], self._id, self._epoch, self._sequences.get(where, 0))
            topics[where.topic].append((where.partition, data))
        kind = AddingProduce if self._is_second else Produce
        try:
            answer = await self.client.send(node, kind(self._transactional_id, REPLICAS_MS, topics))
        except _UNANSWERED:
            self.client.force_metadata_update()
            return RETRY_S
        now_s = asyncio.get_running_loop().time()
        self.rests_until_s = max(self.rests_until_s, now_s + answer.throttle_time_ms / 1000)
        pause_s = 0.0
        for topic, partition, code, rest in kind.plain(answer):
            where = TopicPartition(topic, partition)
            if code in (0, DUPLICATE_SEQUENCE):
                count = queues[where].popleft().record_count()
                self._sequences[where] = (self._sequences.get(where, 0) + count) % (1 << 31)
            elif about(code) is RECORD:
                self._mend(where, queues[where], code, RefusedIndices.of(code, rest))
            elif code == CONCURRENT:
                pause_s = max(pause_s, CONCURRENT_S)
            elif about(code) is BROKER:
                pause_s = RETRY_S
                self.client.force_metadata_update()
            else:
                _check(code, topic)
        return pause_s

    def _mend(
        self, where: TopicPartition, queue: deque[BatchBuilder], code: int, refusal: RefusedIndices
    ) -> None:
        """What is sent instead of a refused batch gets its sequence numbers, of which the broker
        took none.
        """
        refused = queue.popleft()
        data = bytes(sealed(refused, self._id, self._epoch, 0))
        parts = mended(where.topic, refused, data, code, refusal)
        if parts is None:
            check_code(code, refusal.words)
        queue.extendleft(reversed(parts or []))

    async def move(
        self,
        group: str,
        positions: Mapping[TopicPartition, OffsetAndMetadata],
        member: Callable[[], GroupMember],
    ) -> None:
        """Add the group's positions to the transaction. `member`: the membership in whose name they
        are moved, asked for whenever they are sent.
        """
        if not self._is_second and group not in self._added:
            adding = AddOffsetsToTxnRequest(*self._names, group)
            await self._coordinated(lambda: adding, reason=group)
            self._added.add(group)
        topics: defaultdict[str, list[tuple[int, int, str]]] = defaultdict(list)
        for where, at in sorted(positions.items()):
            topics[where.topic].append((where.partition, at.offset, at.metadata))
        kind = AddingOffsets if self._is_second else MembersOffsets
        producer = self._transactional_id, group, self._id, self._epoch

        def request() -> MembersOffsets:
            return kind(producer, member()[1:], topics)

        await self._coordinated(request, group, reason=group)

    async def end(self, *, commits: bool) -> None:
        """Commit the transaction, or abort it."""
        self._added.clear()
        kind = EndAndBump if self._is_second else EndTxnRequest
        request = kind(*self._names, commits)
        answer = await self._coordinated(lambda: request)
        if self._is_second:
            self._id, self._epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()

    async def take_back(self) -> None:
        """Abort the transaction of a producer that is not used again. A batch of it may still be on
        its way. The end of the second version raises the epoch, so that batch is refused. The first
        version would take it for a new transaction, which nobody ends; there a new epoch aborts.
        """
        await (self.end(commits=False) if self._is_second else self._fence())

    @property
    def _names(self) -> tuple[str, int, int]:
        return self._transactional_id, self._id, self._epoch

    async def _coordinated(
        self, make: Callable[[], Any], group: str | None = None, reason: str | None = None
    ) -> Any:
        """Ask a coordinator until its answer lasts: that of the group, or that of the transactions.
        `reason`: what an error is about.
        """
        while True:
            try:
                node = await self._coordinator(group)
                answer = await self.client.send(node, make(), group=ConnectionGroup.COORDINATION)
                codes = _codes(answer)
            except _UNANSWERED:
                codes = {_MOVED[0]: None}
            for code, topic in codes.items():
                if code not in _PASSING:
                    _check(code, topic or reason or self._transactional_id)
            if not codes:
                return answer
            if not codes.keys().isdisjoint(_MOVED):
                self._coordinators.pop(group, None)
            await asyncio.sleep(CONCURRENT_S if codes.keys() == {CONCURRENT} else RETRY_S)

    async def _coordinator(self, group: str | None) -> int:
        while group not in self._coordinators:
            is_group = group is not None
            kind = CoordinationType.GROUP if is_group else CoordinationType.TRANSACTION
            key = group if is_group else self._transactional_id
            try:
                self._coordinators[group] = await self.client.coordinator_lookup(kind, key)
            except kafka_errors.BrokerResponseError as error:
                if about(error.errno) is not BROKER:
                    raise type(error)(key) from error
                await self.client.force_metadata_update()
                await asyncio.sleep(RETRY_S)
        return self._coordinators[group]


def _codes(answer: Any) -> dict[int, str | None]:
    """The errors of an answer, each with a topic that it is about, if it is about one."""
    topics = getattr(answer, "errors", None) or getattr(answer, "topics", None) or ()
    codes: dict[int, str | None] = {
        code: topic for topic, partitions, *_ in topics for _, code, *_ in partitions
    }
    codes[getattr(answer, "error_code", 0)] = None
    # Of a request of which a part is refused, no other part is carried out.
    if codes.keys() - {0, NOT_ATTEMPTED}:
        codes.pop(NOT_ATTEMPTED, None)
    codes.pop(0, None)
    return codes


def _check(code: int, reason: str) -> None:
    if code in _FENCED:
        raise kafka_errors.ProducerFenced
    if code in NO_MEMBER:
        raise NotMemberError(code)
    check_code(code, reason)
