"""How far may I commit? One account for each assignment of a partition.

Rule: the ledger tracks the records that arrived, never those that should have arrived, because
offsets have gaps. `next_offset` moves only when every object of a record is delivered. Records that
are delivered beyond `next_offset` are kept as ranges of offsets. A range may include offsets for
which no record exists, and records that name no object. Every position that the ledger gives out is
a `next_offset`: the record to read next. The next assignment knows only the content of a commit
(cursor.py); if a part of that content cannot be read, the rows of that part are repeated, never
left out.

The ledger says what is delivered, and the letters say at which records lines stopped; `Account` has
both, as the position to commit.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass

from penstock.core.progress.cursor import (
    MAX_CHARS,
    Commit,
    PartitionProgress,
    Position,
    most_chars,
    most_chars_of_one,
)
from penstock.core.progress.line_stop import LetterAccount, LineLimits, LineStop, Passing
from penstock.core.progress.order import Release
from penstock.core.rows.log_keys import of_place
from penstock.core.rows.origin import START, Cursor, Ranges, Where

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Entry:
    """A record that arrived, and how many of its objects are still owed. `begin`: the offset after
    the record that was opened before this one.
    """

    begin: int
    owed: int


class Ledger:
    """Call `open` in the order of arrival; call `reach` and `deliver` in any order. `progress` is
    safe to commit. `start`: the progress of former assignments.
    """

    def __init__(self, start: PartitionProgress) -> None:
        self._entries: dict[int, Entry] = {}
        # How many objects are not delivered yet.
        self.owed = 0
        self._seen_next = self._opened_next = start.next_offset
        # The offset after the last record of which a former assignment delivered anything.
        self.inherited_stop = start.stop
        self._completed = start.completed
        self._objects = start.objects
        self._rows = start.rows

    def __repr__(self) -> str:
        beyond = f", {len(self._completed.starts)} runs beyond" if self._completed else ""
        return (
            f"received up to {self._seen_next}, owed {self.owed}, "
            f"next_offset {self.next_offset}{beyond}"
        )

    @property
    def seen_next(self) -> int:
        """The offset after the last record that arrived."""
        return self._seen_next

    @property
    def next_offset(self) -> int:
        return next(iter(self._entries), self._seen_next)

    @property
    def progress(self) -> PartitionProgress:
        """What may be committed now, as a view that is valid until the ledger changes. Records that
        a former assignment completed are included, even before they are read again.
        """
        next_offset = self._completed.behind(self.next_offset)
        return PartitionProgress(next_offset, self._completed, self._objects, self._rows)

    def is_completed(self, offset: int) -> bool:
        """Did a former assignment deliver all of this record?"""
        return offset in self._completed

    def is_begun(self, offset: int) -> bool:
        """Did a former assignment deliver a part of this record?"""
        return offset in self._objects or any(offset == begun for begun, _ in self._rows)

    def is_delivered(self, offset: int, index: int) -> bool:
        return offset in self._objects and index in self._objects[offset]

    def cursor(self, offset: int, index: int) -> Cursor:
        """The row up to which this object is delivered."""
        return self._rows.get((offset, index), START)

    def open(self, offset: int, objects: int) -> None:
        """A record arrived that owes answers to this number of `objects`. A record that owes none
        (because it is ignored, or because a former assignment delivered it) is passed over like a
        gap.
        """
        if offset < self._seen_next:
            raise ValueError(f"offset {offset} arrived after next_offset {self._seen_next}")
        self._seen_next = offset + 1
        if objects:
            self._entries[offset] = Entry(self._opened_next, objects)
            self._opened_next = offset + 1
            self.owed += objects

    def pass_over(self, offset: int) -> None:
        """No more records come before `offset`: the offsets between the last record that arrived
        and `offset` are a gap.
        """
        if offset > self._seen_next:
            self._seen_next = offset
            if not self._entries and (self._completed.starts or self._rows or self._objects):
                self._forget_passed()

    def reach(self, offset: int, index: int, cursor: Cursor) -> None:
        """Rows of an incomplete object are on the output topic, up to the cursor."""
        if cursor.version:
            self._rows[offset, index] = cursor

    def deliver(self, offset: int, index: int) -> None:
        """All answers of an object are on the output topic."""
        entry = self._entries.get(offset)
        if entry is None or self.is_delivered(offset, index):
            raise ValueError(f"object {index} of offset {offset} was delivered more than once")
        entry.owed -= 1
        self.owed -= 1
        self._rows.pop((offset, index), None)
        if entry.owed:
            self._objects.setdefault(offset, Ranges()).add(index, index + 1)
            return
        is_head = next(iter(self._entries)) == offset
        del self._entries[offset]
        self._objects.pop(offset, None)
        if not is_head:
            self._completed.add(entry.begin, offset + 1)
        elif self._completed.starts or self._rows or self._objects:
            self._forget_passed()

    def _forget_passed(self) -> None:
        """Drop the marks before the next offset. Usually the delivery of a record drops the
        record's marks, but a record that no longer exists in the topic is never delivered.
        """
        next_offset = self.next_offset
        self._completed.drop_below(next_offset)
        for begun in [begun for begun in self._rows if begun[0] < next_offset]:
            del self._rows[begun]
        for offset in [offset for offset in self._objects if offset < next_offset]:
            del self._objects[offset]

    def spare_marks(self) -> int:
        """The metadata has room for at least this many more deliveries beyond the first owed
        object.
        """
        span = self._span(self._seen_next)
        free = MAX_CHARS - self._most_chars(span)
        return max(0, free // most_chars_of_one(span))

    def has_room_for(self, offset: int | None) -> bool:
        """May a record at `offset` (None: the next one) be opened? The metadata must have room even
        in the worst case: every second owed record is completed, which takes the most marks.
        """
        if not self._entries:
            return True
        stop = self._seen_next if offset is None else offset
        records = len(self._entries) + 1
        return self._most_chars(self._span(stop + 1), records, self.owed) <= MAX_CHARS

    def _most_chars(self, span: int, records: int = 0, owed: int = 0) -> int:
        return most_chars(
            span,
            runs=max(records, len(self._completed.starts)),
            objects=sum(len(ranges.starts) for ranges in self._objects.values())
            + max(0, owed - records),
            rows=len(self._rows),
        )

    def _span(self, stop: int) -> int:
        return max(stop, self._completed.stop, self.inherited_stop) - self.next_offset


class Account:
    """`committed`: the position that Kafka has. If the lane ended now, the next assignment would
    begin there. `limits`: how many dead letters stop a line. `passing`: the records whose dead
    letters an operator lets pass, so that these letters stop no line.
    """

    def __init__(
        self, where: Where, start: Commit, limits: LineLimits, passing: Collection[Passing]
    ) -> None:
        self.committed = start
        begin = Position.of(start)
        if not begin.is_whole:
            log.warning(
                "%s: not all of the commit's metadata could be read (%.40r); rows that "
                "only the rest marks as delivered are answered again",
                where,
                start.metadata,
                extra=of_place(where, start.next_offset),
            )
        self.ledger = Ledger(begin.progress)
        self.letters = LetterAccount(limits, begin.stopped_under(limits.digest), passing)
        self.stops: dict[str, LineStop] = {}
        self._digest = limits.digest

    @property
    def progress(self) -> Commit:
        """The position to commit now. It says which record is next, and what is delivered of that
        record and beyond it.
        """
        stopped_at = self.letters.stopped_at.union(stop.offset for stop in self.stops.values())
        return Position(self.ledger.progress, tuple(stopped_at), self._digest).commit

    def was_left_at(self, start: Commit) -> bool:
        """The group says at which position the partition begins. May the lane go on there?

        Only if that position is the lane's own last commit, and this commit covers all that was
        delivered. Suppose a commit failed, or did not count because the member was expelled. Then
        another member may meanwhile have begun to publish the delivered answers again. If the lane
        went on from its own position, readers would never get the rest of these repeated answers.
        """
        return start == self.committed == self.progress

    def deliver(self, release: Release) -> None:
        ticket = release.ticket
        offset = ticket.record.offset
        if release.finished:
            self.ledger.deliver(offset, ticket.index)
            ticket.forget()
        else:
            last = release.blocks[-1]
            # After a restart a result object is written again from its first row, although some of
            # its rows are already published. These rows must not move the cursor back.
            row = max(last.first_row + last.rows, ticket.published_rows)
            cursor = Cursor(row, ticket.digest)
            self.ledger.reach(offset, ticket.index, cursor)
