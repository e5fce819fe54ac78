"""Merges records of several partitions in the order of time, and tells which records come late.

Rule: a backlog is read partition by partition, so the records of the partitions that are read first
would overtake the others. Therefore, if a partition is known to have more records, later records of
other partitions wait for it briefly. Without a backlog no record waits. Within a partition the
order never changes, whatever the times say. No I/O.
"""

import sys
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Mapping
from heapq import merge
from itertools import takewhile
from operator import attrgetter

from penstock.core.rows.origin import Record, Where

# This many records and bytes of one partition may wait; then the partition is not read until the
# others have caught up. One read may exceed these limits.
MOST_WAITING = 1_000
MOST_BYTES = 4 << 20


_time = attrgetter("timestamp_ms")


class Merge:
    """`patience_s`: how long records wait for a partition that has more records but does not
    deliver them.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._waiting: dict[Where, deque[Record]] = {}
        self._bytes: dict[Where, int] = {}
        # For each partition that has more records but none waiting here: since when none waits.
        self._silent_s: dict[Where, float] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def clear(self) -> None:
        self._waiting.clear()
        self._bytes.clear()
        self._silent_s.clear()

    def room(self, partitions: Collection[Where]) -> list[Where]:
        """The partitions that still have room for more records, and so may be read further."""
        return [
            each
            for each in partitions
            if len(self._waiting.get(each, ())) < MOST_WAITING
            and self._bytes.get(each, 0) < MOST_BYTES
        ]

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            where = record.where
            self._waiting.setdefault(where, deque()).append(record)
            self._bytes[where] = self._bytes.get(where, 0) + len(record.value or b"")

    def is_empty(self, where: Where) -> bool:
        return not self._waiting.get(where)

    def take(
        self, reached: Mapping[Where, int], ends: Mapping[Where, int], now_s: float
    ) -> list[Record]:
        """Take the records whose place in the order is certain by now. `reached`: for each
        partition, the next offset to read; `ends`: for each partition, the offset after its last
        record, if it is known. All `ends` are of one moment: records from these offsets on were
        read later, so earlier ones of other partitions may still be missing.
        """
        queues = {
            each: certain
            for each, queue in self._waiting.items()
            if (certain := _before(queue, ends.get(each, sys.maxsize)))
        }
        more = {each for each, end in ends.items() if reached.get(each, end) < end}
        if not queues:
            return []
        self._silent_s = {each: self._silent_s.get(each, now_s) for each in more - queues.keys()}
        if any(now_s - since_s < self._patience_s for since_s in self._silent_s.values()):
            return []
        taken = _in_order(queues, more)
        for record in taken:
            self._waiting[record.where].popleft()
            self._bytes[record.where] -= len(record.value or b"")
        return taken


def _before(queue: deque[Record], end: int) -> Collection[Record]:
    if not queue or queue[-1].offset < end:
        return queue
    return list(takewhile(lambda record: record.offset < end, queue))


def _in_order(queues: Mapping[Where, Collection[Record]], more: Collection[Where]) -> list[Record]:
    """The waiting records in order. They end where a partition has no more records waiting although
    more are known to come. At most as many records are returned as one partition may have waiting.
    """
    left = {each: len(queue) for each, queue in queues.items()}
    taken: list[Record] = []
    nbytes = 0
    for record in merge(*queues.values(), key=_time):
        taken.append(record)
        left[record.where] -= 1
        nbytes += len(record.value or b"")
        is_enough = len(taken) >= MOST_WAITING or nbytes >= MOST_BYTES
        if is_enough or (not left[record.where] and record.where in more):
            break
    return taken


class Latest:
    """Finds the records that come after a later record of their own stream. Only the last `most`
    streams are remembered, because senders can invent any number of names. A stream that was
    forgotten begins anew.
    """

    def __init__(self, most: int = 100_000) -> None:
        self._most = most
        self._times: OrderedDict[bytes, int] = OrderedDict()

    def is_late(self, stream: bytes, at_ms: int) -> bool:
        """Note the time of the stream's next record. True: the stream had a record with a later
        time before.
        """
        last_ms = self._times.get(stream, at_ms)
        self._times[stream] = max(last_ms, at_ms)
        self._times.move_to_end(stream)
        if len(self._times) > self._most:
            self._times.popitem(last=False)
        return at_ms < last_ms
