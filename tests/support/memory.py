"""An input topic, transactional producers and spans in memory.

They keep the same promises as the real adapters (one contract suite). The topics of the producers'
sink hold what a reader of committed records sees; aborted records are only in `aborted`.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from penstock.adapters.memory import MemorySink, PartitionReader, behind
from penstock.core.progress.line_stop import Word, decode_words, encode_words, obeyed
from penstock.errors import Fenced, Transient, Undecided, Unreachable
from penstock.ports import UNDECIDED, Commit, Outgoing, Rebalance, Record, Span, Where
from tests.support.partitions import by_number


class MemorySource:
    """One topic with one member. A test names partitions by their numbers: it calls
    `append`, `assign` and `revoke`, and looks at `committed`. `said`: words about lines. `on_start`
    and `on_commit` may raise or wait. `gaps`: offsets up to this one, by partition, have no
    records. `of_topic`: how many partitions it has.
    """

    def __init__(self, partitions: int = 1, topic: str = "refs") -> None:
        self.topic = topic
        self.records: dict[int, list[Record]] = {number: [] for number in range(partitions)}
        self.committed: dict[int, Commit] = {}
        self.commits: list[Mapping[int, Commit]] = []
        self.undecided: set[int] = set()
        self.said: dict[int, str] = {}
        self.polls = 0
        self.of_topic = partitions
        self.gaps: dict[int, int] = {}
        self.on_start: Callable[[], Awaitable[None]] | None = None
        self.on_commit: Callable[[], Awaitable[None]] | None = None
        self._reader = PartitionReader(self._read)
        self._rebalance: Rebalance | None = None

    def append(
        self,
        value: bytes | None,
        *,
        partition: int = 0,
        key: bytes | None = None,
        offset: int | None = None,
        timestamp_ms: int = 0,
        traceparent: bytes | None = None,
    ) -> Record:
        """Write a record; `offset` may leave a gap."""
        log = self.records[partition]
        if offset is None:
            offset = log[-1].offset + 1 if log else 0
        record = Record(self._where(partition), offset, key, value, timestamp_ms, traceparent)
        log.append(record)
        self._reader.arrived.set()
        return record

    async def start(self, rebalance: Rebalance) -> None:
        if self.on_start is not None:
            await self.on_start()
        self._rebalance = rebalance
        await self.assign(self.records)

    async def assign(self, partitions: Collection[int]) -> None:
        assert self._rebalance is not None
        starts = {
            self._where(number): UNDECIDED if number in self.undecided else self._start(number)
            for number in partitions
        }
        kept = await self._rebalance.assigned(starts)
        self._reader.go_to(starts)
        self._reader.positions |= kept

    def _start(self, number: int) -> Commit:
        return self.committed.get(number, Commit(0))

    async def suspend(self, partitions: Collection[int]) -> None:
        """A rebalance begins; `assign` or `revoke` says for each partition how it ends."""
        assert self._rebalance is not None
        await self._rebalance.suspended(self._given_up(partitions))

    async def revoke(self, partitions: Collection[int]) -> None:
        assert self._rebalance is not None
        await self._rebalance.revoked(self._given_up(partitions))

    def _given_up(self, partitions: Collection[int]) -> list[Where]:
        found = list(map(self._where, partitions))
        for one in found:
            self._reader.positions.pop(one, None)
        return found

    def _where(self, partition: int) -> Where:
        return Where(self.topic, partition)

    async def poll(self, partitions: Collection[Where], wait_ms: int) -> Sequence[Record]:
        self.polls += 1
        return await self._reader.poll(partitions, wait_ms)

    def _read(self, at: Where, position: int) -> tuple[Sequence[Record], int]:
        log = self.records[at.partition]
        if not log or log[-1].offset < position:  # as nearly each time in a long outage
            return (), position
        fresh = log[bisect_left(log, position, key=attrgetter("offset")) :]
        return fresh, behind(fresh, position)

    async def rewind(self, partitions: Collection[Where]) -> Mapping[Where, Commit]:
        await asyncio.sleep(0)
        ours = [partition for partition in partitions if partition in self._reader.positions]
        if self.undecided.intersection(our.partition for our in ours):
            raise Undecided("a transaction is open")
        starts = {our: self._start(our.partition) for our in ours}
        self._reader.go_to(starts)
        return starts

    async def words(self, partitions: Collection[Where]) -> Mapping[Where, str]:
        return {
            partition: self.said[partition.partition]
            for partition in partitions
            if partition.partition in self.said
        }

    async def mark_obeyed(self, at: Where, words: Collection[Word]) -> None:
        said = obeyed(decode_words(self.said[at.partition]), words)
        self.said[at.partition] = encode_words(said)

    async def commit(self, commits: Mapping[Where, Commit]) -> None:
        if self.on_commit is not None:
            await self.on_commit()
        self.commits.append(by_number(commits))
        self.committed |= self.commits[-1]

    def pause(self, at: Where) -> None:
        return

    def topic_id(self, at: Where) -> str | None:
        return None

    def reached(self) -> Mapping[Where, int]:
        return {
            one: max(position, self.gaps.get(one.partition, 0))
            for one, position in self._reader.positions.items()
            if not (log := self.records[one.partition]) or log[-1].offset < position
        }

    def partitions(self) -> int:
        return self.of_topic

    async def end_offsets(self) -> Mapping[Where, int]:
        return {
            self._where(number): max(log[-1].offset + 1 if log else 0, self.gaps.get(number, 0))
            for number, log in self.records.items()
            if self._where(number) in self._reader.positions
        }

    async def stop(self) -> None:
        self._reader.positions.clear()


class MemoryProducers:
    """`before_commit` may wait or raise between the records of a transaction and its commit; it is
    called for each of its partitions. `loses_answers`: of how many transactions from now on nobody
    hears that they were committed. `expelled`: the group has gone on without this worker.
    """

    def __init__(self, source: MemorySource, sink: MemorySink) -> None:
        self.source = source
        self.sink = sink
        self.aborted: list[Outgoing] = []
        # The partitions of each.
        self.transactions: list[list[int]] = []
        self.begun = 0
        self.opened = 0
        self.expelled = False
        self.loses_answers = 0
        self.before_open: Callable[[int], Awaitable[None]] | None = None
        self.before_commit: Callable[[int], Awaitable[None]] | None = None

    async def take_back_left(self) -> None:
        """A reader here never waits."""

    async def open(self, number: int) -> "MemoryPassage":
        self.opened += 1
        await asyncio.sleep(0)
        if self.before_open is not None:
            await self.before_open(number)
        return MemoryPassage(self)

    def group(self, at: Where) -> str:
        return "group"


class MemoryPassage:
    def __init__(self, producers: MemoryProducers) -> None:
        self._producers = producers
        self._spent = False

    async def publish(
        self, outgoing: Sequence[Outgoing], positions: Mapping[Where, Commit]
    ) -> None:
        producers = self._producers
        producers.begun += 1
        try:
            if self._spent:
                raise Transient("this producer has failed before: another one must be opened")
            await asyncio.sleep(0)
            for position in positions:
                if producers.before_commit is not None:
                    await producers.before_commit(position.partition)
            if producers.expelled:
                raise Fenced("the group has gone on without this member")
        except BaseException:
            self._spent = True
            producers.aborted += outgoing
            raise
        for out in outgoing:
            producers.sink.append(out)
        numbers = by_number(positions)
        producers.source.committed.update(numbers)
        producers.transactions.append(list(numbers))
        if producers.loses_answers:
            producers.loses_answers -= 1
            self._spent = True
            raise Unreachable("the end of a transaction was not answered")

    async def close(self) -> None:
        self._spent = True


@dataclass(slots=True)
class MemorySpans:
    sent: list[Span] = field(default_factory=list)
    dropped: int = 0

    @property
    def exported(self) -> int:
        return len(self.sent)

    def send(self, spans: Sequence[Span]) -> None:
        self.sent += spans

    async def aclose(self) -> None:
        return
