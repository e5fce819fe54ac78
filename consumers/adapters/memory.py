"""Every port in memory: a topic, a bucket, a model and an output topic that a test or a simulation
owns.

Rule: they keep the same promises as the real adapters (one contract suite), hold nothing back by
themselves, and do what the test says when it says so: delivery reports can be held, calls can be
answered by a script. Owner: the test.
"""

import asyncio
import fnmatch
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from consumers.core.payload import Matrix, Payload
from consumers.errors import Fatal, Poison
from consumers.ports import (
    Answers,
    Commit,
    Listed,
    Location,
    Outgoing,
    Part,
    Rebalance,
    Record,
)


class MemorySource:
    """A topic with one member. `append` records, `move` partitions, look at `committed`; `on_start`
    and `on_commit` may raise or wait. Up to `gaps` of a partition are offsets without records;
    `of_topic` is how many partitions there are.
    """

    def __init__(self, partitions: int = 1) -> None:
        self.records: dict[int, list[Record]] = {number: [] for number in range(partitions)}
        self.committed: dict[int, Commit] = {}
        self.commits: list[Mapping[int, Commit]] = []
        self.polls = 0
        self.of_topic = partitions
        self.gaps: dict[int, int] = {}
        self.on_start: Callable[[], Awaitable[None]] | None = None
        self.on_commit: Callable[[], Awaitable[None]] | None = None
        self._positions: dict[int, int] = {}
        self._rebalance: Rebalance | None = None
        self._arrived = asyncio.Event()

    def append(
        self,
        value: bytes | None,
        *,
        partition: int = 0,
        key: bytes | None = None,
        offset: int | None = None,
        timestamp_ms: int = 0,
    ) -> Record:
        """Write a record; `offset` may leave a gap."""
        log = self.records[partition]
        if offset is None:
            offset = log[-1].offset + 1 if log else 0
        record = Record(partition, offset, key, value, timestamp_ms)
        log.append(record)
        self._arrived.set()
        return record

    async def start(self, rebalance: Rebalance) -> None:
        if self.on_start is not None:
            await self.on_start()
        self._rebalance = rebalance
        await self.assign(self.records)

    async def assign(self, partitions: Collection[int]) -> None:
        assert self._rebalance is not None
        starts = {number: self.committed.get(number, Commit(0)) for number in partitions}
        await self._rebalance.assigned(starts)
        self._positions |= {number: start.next_offset for number, start in starts.items()}
        self._arrived.set()

    async def revoke(self, partitions: Collection[int]) -> None:
        assert self._rebalance is not None
        for number in partitions:
            self._positions.pop(number, None)
        await self._rebalance.revoked(partitions)

    async def poll(self, partitions: Collection[int], wait_ms: int) -> Sequence[Record]:
        self.polls += 1
        if not (found := self._take(partitions)):
            self._arrived.clear()
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._arrived.wait()
            except TimeoutError:
                return ()
            found = self._take(partitions)
        return found

    def _take(self, partitions: Collection[int]) -> list[Record]:
        found: list[Record] = []
        for number in partitions:
            if number in self._positions:
                start = self._positions[number]
                fresh = [record for record in self.records[number] if record.offset >= start]
                if fresh:
                    self._positions[number] = fresh[-1].offset + 1
                    found += fresh
        return found

    async def rewind(self, partitions: Collection[int]) -> Mapping[int, Commit]:
        await asyncio.sleep(0)
        ours = [number for number in partitions if number in self._positions]
        starts = {number: self.committed.get(number, Commit(0)) for number in ours}
        self._positions |= {number: start.next_offset for number, start in starts.items()}
        self._arrived.set()
        return starts

    async def commit(self, commits: Mapping[int, Commit]) -> None:
        if self.on_commit is not None:
            await self.on_commit()
        self.commits.append(dict(commits))
        self.committed |= commits

    def pause(self, partition: int) -> None:
        return

    def reached(self) -> Mapping[int, int]:
        return {
            number: max(position, self.gaps.get(number, 0))
            for number, position in self._positions.items()
            if not self.records[number] or self.records[number][-1].offset < position
        }

    def partitions(self) -> int:
        return self.of_topic

    async def end_offsets(self) -> Mapping[int, int]:
        return {
            number: max(log[-1].offset + 1 if log else 0, self.gaps.get(number, 0))
            for number, log in self.records.items()
            if number in self._positions
        }

    async def stop(self) -> None:
        self._positions.clear()


@dataclass(slots=True)
class _MemoryBody:
    """A body in chunks; `fault` is raised after some of them, once."""

    data: bytes
    chunk_bytes: int
    etag: str | None
    version_id: str | None
    fault: Exception | None
    fault_after_chunks: int

    @property
    def size(self) -> int:
        return len(self.data)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for number, start in enumerate(range(0, len(self.data), self.chunk_bytes), start=1):
            await asyncio.sleep(0)
            yield self.data[start : start + self.chunk_bytes]
            if self.fault is not None and number >= self.fault_after_chunks:
                fault, self.fault = self.fault, None
                raise fault

    async def aclose(self) -> None:
        return


class MemoryObjects:
    """Buckets as dictionaries. `on_open` may raise or wait before an object is opened; `faults` of
    an object are raised one per try, after `faulty_after_chunks`; `part_faults` one per part, None
    for a part that comes. `parts` are those that came, by key and length. What is put while it is
    `versioned` has a version id for good.
    """

    def __init__(self, *, chunk_bytes: int = 1 << 20) -> None:
        self.chunk_bytes = chunk_bytes
        self.versioned = False
        self.faulty_after_chunks = 1
        self.opened: list[Location] = []
        self.parts: list[tuple[str, int]] = []
        self.part_faults: deque[Exception | None] = deque()
        self.faults: dict[tuple[str, str], deque[Exception]] = defaultdict(deque)
        self.on_open: Callable[[Location], Awaitable[None]] | None = None
        self._data: dict[tuple[str, str], bytes] = {}
        self._revision: dict[tuple[str, str], int] = defaultdict(int)
        self._version_id: dict[tuple[str, str], str | None] = {}

    def put(self, bucket: str, key: str, data: bytes) -> str:
        """Store an object; its entity tag is returned."""
        self._data[bucket, key] = data
        self._revision[bucket, key] += 1
        revision = self._revision[bucket, key]
        self._version_id[bucket, key] = f"v{revision}" if self.versioned else None
        return self._etag(bucket, key)

    def delete(self, bucket: str, key: str) -> None:
        del self._data[bucket, key]

    def _etag(self, bucket: str, key: str) -> str:
        return f'"{self._revision[bucket, key]}"'

    async def open(self, location: Location) -> _MemoryBody:
        self.opened.append(location)
        if self.on_open is not None:
            await self.on_open(location)
        bucket, key = location.bucket, location.key
        if (bucket, key) not in self._data:
            raise Poison("not_found", f"there is no object {bucket}/{key}")
        etag = self._etag(bucket, key)
        wanted = location.etag if location.version_id is None else None
        if wanted is not None and wanted.strip('"') != etag.strip('"'):
            raise Poison("changed", f"{bucket}/{key} is no longer the version {location.etag}")
        faults = self.faults[bucket, key]
        fault = faults.popleft() if faults else None
        version_id = self._version_id[bucket, key]
        if location.version_id not in (None, version_id):
            raise Poison("changed", f"{bucket}/{key} has no version {location.version_id}")
        return _MemoryBody(
            self._data[bucket, key],
            self.chunk_bytes,
            etag,
            version_id,
            fault,
            self.faulty_after_chunks,
        )

    async def part(self, location: Location, start: int, stop: int | None = None) -> Part:
        body = await self.open(location)
        data = body.data[start:stop] if start >= 0 else body.data[start:]
        if body.data and not data:
            raise Poison("changed", f"{location.bucket}/{location.key} has no byte {start}")
        if self.part_faults and (fault := self.part_faults.popleft()) is not None:
            raise fault
        self.parts.append((location.key, len(data)))
        return Part(data, body.size, body.etag, body.version_id)

    async def list(self, bucket: str, pattern: str) -> AsyncIterator[Listed]:
        for (held, key), data in sorted(self._data.items()):
            if held == bucket and fnmatch.fnmatchcase(key, pattern):
                yield Listed(Location(bucket, key, None, self._etag(bucket, key)), len(data))

    async def aclose(self) -> None:
        return


Script = Callable[[Sequence[Payload]], Awaitable[Answers | None]]


@dataclass(slots=True)
class MemoryModel:
    """Answers each row with its own sum. `script` may wait, raise, or answer instead; None leaves
    it to the default.
    """

    script: Script | None = None
    calls: list[list[Payload]] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    version: str | None = None
    most_rows: int | None = None

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        self.calls.append(list(payloads))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            answers = await self.script(payloads) if self.script is not None else None
            await asyncio.sleep(0)
        finally:
            self.in_flight -= 1
        return answers if answers is not None else sums(payloads)

    async def ready(self) -> bool:
        return True

    async def aclose(self) -> None:
        return


def sums(payloads: Sequence[Payload]) -> Answers:
    """`{"sum": x}` per row of float32 payloads."""
    values: list[bytes] = []
    for payload in payloads:
        assert isinstance(payload, Matrix)
        values += [b'{"sum":%g}' % total for total in np.sum(payload.values, axis=1)]
    return Answers(values, {})


class MemorySink:
    """Output topics as lists. With `hold`, delivery reports wait for `deliver`."""

    def __init__(self, *, partitions: int = 4, record_bytes: int = 1_000_000) -> None:
        self.topics: dict[str, dict[int, list[tuple[bytes | None, bytes]]]] = defaultdict(
            lambda: defaultdict(list)
        )
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
        report: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.hold:
            self._reports.append(report)
        else:
            report.set_result(None)
        return report

    def fits(self, topic: str, key: bytes | None, value_bytes: int) -> bool:
        return value_bytes + len(key or b"") < self.record_bytes

    def deliver(self) -> int:
        """Send out all delivery reports that were held; how many."""
        count = len(self._reports)
        while self._reports:
            report = self._reports.popleft()
            if not report.done():  # nobody waits any more
                report.set_result(None)
        return count

    async def forget(self) -> None:
        self.forgotten += len(self._reports)
        self._reports.clear()

    async def stop(self) -> None:
        return
