"""Checks that a run of repeats has no gaps. A worker that takes over may begin at any row, but must
leave out no later row.

Rule: records do not name their worker, so each run of repeats is judged by itself. An interrupted
run may go on later, because a worker that the group has removed as dead may still have a batch on
the way. Owner: `output_topic`, with a `Runs` for each sequence.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from penstock.core.progress.ranges import END
from penstock.verify.input_topic import Asked
from penstock.verify.repeats import ObjectAt, row_text
from penstock.verify.scope import Scope

# How many interrupted runs are remembered. More than two owners of a partition repeat at the same
# time only if workers die faster than their sessions end.
MAX_BROKEN_OFF = 8


class Again(NamedTuple):
    """A repeated record. `ends`: True if it is the last record of its object."""

    at: ObjectAt
    row: int
    ends: bool


LeftOut = Callable[[Again, Again], str | None]


class Runs:
    """The runs of repeats of one partition, or of one stream of it."""

    def __init__(self) -> None:
        self._last: Again | None = None
        self._broken_off: deque[Again] = deque(maxlen=MAX_BROKEN_OFF)

    def break_off(self) -> None:
        """Interrupt the current run, because a record came that does not continue it."""
        if self._last is not None:
            self._broken_off.append(self._last)
            self._last = None

    def go_on(self, again: Again, left_out: LeftOut) -> str | None:
        """Add a repeat. Returns a text that names what is left out before the repeat. None: the
        repeat follows the last repeat of the current run or of an interrupted run, or begins a new
        run.
        """
        last = self._last
        wrong = left_out(last, again) if last is not None and last < again else None
        if last is not None and (wrong or again <= last):
            self.break_off()
        self._last = again
        if not wrong:
            return None
        for run in self._broken_off:
            if run < again and not left_out(run, again):
                self._broken_off.remove(run)
                return None
        return wrong


class Between:
    """Finds the rows and objects that were asked for between two repeats."""

    def __init__(self, asked: Mapping[int, Asked], scope: Scope) -> None:
        self._asked = asked
        self._scope = scope

    def left_out(self, before: Again, again: Again) -> str | None:
        at, row = again.at, again.row
        rows = self._asked[at.partition].at(at.offset)[at.object_index].rows
        first = before.row + 1 if before.at == at else 0
        if row < END and (missing := rows.within(first, row)):
            return f"row {missing}"
        if before.at == at or not self._scope.markers:
            return None  # without markers there may be no record that ends an object
        if not before.ends:
            return f"what follows {row_text(before.row)} of offset {before.at.offset}"
        between = None if self._scope.by_stream else self._after(before.at)
        if between is not None and between < at:
            return f"object {between.object_index} of offset {between.offset}"
        return None

    def _after(self, at: ObjectAt) -> ObjectAt | None:
        """The next object that is asked for."""
        asked = self._asked[at.partition]
        wanted = asked.at(at.offset)
        for index in range(at.object_index + 1, len(wanted)):
            if wanted[index].is_ours:
                return at._replace(object_index=index)
        offset = asked.after(at.offset)
        if offset is None:
            return None
        first = next(n for n, want in enumerate(asked.at(offset)) if want.is_ours)
        return ObjectAt(at.partition, offset, first)
