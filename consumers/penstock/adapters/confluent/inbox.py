"""Holds records that librdkafka has handed over and the pipeline has not asked for yet.

Rule: librdkafka hands over records of any partition, but the pipeline asks for some partitions
only. The records of the other partitions wait here. A partition is paused while many of its records
wait, so the memory is bounded. Each record is given out once and in order. Owner: the source.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping

from penstock.ports import Commit, Record

# A partition is paused when this many of its records, or this many bytes, wait. The number of
# records is what one poll gives; the number of bytes is what aiokafka would hold of a partition.
CROWD_RECORDS = 500
CROWD_BYTES = 1 << 20


class _Waiting:
    """The waiting records of one partition. `next_offset`: the offset after the last record that
    came. `end`: the end of the log, as librdkafka reported it. If the last offsets of the log have
    markers of transactions and no records, `end` is higher than `next_offset`.
    """

    __slots__ = ("end", "nbytes", "next_offset", "records")

    def __init__(self, start: int) -> None:
        self.records: deque[Record] = deque()
        self.nbytes = 0
        self.next_offset = start
        self.end = start


class Inbox:
    def __init__(self) -> None:
        self._waiting: dict[int, _Waiting] = {}

    def clear(self) -> None:
        """Forget all partitions. Call this when none is assigned to us any more."""
        self._waiting.clear()

    def forget(self, partitions: Iterable[int]) -> None:
        """Forget these partitions, because they were revoked."""
        for partition in partitions:
            self._waiting.pop(partition, None)

    def begin(self, starts: Mapping[int, Commit]) -> None:
        """Start these partitions at new positions, and drop the records that wait for them."""
        for partition, start in starts.items():
            self._waiting[partition] = _Waiting(start.next_offset)

    def put(self, record: Record) -> None:
        """Add a record. If its partition was revoked, or the record has come before, do nothing."""
        waiting = self._waiting.get(record.partition)
        if waiting is not None and record.offset >= waiting.next_offset:
            waiting.next_offset = record.offset + 1
            waiting.records.append(record)
            waiting.nbytes += len(record.value or b"")

    def ends(self, partition: int, offset: int) -> None:
        """Note that every record before `offset` has come."""
        waiting = self._waiting.get(partition)
        if waiting is not None:
            waiting.end = max(waiting.end, offset)

    def take(self, partitions: Iterable[int], most: int) -> list[Record]:
        """Give out up to `most` waiting records of these partitions. The records of one partition
        are in order.
        """
        taken: list[Record] = []
        for partition in partitions:
            waiting = self._waiting.get(partition)
            if waiting is None or not waiting.records:
                continue
            if len(taken) + len(waiting.records) <= most:
                taken += waiting.records
                waiting.records.clear()
                waiting.nbytes = 0
            while waiting.records and len(taken) < most:
                taken.append(waiting.records.popleft())
                waiting.nbytes -= len(taken[-1].value or b"")
        return taken

    def crowded(self, wanted: Collection[int]) -> set[int]:
        """The partitions that must be paused, because many of their records wait and they are not
        in `wanted`.
        """
        return {
            partition
            for partition, waiting in self._waiting.items()
            if partition not in wanted
            and (len(waiting.records) >= CROWD_RECORDS or waiting.nbytes >= CROWD_BYTES)
        }

    def has_any(self, partition: int) -> bool:
        waiting = self._waiting.get(partition)
        return waiting is not None and bool(waiting.records)

    def read_up_to(self) -> dict[int, int]:
        """For each partition: the offset at which reading goes on. The partitions are copied in one
        step, because the thread of the reads also calls this, and the event loop may change the
        partitions meanwhile.
        """
        waiting = list(self._waiting.items())
        return {partition: each.next_offset for partition, each in waiting}

    def given_up_to(self) -> dict[int, int]:
        """For each partition: the offset up to which all records were given out."""
        return {
            partition: (
                waiting.records[0].offset
                if waiting.records
                else max(waiting.next_offset, waiting.end)
            )
            for partition, waiting in self._waiting.items()
        }
