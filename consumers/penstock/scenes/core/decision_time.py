"""The time by which a worker decides: which sites are due, and a clock that stops while the worker
is behind.

Rule: a site is due once, at the earliest of the times that were `put`. A worker is behind if the
records of a partition are old when they are handled, and more follow. The second alone proves
nothing: a few are always on their way, and the last offset may be the mark of a transaction.
"""

from collections.abc import Callable, Hashable, Mapping
from heapq import heappop, heappush
from typing import Generic, TypeVar

from penstock.scenes.core.rules import BEHIND_MS


class Due:
    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._at: dict[str, int] = {}

    def put(self, name: str, at: int) -> None:
        """Note when the site is due. A time later than the noted one is ignored, because the caller
        puts each site again after `take`.
        """
        if name not in self._at or at < self._at[name]:
            self._at[name] = at
            heappush(self._heap, (at, name))

    def take(self, now: int) -> list[str]:
        """Remove and return the sites that are due."""
        names = []
        while self._heap and self._heap[0][0] <= now:
            at, name = heappop(self._heap)
            if self._at.get(name) == at:
                del self._at[name]
                names.append(name)
        return names

    def clear(self) -> None:
        self._heap.clear()
        self._at.clear()


Part = TypeVar("Part", bound=Hashable)


class Behind(Generic[Part]):
    """Decides whether the worker is behind. After records were handled, call `handled` with the
    last record of each partition.
    """

    def __init__(self) -> None:
        # For each partition three values of its last handled record: the offset after the record,
        # the time at which Kafka got the record, and the time at which it was handled.
        self._handled: dict[Part, tuple[int, int, int]] = {}

    def handled(self, where: Part, offset: int, came_ms: int, now_ms: int) -> None:
        self._handled[where] = offset + 1, came_ms, now_ms

    def forget(self) -> None:
        self._handled.clear()

    def is_behind(self, ends: Mapping[Part, int], now_ms: int) -> bool:
        """True if the worker is behind. `ends`: for each partition, the offset after its last
        record. Partitions whose end is not known are left out.
        """
        since = now_ms - BEHIND_MS
        return any(
            came < since < handled_at and offset < ends.get(where, 0)
            for where, (offset, came, handled_at) in self._handled.items()
        )


class WaitingClock:
    """A clock that stands still while there is a backlog. During a backlog, predictions wait in
    Kafka because this worker is late, so the members that sent them must not count as late.
    `now_ms`: a function that reads a clock. The clock must never jump, as the system's clock does.
    """

    def __init__(self, now_ms: Callable[[], int], is_behind: Callable[[], bool]) -> None:
        self._now_ms = now_ms
        self._is_behind = is_behind
        self._stood_still = 0
        self._last = now_ms()

    def now(self) -> int:
        now = self._now_ms()
        if self._is_behind():
            self._stood_still += max(0, now - self._last)
        self._last = now
        return now - self._stood_still
