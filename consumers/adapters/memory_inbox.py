"""A reader of partitions in memory: where it stands in each, and its wait for more.

Rule: a poll returns at once with what is there, else with the first that arrives, else with nothing
when its time is over, as a consumer's does. Owner: the source in memory, or the simulation's.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from consumers.ports import Commit, Record

# From a position of a partition on: the records, and the position behind them.
Read = Callable[[int, int], tuple[Sequence[Record], int]]


class Inbox:
    """`arrived` is set where something was written; partitions without a position are not read."""

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
    """The position after reading the records from `position` on."""
    return records[-1].offset + 1 if records else position
