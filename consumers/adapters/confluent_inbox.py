"""Records that librdkafka has handed over and the pipeline has not asked for yet.

Rule: librdkafka gives what it has of any partition, the pipeline asks for some; what it does not
ask for waits here, and a partition with much waiting is paused, so that it is bounded. No record
is given out twice, and none out of order. Owner: the source.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping

from consumers.ports import Commit, Record

# As many as a poll gives; and as many bytes as aiokafka holds of a partition.
CROWD_RECORDS = 500
CROWD_BYTES = 1 << 20


class _Waiting:
    """Of one partition; `next_offset` is behind all that came, `end` behind what is no record."""

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
        """Nothing is ours."""
        self._waiting.clear()

    def begin(self, starts: Mapping[int, Commit]) -> None:
        """These partitions are read from here on; what waits of them is dropped."""
        for partition, start in starts.items():
            self._waiting[partition] = _Waiting(start.next_offset)

    def put(self, record: Record) -> None:
        """Of a partition that has left, or that came before: dropped."""
        waiting = self._waiting.get(record.partition)
        if waiting is not None and record.offset >= waiting.next_offset:
            waiting.next_offset = record.offset + 1
            waiting.records.append(record)
            waiting.nbytes += len(record.value or b"")

    def ends(self, partition: int, offset: int) -> None:
        """There is no record before `offset` but those that came."""
        waiting = self._waiting.get(partition)
        if waiting is not None:
            waiting.end = max(waiting.end, offset)

    def take(self, partitions: Iterable[int], most: int) -> list[Record]:
        """What waits of these, in order each."""
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
        """Those that the caller does not ask for and of which enough waits."""
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
        """Where reading goes on, by partition."""
        return {partition: waiting.next_offset for partition, waiting in self._waiting.items()}

    def given_up_to(self) -> dict[int, int]:
        """All before was given out."""
        return {
            partition: (
                waiting.records[0].offset
                if waiting.records
                else max(waiting.next_offset, waiting.end)
            )
            for partition, waiting in self._waiting.items()
        }
