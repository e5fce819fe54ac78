"""Which streams go before others?

Rule: a weight is a stream's share of batches, and of the model's time, where not all rows fit; it
changes no order within a stream. `backlog`: all rows of the stream give way to live ones, as rows
far inside huge objects do. `live`: none of its rows does, not even those. The first entry that
matches a stream holds. Pure.
"""

import fnmatch
import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

Class = Literal["live", "backlog"]
# So many streams are remembered with their priority.
MOST_KNOWN: Final = 10_000


class Priority(NamedTuple):
    """`kind`: None: of a huge object, the rows far inside are backlog."""

    weight: int = 1
    kind: Class | None = None


USUAL: Final = Priority()
ALL_BACKLOG: Final = (("*", Priority(kind="backlog")),)


class Priorities:
    """`entries`: globs of streams, and what holds for those that match."""

    def __init__(self, entries: Sequence[tuple[str, Priority]]) -> None:
        self._entries = [
            (re.compile(fnmatch.translate(glob)), priority) for glob, priority in entries
        ]
        self._known: dict[str, Priority] = {}
        self.is_all_backlog = tuple(entries) == ALL_BACKLOG

    def of(self, stream: str) -> Priority:
        priority = self._known.get(stream)
        if priority is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            matching = (priority for glob, priority in self._entries if glob.match(stream))
            priority = self._known[stream] = next(matching, USUAL)
        return priority
