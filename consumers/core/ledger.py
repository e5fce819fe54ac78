"""How far may I commit? One account per assignment of a partition.

Rule: it tracks the records that arrived, never what should have arrived (offsets have gaps), and
the answer moves only when every object of a record is delivered. Everything that leaves is a
`next_offset`: the record to read next. Owner: the lane.
"""

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class Entry:
    """A record and how many of its objects are still owed."""

    offset: int
    owed: int


class Ledger:
    """`open` in arrival order, `deliver` in any order, `next_offset` is what is safe to commit."""

    def __init__(self, next_offset: int) -> None:
        self._start = next_offset
        self._entries: deque[Entry] = deque()
        self._by_offset: dict[int, Entry] = {}
        self._owed = 0
        self._seen_next = next_offset

    def __repr__(self) -> str:
        return (
            f"received up to {self._seen_next}, owed {self._owed}, next_offset {self.next_offset}"
        )

    @property
    def owed(self) -> int:
        """Objects that are not delivered yet."""
        return self._owed

    @property
    def next_offset(self) -> int:
        return self._entries[0].offset if self._entries else self._seen_next

    def open(self, offset: int, objects: int) -> None:
        """A record arrived; `objects` may be 0: a record that needs no answer is delivered at
        once.
        """
        if offset < self._seen_next:
            raise ValueError(f"offset {offset} arrived after next_offset {self._seen_next}")
        self._seen_next = offset + 1
        if objects or self._entries:
            entry = Entry(offset, objects)
            self._entries.append(entry)
            self._by_offset[offset] = entry
            self._owed += objects

    def deliver(self, offset: int) -> None:
        """One object of this record is on the output topic."""
        entry = self._by_offset[offset]
        if entry.owed <= 0:
            raise ValueError(f"offset {offset} was delivered more often than it has objects")
        entry.owed -= 1
        self._owed -= 1
        while self._entries and self._entries[0].owed == 0:
            del self._by_offset[self._entries.popleft().offset]
