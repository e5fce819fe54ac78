"""Reads partitions in memory: keeps a position in each, and waits for more records.

Rule: a poll returns at once if there are records. Otherwise it returns when the first record
arrives, or without records when the time of the poll is over. Owner: the source in memory, or the
source of a simulation.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from penstock.ports import Commit, Record

# Takes a partition and a position; returns the records from there on and the position after them.
Read = Callable[[int, int], tuple[Sequence[Record], int]]


class PartitionReader:
    """The owner sets `arrived` after it has written a record. Partitions without a position are not
    read.
    """

    def __init__(self, read: Read) -> None:
        self.positions: dict[int, int] = {}
        self.arrived = asyncio.Event()
        self._read = read

    def go_to(self, starts: Mapping[int, Commit]) -> None:
        self.positions |= {number: start.next_offset for number, start in starts.items()}
        self.arrived.set()

    async def poll(self, partitions: Collection[int], wait_ms: int) -> Sequence[Record]:
        if not (found := self._take(partitions)):
            self.arrived.clear()
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self.arrived.wait()
            except TimeoutError:
                return ()
            found = self._take(partitions)
        return found

    def _take(self, partitions: Collection[int]) -> list[Record]:
        found: list[Record] = []
        for number in partitions:
            if number in self.positions:
                fresh, self.positions[number] = self._read(number, self.positions[number])
                found += fresh
        return found


def behind(records: Sequence[Record], position: int) -> int:
    """The position after these records, or `position` if there are no records."""
    return records[-1].offset + 1 if records else position
