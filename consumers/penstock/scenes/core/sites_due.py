"""Which sites must be looked at, and when.

Rule: a name is due once, at the earliest of the times it was put with. The cost of a look depends
on how many names are due, not on how many wait. Owner: the ledger.
"""

from heapq import heappop, heappush


class Due:
    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._at: dict[str, int] = {}

    def put(self, name: str, at: int) -> None:
        """Ignored if the name is due earlier already: after `take` the caller puts each
        name again.
        """
        if name not in self._at or at < self._at[name]:
            self._at[name] = at
            heappush(self._heap, (at, name))

    def take(self, now: int) -> list[str]:
        """Remove and return the names that are due."""
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
