"""Topics in memory, for tests and simulations.

Rule: the sink keeps the real one's promises. It delays only delivery reports, and only if the test
holds them back.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from penstock.errors import Fatal
from penstock.ports import HEADERS_BYTES, Commit, Headers, Outgoing, Record, Where, header_bytes


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
        if not (records := self._take(partitions)):
            self.arrived.clear()
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self.arrived.wait()
            except TimeoutError:
                return ()
            records = self._take(partitions)
        return records

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
