"""Merges records of several partitions in the order of time.

Rule: if a partition is known to have more records, later records of other partitions wait for it
briefly. A backlog is read partition by partition, so without this wait the partitions read first
would close scenes, by event time, before members from the others came. Without a backlog no record
waits. No I/O. Owner: the line.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from heapq import merge
from operator import attrgetter

from penstock.ports import Record

# Bytes of one partition that may wait; then it is not read until others have caught up.
MOST_WAITING = 1_000
# A broker that answers at all sends its records much sooner.
PATIENCE_S = 1.0

_time = attrgetter("timestamp_ms")


class Merge:
    def __init__(self) -> None:
        self._waiting: dict[int, deque[Record]] = {}
        self._waits_since_s: float | None = None

    def clear(self) -> None:
        self._waiting.clear()
        self._waits_since_s = None

    def room(self, partitions: Collection[int]) -> list[int]:
        """The partitions of which more may be read."""
        return [each for each in partitions if len(self._waiting.get(each, ())) < MOST_WAITING]

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            self._waiting.setdefault(record.partition, deque()).append(record)

    def take(
        self, reached: Mapping[int, int], ends: Mapping[int, int], now_s: float
    ) -> list[Record]:
        """The records that are in order by now. `reached`: the next offset to read in each
        partition; `ends`: the offset after its last record, as far as it is known.
        """
        queues = {each: queue for each, queue in self._waiting.items() if queue}
        more = {each for each, end in ends.items() if reached.get(each, end) < end}
        if not queues:
            return []
        if more - queues.keys():
            if self._waits_since_s is None:
                self._waits_since_s = now_s
            if now_s - self._waits_since_s < PATIENCE_S:
                return []
        else:
            self._waits_since_s = None
        taken = _in_order(queues, more)
        for record in taken:
            queues[record.partition].popleft()
        return taken


def _in_order(queues: Mapping[int, Collection[Record]], more: Collection[int]) -> list[Record]:
    """The records up to the last one of the first partition that has more."""
    left = {each: len(queue) for each, queue in queues.items()}
    taken = []
    for record in merge(*queues.values(), key=_time):
        taken.append(record)
        left[record.partition] -= 1
        if not left[record.partition] and record.partition in more:
            break
    return taken
