"""An input topic and output topics in memory, for tests and simulations.

Rule: they keep the same promises as the real adapters (one contract suite). They delay nothing by
themselves; a test can hold delivery reports. Owner: the test.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from penstock.adapters.memory.inbox import Inbox, behind
from penstock.errors import Fatal, Undecided
from penstock.ports import UNDECIDED, Commit, Headers, Outgoing, Rebalance, Record, Where


class MemorySource:
    """A topic with one member. A test calls `append`, `assign` and `revoke`, and looks at
    `committed`. `said`: words about lines. `on_start` and `on_commit` may raise or wait. `gaps`:
    offsets up to this one, by partition, have no records. `of_topic`: how many partitions it has.
    """

    def __init__(self, partitions: int = 1) -> None:
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
        self._inbox = Inbox(self._read)
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
        record = Record(partition, offset, key, value, timestamp_ms, traceparent)
        log.append(record)
        self._inbox.arrived.set()
        return record

    async def start(self, rebalance: Rebalance) -> None:
        if self.on_start is not None:
            await self.on_start()
        self._rebalance = rebalance
        await self.assign(self.records)

    async def assign(self, partitions: Collection[int]) -> None:
        assert self._rebalance is not None
        starts = {
            number: UNDECIDED if number in self.undecided else self._start(number)
            for number in partitions
        }
        kept = await self._rebalance.assigned(starts)
        self._inbox.go_to(starts)
        self._inbox.positions |= kept

    def _start(self, number: int) -> Commit:
        return self.committed.get(number, Commit(0))

    async def suspend(self, partitions: Collection[int]) -> None:
        """A rebalance begins; `assign` or `revoke` says for each partition how it ends."""
        assert self._rebalance is not None
        for number in partitions:
            self._inbox.positions.pop(number, None)
        await self._rebalance.suspended(partitions)

    async def revoke(self, partitions: Collection[int]) -> None:
        assert self._rebalance is not None
        for number in partitions:
            self._inbox.positions.pop(number, None)
        await self._rebalance.revoked(partitions)

    async def poll(self, partitions: Collection[int], wait_ms: int) -> Sequence[Record]:
        self.polls += 1
        return await self._inbox.poll(partitions, wait_ms)

    def _read(self, partition: int, position: int) -> tuple[Sequence[Record], int]:
        fresh = [record for record in self.records[partition] if record.offset >= position]
        return fresh, behind(fresh, position)

    async def rewind(self, partitions: Collection[int]) -> Mapping[int, Commit]:
        await asyncio.sleep(0)
        ours = [number for number in partitions if number in self._inbox.positions]
        if self.undecided.intersection(ours):
            raise Undecided("a transaction is open")
        starts = {number: self._start(number) for number in ours}
        self._inbox.go_to(starts)
        return starts

    async def words(self, partitions: Collection[int]) -> Mapping[int, str]:
        return {number: self.said[number] for number in partitions if number in self.said}

    async def commit(self, commits: Mapping[int, Commit]) -> None:
        if self.on_commit is not None:
            await self.on_commit()
        self.commits.append(dict(commits))
        self.committed |= commits

    def pause(self, partition: int) -> None:
        return

    def where(self, partition: int) -> Where:
        return Where("refs", partition)

    def reached(self) -> Mapping[int, int]:
        return {
            number: max(position, self.gaps.get(number, 0))
            for number, position in self._inbox.positions.items()
            if not self.records[number] or self.records[number][-1].offset < position
        }

    def partitions(self) -> int:
        return self.of_topic

    async def end_offsets(self) -> Mapping[int, int]:
        return {
            number: max(log[-1].offset + 1 if log else 0, self.gaps.get(number, 0))
            for number, log in self.records.items()
            if number in self._inbox.positions
        }

    async def stop(self) -> None:
        self._inbox.positions.clear()


class MemorySink:
    """Output topics as lists. With `hold`, delivery reports wait for `deliver`."""

    def __init__(self, *, partitions: int = 4, record_bytes: int = 1_000_000) -> None:
        self.topics: dict[str, dict[int, list[tuple[bytes | None, bytes]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        # Of each record, by topic and partition.
        self.headers: dict[str, dict[int, list[Headers]]] = defaultdict(lambda: defaultdict(list))
        self.hold = False
        self.forgotten = 0
        self._partitions = partitions
        self.record_bytes = record_bytes
        self._reports: deque[asyncio.Future[None]] = deque()

    async def start(self) -> None:
        return

    async def partitions(self, topic: str) -> int:
        return self._partitions

    async def send(self, outgoing: Outgoing) -> Awaitable[None]:
        await asyncio.sleep(0)
        for key, value in zip(outgoing.keys, outgoing.values, strict=True):
            if not self.fits(outgoing.topic, key, len(value)):
                raise Fatal(f"a record of {len(value)} bytes is larger than the topic takes")
        records = zip(outgoing.keys, outgoing.values, strict=True)
        self.topics[outgoing.topic][outgoing.partition] += records
        headers = outgoing.headers or [[] for _ in outgoing.values]
        self.headers[outgoing.topic][outgoing.partition] += headers
        report: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.hold:
            self._reports.append(report)
        else:
            report.set_result(None)
        return report

    def fits(self, topic: str, key: bytes | None, value_bytes: int) -> bool:
        return value_bytes + len(key or b"") < self.record_bytes

    def deliver(self) -> int:
        """Send out all held delivery reports; returns how many."""
        count = len(self._reports)
        while self._reports:
            report = self._reports.popleft()
            if not report.done():  # done: its waiter was cancelled
                report.set_result(None)
        return count

    async def forget(self) -> None:
        self.forgotten += len(self._reports)
        self._reports.clear()

    async def stop(self) -> None:
        return
