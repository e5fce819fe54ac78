"""The commit from which a life starts, and the rows that the life may skip because of it.

Rule: a life may skip rows only by a cursor that fits what the life reads now: this object, this
version, and row options that give the same rows. Owner: the checks of one life.
"""

from collections.abc import Collection
from dataclasses import dataclass

from penstock.core.progress import cursor
from penstock.core.progress.cursor import Cursor, Progress
from penstock.ports import Commit
from penstock.tools.simulation.checks.partition_log import Number, PartitionLog
from penstock.tools.simulation.checks.truth import Truth, Truths


@dataclass(frozen=True, slots=True)
class Terms:
    """`truths`: how a worker reads objects. All others: the worker's optional promises.
    `from_first_row`: True if rows are only in result objects, because these are always written from
    the first row on.
    """

    truths: Truths
    by_stream: bool = False
    exactly_once: bool = False
    dedupe: bool = False
    markers: bool = True
    from_first_row: bool = False


class Inherited:
    def __init__(self, log: PartitionLog, start: Commit, terms: Terms) -> None:
        self._log = log
        self._terms = terms
        self._progress, _ = claimed(start)

    def is_done(self, number: Number) -> bool:
        """True if the commit says that all of this object was delivered."""
        offset, before = self._log.records[number[0]].offset, self._progress
        place = self._log.asked(number).place
        return offset in before.completed or place in before.objects.get(offset, ())

    def cursor(self, number: Number) -> Cursor:
        offset, place = self._log.records[number[0]].offset, self._log.asked(number).place
        return self._progress.rows.get((offset, place), cursor.START)

    def truth(self, number: Number, version: str | None) -> Truth | None:
        log = self._log
        return self._terms.truths.of(log.asked(number), log.records[number[0]], version)

    def begins(self, number: Number, version: str | None, row: int | None) -> int:
        """The row at which this life must begin the object. `row`: the first row of the object that
        this life has published.
        """
        allowed = self._may_begin(number, version)
        if len(allowed) > 1:
            truth = self.truth(number, version)
            first = truth.next(0) if truth else None
            is_first = truth and first is not None and row == truth.numbers[first]
            return 0 if is_first else max(allowed)
        return max(allowed)

    def _may_begin(self, number: Number, version: str | None) -> set[int]:
        """The rows at which the life may begin. If row options have changed but give the same rows
        so far, the life may begin at the cursor or at the first row. If the object can no longer be
        read, no version contradicts the cursor, so the life must begin at the cursor.
        """
        log, asked, ours = self._log, self._log.asked(number), self._terms.truths
        at = self.cursor(number)
        is_read = version is not None or asked.inline is not None
        if not at.row or not is_read:
            return {at.row}
        if self._terms.from_first_row:
            return {0}
        made = log.bound(number, at.version)
        if made is None or made.version != version:
            return {0}
        if made.truths is ours:
            return {at.row}
        record = log.records[number[0]]
        pair = [truths.of(asked, record, version) for truths in (ours, made.truths)]
        rows = [truth.below(at.row) if truth else None for truth in pair]
        return {0, at.row} if rows[0] is not None and rows[0] == rows[1] else {0}

    def may_be_silent(
        self, number: Number, before: tuple[str | None, int] | None, *, is_written: bool
    ) -> bool:
        """True if the object may end without a record that says so. Only a deployment without
        markers allows this. With `is_written`, an object that failed may end in this way only if
        its dead letter was delivered. `before`: the version of the object, and how many of its rows
        this life has published; None: it has published no row.
        """
        if self._terms.markers:
            return False
        log, asked = self._log, self._log.asked(number)
        versions: Collection[str | None] = (None,)
        rows: Collection[int] = (0, self.cursor(number).row)
        if before is not None:
            versions, rows = (before[0],), (before[1],)
        elif asked.reference:
            versions = self._terms.truths.versions(asked.name)
        ends = [
            truth.failure
            for version in versions
            if (truth := self.truth(number, version)) is not None
            and any(truth.next(row) is None for row in rows)
        ]
        if None in ends:
            return True
        if not is_written:
            return bool(ends) or asked.reference is None or bool(log.unsteady.get(asked.name))
        place = (log.records[number[0]].offset, asked.key, None)
        written = [
            letter.code
            for letter in log.letters
            if letter[:3] == place and asked.model in (None, letter.model)
        ]
        return any(code in ends or log.may_fail(asked, code) for code in written)


def claimed(commit: Commit) -> tuple[Progress, bool]:
    """Returns two things: the progress that a commit claims, and whether all of its metadata could
    be read.
    """
    metadata, _ = cursor.without_stop(commit.metadata)
    return cursor.decode(metadata, commit.next_offset)
