"""Records of several partitions in the order of time.

Rule: a partition that is known to have more is waited for, briefly, before later records of others
go on: a backlog is read partition by partition, and in event time the partitions read first would
close scenes before members of the others came. Live, no record waits. No I/O. Owner: the line.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from heapq import merge
from operator import attrgetter

from penstock.ports import Record

# Of a partition; more of it is not read before others have caught up.
MOST_WAITING = 1_000
# A broker that answers at all sends what it has much sooner.
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
        """Of which partitions more may be read."""
        return [each for each in partitions if len(self._waiting.get(each, ())) < MOST_WAITING]

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            self._waiting.setdefault(record.partition, deque()).append(record)

    def take(
        self, reached: Mapping[int, int], ends: Mapping[int, int], now_s: float
    ) -> list[Record]:
        """As many as are in order. `reached`: where the next read of each partition begins; `ends`:
        behind its last record, as far as is known.
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
    """Up to the last record of the first partition that has more."""
    left = {each: len(queue) for each, queue in queues.items()}
    taken = []
    for record in merge(*queues.values(), key=_time):
        taken.append(record)
        left[record.partition] -= 1
        if not left[record.partition] and record.partition in more:
            break
    return taken
