"""What is to be looked at, and when.

Rule: a name is due at the earliest time that it was put at, and once for it; to look costs what is
due, however many names wait. Owner: the ledger.
"""

from heapq import heappop, heappush


class Due:
    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._at: dict[str, int] = {}

    def put(self, name: str, at: int) -> None:
        """A later time than the one it waits for changes nothing: it is put again when taken."""
        if name not in self._at or at < self._at[name]:
            self._at[name] = at
            heappush(self._heap, (at, name))

    def take(self, now: int) -> list[str]:
        """Those that are due, which wait no more."""
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
