"""The input topic in memory: its records by partition, and the ends of the partitions.

Rule: each record is appended after all earlier ones of its partition; offsets may have gaps, even
after the last record. Owner: the simulation.
"""

import asyncio
from collections.abc import Callable

from penstock.ports import Record, Where


def _of_one_topic(number: int) -> Where:
    return Where("refs", number)


class Topic:
    """One topic, or several: `where` tells the topic of a partition. Each event in `readers` is set
    when a record is appended.
    """

    def __init__(self, partitions: int, where: Callable[[int], Where] = _of_one_topic) -> None:
        self.where = where
        self.records: list[list[Record]] = [[] for _ in range(partitions)]
        self._ends = [0] * partitions
        self.readers: list[asyncio.Event] = []

    def append(self, partition: int, key: bytes | None, value: bytes | None, gap: int) -> Record:
        log = self.records[partition]
        offset = gap + self._ends[partition]
        self._ends[partition] = offset + 1
        record = Record(partition, offset, key, value, 0)
        log.append(record)
        for reader in self.readers:
            reader.set()
        return record

    def grow(self) -> None:
        """Add one partition."""
        self.records.append([])
        self._ends.append(0)

    def leave_gap(self, partition: int) -> None:
        """Use up an offset without a record, as a producer's transaction does at its end."""
        self._ends[partition] += 1

    def end(self, partition: int) -> int:
        return self._ends[partition]
