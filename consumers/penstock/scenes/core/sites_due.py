"""Which sites must be looked at, and when.

Rule: a site is due once, at the earliest of the times with which it was put. The cost of `take`
depends on the number of sites that are due, not on the number that wait. Owner: the ledger.
"""

from heapq import heappop, heappush


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
        found = []
        while self._heap and self._heap[0][0] <= now:
            at, name = heappop(self._heap)
            if self._at.get(name) == at:
                del self._at[name]
                found.append(name)
        return found

    def clear(self) -> None:
        self._heap.clear()
        self._at.clear()
