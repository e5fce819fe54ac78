"""Whose turn is it among the streams that go apart, and all others together?

Rule: each has a time from which its next turn counts (start-time fair queueing). A turn moves that
of a stream on by the time that it takes, and that of the others by the same for each of their
streams. A stream that was away has saved nothing. Pure. Owner: the window.
"""

from collections.abc import Iterable, Mapping

# A stream, and whether these rows of it are backlog, which may be held back while other rows of the
# stream leave.
Key = tuple[str, bool]


class Turns:
    def __init__(self) -> None:
        self._now = 0.0
        self._shared = 0.0
        self._next: dict[Key, float] = {}

    def order(self, arrivals: Mapping[Key, float]) -> list[Key]:
        """The first in turn first; of equal ones, the one whose row is older. `arrivals`: when the
        oldest row of each came.
        """
        return sorted(arrivals, key=lambda key: (self._of(key), arrivals[key]))

    def is_first_apart(self, apart: Iterable[Key]) -> bool:
        return min(map(self._of, apart)) < max(self._now, self._shared)

    def took_shared(self, usual_rows: int, shares: int) -> None:
        self._now = max(self._now, self._shared)
        self._shared = self._now + usual_rows / shares

    def took_apart(self, key: Key, usual_rows: float) -> None:
        begin = self._of(key)
        # Those that were not served since count from now as well.
        self._next = {stream: next_ for stream, next_ in self._next.items() if next_ > begin}
        self._now, self._next[key] = begin, begin + usual_rows

    def _of(self, key: Key) -> float:
        return max(self._now, self._next.get(key, 0.0))
