"""Which streams go before others, and whose turn is it among those that go apart?

Rule: a weight is a stream's share where not all fit: of batches and of the model's time, of the
turns of fetchers, of decoders; it changes no order within a partition or stream. `backlog`: all
rows of the stream give way to live ones, as rows far inside huge objects do. `live`: none of its
rows does, not even those. The first entry that matches a stream holds. Pure.

Each stream that goes apart, and all others together, has a time from which its next turn counts
(start-time fair queueing). A turn moves that of a stream on by the time that it takes, and that of
the others by the same for each of their streams. A stream that was away has saved nothing.
"""

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

Class = Literal["live", "backlog"]
# So many streams are remembered with their priority.
MOST_KNOWN: Final = 10_000


class StreamPriority(NamedTuple):
    """`kind`: None: of a huge object, the rows far inside are backlog."""

    weight: int = 1
    kind: Class | None = None


USUAL: Final = StreamPriority()
ALL_BACKLOG: Final = (("*", StreamPriority(kind="backlog")),)


class Priorities:
    """`entries`: globs of streams, and what holds for those that match."""

    def __init__(self, entries: Sequence[tuple[str, StreamPriority]]) -> None:
        self._entries = [
            (re.compile(fnmatch.translate(glob)), priority) for glob, priority in entries
        ]
        self._known: dict[str, StreamPriority] = {}
        self.is_all_backlog = tuple(entries) == ALL_BACKLOG
        self.has_backlog = any(priority.kind == "backlog" for _, priority in entries)

    def of(self, stream: str) -> StreamPriority:
        priority = self._known.get(stream)
        if priority is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            matching = (priority for glob, priority in self._entries if glob.match(stream))
            priority = self._known[stream] = next(matching, USUAL)
        return priority

    def gives_way(self, stream: str) -> bool:
        """The stream is backlog beside live ones of the same worker."""
        return self.of(stream).kind == "backlog" and not self.is_all_backlog


def weights(priorities: Priorities | None) -> Callable[[str], int]:
    """For each stream its weight."""
    if priorities is None:
        return lambda stream: 1
    return lambda stream: priorities.of(stream).weight


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
