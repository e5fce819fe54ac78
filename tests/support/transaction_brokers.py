"""The brokers' side of transactions, as a pure model: a coordinator, the logs of partitions and the
positions of a group, and a client that leads a producer to them.

Rule: the model follows Kafka's `TransactionCoordinator` and `ProducerStateManager`: what is in
which state, which epoch and sequence number may write, and what a repeated request is answered. A
request can arrive again later, as one does that waited in a connection that was given up. A
question about decided positions follows `OffsetMetadataManager.fetchOffsets`; nothing becomes of it
on its way. Owner: the tests of the transactional producer.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

from aiokafka import TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.record.memory_records import MemoryRecords

from penstock.adapters.kafka.requests import DecidedOffsets

ODD_SEQUENCE, FENCED, TXN_STATE, PID_MAPPING, CONCURRENT = 45, 47, 48, 49, 51
UNSTABLE, UNVERIFIED = 88, 120
# Kafka keeps the last epoch for itself.
LAST_EPOCH = 32_766

State = Literal["empty", "ongoing", "committed", "aborted"]


class Act(NamedTuple):
    """What becomes of a request. refuse: the answer is `code`, and nothing happens. lose: it is
    carried out, and no answer comes. cut: neither. twice: it is carried out twice. late: as cut,
    and it is carried out when so many more requests have come.
    """

    how: Literal["pass", "refuse", "lose", "cut", "twice", "late"] = "pass"
    code: int = 0
    requests: int = 0


class Brokers:
    """`committed`: the values that a reader of committed records sees, by partition. `positions`:
    those of the group.
    """

    def __init__(self, *, is_second: bool, epoch: int = -1) -> None:
        self.is_second = is_second
        self.committed: defaultdict[TopicPartition, list[bytes]] = defaultdict(list)
        self.positions: dict[TopicPartition, int] = {}
        self.seen: list[str] = []
        self.acts: deque[Act] = deque()
        self._late: list[tuple[int, Any]] = []
        self._state: State = "empty"
        self._id, self._epoch = 1, epoch
        self._open: list[tuple[TopicPartition, bytes]] = []
        self._moves: dict[TopicPartition, int] = {}
        self._added: set[Any] = set()
        # By partition and producer: the epoch, the next sequence number, and those before it.
        self._writers: dict[tuple[TopicPartition, int], tuple[int, int, set[int]]] = {}

    def ask(self, request: Any) -> Any:
        """The answer; None: none comes."""
        if isinstance(request, DecidedOffsets):
            return self._told(request.prepare(_VERSIONS))
        act = self.acts.popleft() if self.acts else Act()
        for due, late in list(self._late):
            if due <= len(self.seen):
                self._late.remove((due, late))
                self._carry_out(late)
        self.seen.append(type(request).__name__)
        built = request.prepare(_VERSIONS)
        if act.how == "refuse":
            return _answer(built, act.code)
        if act.how == "late":
            self._late.append((len(self.seen) + act.requests, built))
        if act.how in ("late", "cut"):
            return None
        answer = self._carry_out(built)
        if act.how == "twice":
            self._carry_out(built)
        return None if act.how == "lose" else answer

    def _carry_out(self, built: Any) -> Any:
        match built.API_KEY:
            case 18:
                # A compact array of one feature: its name, its greatest and its least level.
                level = b"\2\x14transaction.version\0" + bytes([self.is_second + 1]) + b"\0\1\0"
                return SimpleNamespace(error_code=0, tags={2: level})
            case 22:
                if self._state == "ongoing":
                    self._decide("aborted")
                self._bump()
                self._state = "empty"
                return _answer(built, 0, self._id, self._epoch)
            case 0:
                return self._written(built)
            case 24:
                return _answer(built, self._add(built, _places(built)))
            case 25:
                return _answer(built, self._add(built, {built.group_id}))
            case 28:
                return self._moved(built)
            case 26:
                return self._ended(built)
        raise AssertionError(built)

    def _bump(self) -> None:
        if self._epoch >= LAST_EPOCH:
            self._id, self._epoch = self._id + 1, -1
        self._epoch += 1

    def _decide(self, state: State) -> None:
        if state == "committed":
            for where, value in self._open:
                self.committed[where].append(value)
            self.positions |= self._moves
        self._state = state
        self._open, self._moves = [], {}
        self._added.clear()

    def _refusal(self, id: int, epoch: int) -> int:
        if id != self._id:
            return PID_MAPPING
        return 0 if epoch == self._epoch else FENCED

    def _add(self, built: Any, places: set[Any]) -> int:
        code = self._refusal(built.producer_id, built.producer_epoch)
        if not code:
            self._state = "ongoing"
            self._added |= places
        return code

    def _may_write(self, id: int, epoch: int, place: Any) -> int:
        """The second version adds what is written to; the first one wants it added before."""
        if code := self._refusal(id, epoch):
            return code
        if self.is_second:
            self._state = "ongoing"
            self._added.add(place)
        return 0 if place in self._added else UNVERIFIED

    def _written(self, built: Any) -> Any:
        topics: list[Any] = []
        for topic, partitions, _ in built.topics:
            answers: list[Any] = []
            for number, data, _ in partitions:
                code = self._append(TopicPartition(topic, number), bytes(data))
                answers.append((number, code, 0, -1, 0, [], None, {}))
            topics.append((topic, answers, {}))
        return SimpleNamespace(topics=topics, throttle_time_ms=0)

    def _append(self, where: TopicPartition, data: bytes) -> int:
        head = MemoryRecords(data).next_batch()
        values = [record.value for record in head]
        id, epoch, sequence = head.producer_id, head.producer_epoch, head.base_sequence
        last, expected, former = self._writers.get((where, id), (-1, 0, set()))
        if epoch < last:
            return FENCED
        if epoch == last and sequence in former:
            return 0  # a repetition
        if code := self._may_write(id, epoch, where):
            return code
        if epoch > last:
            expected, former = 0, set()
        if sequence != expected:
            return ODD_SEQUENCE
        self._writers[where, id] = epoch, sequence + len(values), former | {sequence}
        self._open += [(where, value) for value in values]
        return 0

    def _moved(self, built: Any) -> Any:
        code = self._may_write(built.producer_id, built.producer_epoch, built.group)
        for topic, partitions, _ in built.topics:
            for number, offset, *_ in partitions:
                if not code:
                    self._moves[TopicPartition(topic, number)] = offset
        return _answer(built, code)

    def _told(self, built: Any) -> Any:
        """With `require_stable`, Kafka does not tell a position that an open transaction has moved
        (`hasPendingTransactionalOffsets` in `OffsetMetadataManager.fetchOffsets`): the transaction
        may still be committed, by an end that is late.
        """
        topics: list[Any] = []
        for topic, numbers, _ in built.topics:
            entries: list[Any] = []
            for where in (TopicPartition(topic, number) for number in numbers):
                is_open = built.require_stable and where in self._moves
                offset = -1 if is_open else self.positions.get(where, -1)
                entries.append((where.partition, offset, -1, "", UNSTABLE * is_open, {}))
            topics.append((topic, entries, {}))
        return SimpleNamespace(topics=topics, error_code=0)

    def _ended(self, built: Any) -> Any:
        id, epoch = built.producer_id, built.producer_epoch
        commits = built.commits if built.API_VERSION >= 5 else built.transaction_result
        wanted: State = "committed" if commits else "aborted"
        is_bumped = (id, epoch + 1) == (self._id, self._epoch) or (
            epoch == LAST_EPOCH and (id + 1, 0) == (self._id, self._epoch)
        )
        if self._state in ("committed", "aborted") and (is_bumped or not self.is_second):
            code = 0 if self._state == wanted else TXN_STATE
            return _answer(built, code, self._id, self._epoch)
        if code := self._refusal(id, epoch):
            return _answer(built, code)
        if self._state != "ongoing":
            return _answer(built, TXN_STATE)
        self._decide(wanted)
        if self.is_second:
            self._bump()
        return _answer(built, 0, self._id, self._epoch)


# The model has all versions; which one is sent is the producer's choice.
_VERSIONS = dict.fromkeys((0, 9, 18, 22, 24, 25, 26, 28), (0, 99))


def _places(built: Any) -> set[TopicPartition]:
    return {
        TopicPartition(topic, number) for topic, numbers, *_ in built.topics for number in numbers
    }


def _answer(built: Any, code: int, id: int = -1, epoch: int = -1) -> Any:
    """An answer that says the code everywhere."""
    topics: Sequence[Any] = getattr(built, "topics", None) or ()
    placed: list[Any]
    match built.API_KEY:
        case 0:
            placed = [
                (topic, [(part[0], code, -1, -1, -1, [], None, {}) for part in parts], {})
                for topic, parts, *_ in topics
            ]
        case 24:
            placed = [(topic, [(part, code) for part in parts]) for topic, parts, *_ in topics]
        case _:
            placed = [
                (topic, [(part[0], code, {}) for part in parts], {}) for topic, parts, *_ in topics
            ]
    answer = SimpleNamespace(throttle_time_ms=0, producer_id=id, producer_epoch=epoch)
    if built.API_KEY in (0, 28):
        answer.topics = placed
    elif built.API_KEY == 24:
        answer.errors = placed
    else:
        answer.error_code = code
    return answer


class Cluster:
    unauthorized_topics: frozenset[str] = frozenset()

    def leader_for_partition(self, where: TopicPartition) -> int:
        return int(where.partition % 2)


class Client:
    """What the producer uses of aiokafka's client. A request takes a turn of the loop each way."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self.cluster = Cluster()

    async def bootstrap(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def get_random_node(self) -> int:
        return 0

    async def coordinator_lookup(self, kind: int, key: str) -> int:
        return kind

    def force_metadata_update(self) -> asyncio.Future[bool]:
        known = asyncio.get_running_loop().create_future()
        known.set_result(True)
        return known

    async def send(self, node: int, request: Any, *, group: int = 0) -> Any:
        await asyncio.sleep(0.001)
        answer = self.brokers.ask(request)
        await asyncio.sleep(0.001)
        if answer is None:
            raise kafka_errors.RequestTimedOutError
        return answer
