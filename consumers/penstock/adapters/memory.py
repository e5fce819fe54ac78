"""Adapters without a service, for tests and simulations: buckets, result objects and topics in
memory. They pass the contract suite, and fail when told to.

Rule: the sink keeps the real one's promises. It delays only delivery reports, and only if the test
holds them back.
"""

import asyncio
import fnmatch
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from penstock.core.routing.store_choice import DEFAULT
from penstock.errors import Fatal, Poison
from penstock.ports import (
    HEADERS_BYTES,
    Commit,
    Headers,
    Listed,
    Location,
    Outgoing,
    Part,
    Record,
    Stored,
    Where,
    header_bytes,
)


@dataclass(slots=True)
class _MemoryBody:
    """A body in chunks. `fault` is raised once, after `fault_after_chunks` chunks."""

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
    """Buckets as dictionaries. Objects that are put while `versioned` is set have a version id.

    `on_open`: a function that is called before an object is opened; it may raise or wait. `faults`:
    a mapping from an object to the errors of the next tries to read it; each error is raised after
    `faulty_after_chunks` chunks. `part_faults`: the errors of the next parts that are read; None
    for a part without an error. `parts`: the key and the length of each part that was given out.
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
        """Store an object; returns its entity tag."""
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

    async def list(self, bucket: str, pattern: str, store: str = DEFAULT) -> AsyncIterator[Listed]:
        for (held, key), data in sorted(self._data.items()):
            if held == bucket and fnmatch.fnmatchcase(key, pattern):
                location = Location(bucket, key, None, self._etag(bucket, key), store)
                yield Listed(location, len(data))

    async def aclose(self) -> None:
        return


Name = tuple[str, str]


class MemoryResults:
    """`objects`: the complete results. `written`: every version that was ever completed. `begun`:
    the uploads that are not complete. `on_step`: a function that is called before each write and
    each completion; it may raise or wait.
    """

    def __init__(self) -> None:
        self.objects: dict[Name, bytes] = {}
        self.written: dict[tuple[str, str, str], bytes] = {}
        self.begun: dict[Name, MemoryUpload] = {}
        self.on_step: Callable[[Location], Awaitable[None]] | None = None

    def begin(self, location: Location) -> "MemoryUpload":
        upload = MemoryUpload(self, location)
        self.begun[location.bucket, location.key] = upload
        return upload

    async def has(self, location: Location) -> bool:
        return (location.bucket, location.key) in self.objects

    async def aclose(self) -> None:
        return


class MemoryUpload:
    """The upload of one result. If a name is uploaded several times, `MemoryResults.begun` has only
    the latest upload.
    """

    def __init__(self, results: MemoryResults, location: Location) -> None:
        self._results = results
        self._location = location
        self._name = (location.bucket, location.key)
        self._data: list[bytes] = []

    async def write(self, data: bytes) -> None:
        await self._step()
        self._data.append(data)

    async def complete(self) -> Stored:
        await self._step()
        results, name = self._results, self._name
        results.objects[name] = data = b"".join(self._data)
        version = f"v{len(results.written) + 1}"
        results.written[(*name, version)] = data
        self._forget()
        return Stored(version)

    async def abort(self) -> None:
        self._forget()

    async def _step(self) -> None:
        await asyncio.sleep(0)
        if self._results.on_step is not None:
            await self._results.on_step(self._location)

    def _forget(self) -> None:
        if self._results.begun.get(self._name) is self:
            del self._results.begun[self._name]


class MemorySink:
    """Output topics as lists. While `hold` is set, delivery reports wait for `deliver`."""

    def __init__(self, *, partitions: int = 4, record_bytes: int = 1_000_000) -> None:
        self.topics: dict[str, dict[int, list[tuple[bytes | None, bytes]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        # For each topic and each of its partitions: the headers of each record.
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
        self.append(outgoing)
        report: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.hold:
            self._reports.append(report)
        else:
            report.set_result(None)
        return report

    def append(self, outgoing: Outgoing) -> None:
        """What was sent is on its topic from now on."""
        headers = outgoing.headers or [[] for _ in outgoing.values]
        for key, value, own in zip(outgoing.keys, outgoing.values, headers, strict=True):
            if not self.fits(outgoing.topic, key, len(value)):
                raise Fatal(f"a record of {len(value)} bytes is larger than the topic takes")
            if header_bytes(own) > HEADERS_BYTES:
                raise Fatal(f"raise HEADERS_BYTES in ports/sink.py to {header_bytes(own)}: {own}")
        records = zip(outgoing.keys, outgoing.values, strict=True)
        self.topics[outgoing.topic][outgoing.partition] += records
        self.headers[outgoing.topic][outgoing.partition] += headers

    def fits(self, topic: str, key: bytes | None, value_bytes: int) -> bool:
        return value_bytes + len(key or b"") < self.record_bytes

    def deliver(self) -> int:
        """Send out all delivery reports that are held back. Returns their number."""
        count = len(self._reports)
        while self._reports:
            report = self._reports.popleft()
            if not report.done():  # it is done if its waiter was cancelled
                report.set_result(None)
        return count

    async def forget(self) -> None:
        self.forgotten += len(self._reports)
        self._reports.clear()

    async def stop(self) -> None:
        return


# A function that takes a partition and a position. Returns two things: the records from the
# position on; and the position after them.
Read = Callable[[Where, int], tuple[Sequence[Record], int]]


class PartitionReader:
    """Reads partitions, and keeps its position in each of them. Partitions without a position are
    not read.

    A poll returns at once if there are records. Otherwise it returns when the first record arrives,
    or without records when the time of the poll is over. The owner sets `arrived` after it has
    written a record.
    """

    def __init__(self, read: Read) -> None:
        self.positions: dict[Where, int] = {}
        self.arrived = asyncio.Event()
        self._read = read

    def go_to(self, starts: Mapping[Where, Commit]) -> None:
        self.positions |= {where: start.next_offset for where, start in starts.items()}
        self.arrived.set()

    async def poll(self, partitions: Collection[Where], wait_ms: int) -> Sequence[Record]:
        if not (records := self._take(partitions)) and await self._arrival(wait_ms / 1000):
            records = self._take(partitions)
        return records

    async def _arrival(self, wait_s: float) -> bool:
        """False: none came in this time."""
        loop = asyncio.get_running_loop()
        over_s = loop.time() + wait_s
        self.arrived.clear()
        # An idle hour has 72,000 polls. A timer that ends the wait itself takes a third of what
        # `asyncio.timeout` takes.
        timer = loop.call_at(over_s, self.arrived.set)
        try:
            await self.arrived.wait()
        finally:
            timer.cancel()
        return loop.time() < over_s

    def _take(self, partitions: Collection[Where]) -> list[Record]:
        records: list[Record] = []
        for where in partitions:
            if where in self.positions:
                fresh, self.positions[where] = self._read(where, self.positions[where])
                records += fresh
        return records


def behind(records: Sequence[Record], position: int) -> int:
    """The position after the last of these records. If there are no records, it is `position`."""
    return records[-1].offset + 1 if records else position
