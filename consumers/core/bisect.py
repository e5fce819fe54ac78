"""Finding the rows of one batch that cannot be answered: log2 extra requests each, not one per row.

Rule: of rows among which one must be bad, half is asked; if that is answered the bad one is in the
other half, which need not be asked to know it. A row is bad only when it was refused alone, or when
its object is sentenced (`suspects.py`). What was not asked yet is asked together again, as bad rows
are rare; once they are not, in groups of about one bad row. Pure. Owner: predict, one search per
batch, most of which end with one answer.
"""

from collections.abc import Sequence

from consumers.core.blocks import Block, Ticket
from consumers.core.deaths import Deaths
from consumers.core.runs import (
    alive,
    border_near_middle,
    border_of_sizes,
    leading,
    rows_of,
    rows_while,
    smallest_first,
)
from consumers.core.suspects import LOT, Suspicions

# Up to so many bad rows say nothing about the next ones: all that is left is asked at once.
RARE = 4
# Each of these may cost one request more than a cut in the middle would.
BORDER_CUTS = 3
# So often a request is asked whole of a server that says that it has too much to do.
WHOLE_TRIES = 3


class Search:
    """`ask` for the next rows; then say `answered`, `refused`, `again` or `smaller`, or to `deaths`
    how no answer came. Before `ask`, take what is to be rejected with a row that was refused:
    `passed_over`.
    """

    __slots__ = (
        "_asked",
        "_border_cuts",
        "_found",
        "_grew",
        "_group_rows",
        "_is_halving",
        "_lot",
        "_most_bytes",
        "_most_rows",
        "_overloads",
        "_refusals",
        "_settled_rows",
        "_suspects",
        "_suspicions",
        "_untested",
        "condemned",
        "deaths",
        "failures",
        "hang_ups",
        "rows",
    )

    def __init__(
        self, blocks: list[Block], most_rows: int, most_bytes: int, suspicions: Suspicions
    ) -> None:
        """`blocks` of equal shape; no request has more rows, nor more bytes unless one row has.
        `suspicions`: what searches before this one, or beside it, know of the objects.
        """
        self._most_rows, self._most_bytes = most_rows, most_bytes
        self._suspicions = suspicions
        # The lot fell on `_lot[0]`; the others share its lot.
        self._lot: tuple[list[Block], list[Block]] | None = None
        # How often the present suspects may still be cut between two objects.
        self._border_cuts = 0
        self._grew = False
        # What the last refusal rejects unasked.
        self.condemned: list[Block] = []
        self._untested = blocks
        self._suspects: list[Block] = []
        self._asked: list[Block] = []
        self._is_halving = False
        self._group_rows: int | None = None
        self._settled_rows = self._found = self._refusals = 0
        # How often the server hung up on rows of this search since one was found that explains it.
        self.hang_ups = 0
        # Of the rows that were asked last: their number, and how often in a row the server was ill.
        self.rows = self.failures = self._overloads = 0
        self.deaths = Deaths()

    @property
    def is_settled(self) -> bool:
        return not self._suspects and not self._untested and self._lot is None

    @property
    def is_easy(self) -> bool:
        """Has nothing been held against any of its rows?"""
        return (
            not self._suspects
            and not self._found
            and not self.deaths.is_deadly
            and not self.deaths.is_touchy
        )

    @property
    def has_suspects(self) -> bool:
        """Is one of the rows that were asked known to be bad?"""
        return bool(self._suspects)

    @property
    def clears_small(self) -> bool:
        """Are the small objects next, which were refused with a much larger one?"""
        return self._border_cuts == BORDER_CUTS and border_of_sizes(self._suspects) > 0

    @property
    def sole_ticket(self) -> Ticket | None:
        """The object of all rows that are to be asked next; None if there are several."""
        left = self._suspects or self._untested or (self._lot[0] if self._lot else [])
        if not left or any(block.ticket is not left[0].ticket for block in left):
            return None
        return left[0].ticket

    @property
    def was_refused(self) -> bool:
        """Was the row that is asked now refused before, be it among others?"""
        return self._refusals > 0

    def add(self, blocks: Sequence[Block]) -> None:
        """More rows that are to be asked."""
        self._untested = [*self._untested, *blocks]
        self._grew = True

    def give_up(self) -> list[Block]:
        """All rows that are not settled, for another search."""
        left = [*(self._lot[0] + self._lot[1] if self._lot else []), *self._suspects]
        left += self._untested
        self._suspects, self._untested, self._lot = [], [], None
        return left

    def passed_over(self, chance: float) -> list[Block]:
        """Rows of a sentenced object on which the lot did not fall: settled, to be rejected. None:
        go on with `ask`.
        """
        self._untested = alive(self._untested)
        if self._suspects or self._lot is not None or not self._untested:
            return []
        trial_of = self._suspicions.trial_of
        trial = trial_of(self._untested[0])
        if trial is None or not trial.is_sentenced:
            return []
        count = rows_while(self._untested, lambda block: trial_of(block) is trial)
        group, self._untested = leading(self._untested, min(LOT, count))
        drawn = int(chance * LOT)
        if drawn >= rows_of(group):
            return group
        before, rest = leading(group, drawn)
        asked, after = leading(rest, 1)
        self._lot = (asked, before + after)
        return []

    def ask(self, most_rows: int | None = None) -> list[Block]:
        """Rows to send next, at most so many; none when every row is settled."""
        self._suspects = alive(self._suspects)
        self._untested = alive(self._untested)
        self._is_halving = bool(self._suspects)
        if self._lot is not None and not alive(self._lot[0]):
            self._lot = None
        if self._lot is not None:
            self._asked = self._lot[0]
        elif self._is_halving:
            half = self._half()
            self._asked, self._suspects = leading(self._suspects, _least(half, most_rows))
        else:
            fitting = self._fitting() if self._grew else None
            limit = _least(self._group_rows, _least(fitting, most_rows))
            if self._untested and (trial := self._suspicions.trial_of(self._untested[0])):
                # What an earlier search found out about this object need not be found out again.
                limit = 1 if trial.in_a_row > RARE else limit
            self._asked, self._untested = leading(self._untested, limit)
        self.rows = rows_of(self._asked)
        return self._asked

    def _half(self) -> int:
        """Between two objects at first: one of which every row is bad is then soon alone, and the
        others are answered. Small objects before large ones: those are ticks that somebody waits
        for, and one request clears them all of what a file beside them did.
        """
        whole = rows_of(self._suspects)
        if self._border_cuts:
            self._border_cuts -= 1
            border = border_of_sizes(self._suspects) or border_near_middle(self._suspects, whole)
            if border:
                return border
        return max(1, whole // 2)

    def _fitting(self) -> int:
        """How many of the rows not asked yet fit into one request."""
        rows = nbytes = 0
        shape = self._untested[0].shape if self._untested else None
        for block in self._untested:
            assert block.payload is not None
            if block.payload.shape != shape:
                break
            room = self._most_rows - rows
            row_bytes = max(1, block.payload.nbytes // block.rows)
            fits = min(block.rows, room, (self._most_bytes - nbytes) // row_bytes)
            rows += max(0, fits)
            if fits < block.rows:
                break
            nbytes += block.payload.nbytes
        return max(1, rows)

    def answered(self) -> None:
        """The rows that were asked are settled, and their objects acquitted."""
        self._suspicions.answered(self._asked)
        self._settle()
        if self._lot is not None:
            self._untested = self._lot[1] + self._untested
            self._lot = None
            self._found, self._group_rows = 0, None
        elif self._group_rows is not None and not self._is_halving:
            # Bad rows often come in one stretch: behind it groups grow again.
            self._group_rows *= 2

    def refused(self, words: str | None) -> int:
        """One of the rows that were asked is bad. If it was alone it is settled, and this tells how
        often it was refused; else 0. `condemned` is rejected with it. Without `words` the refusal
        says nothing about other rows.
        """
        self._suspicions.refused(self._asked)
        self._refusals += 1
        self.deaths.forgive()
        if not self._is_halving:
            self._border_cuts = BORDER_CUTS
        # Only of the rows that were asked it is certain that one is bad.
        self._untested = self._suspects + self._untested
        self._suspects = smallest_first(self._asked) if self.rows > 1 else []
        self.condemned = []
        if self._suspects:
            return 0
        trial = self._suspicions.begin_trial(self._asked[0])
        trial.refused(words)
        if self._lot is not None:
            if trial.is_sentenced:
                self.condemned = self._lot[1]
            else:
                self._untested = self._lot[1] + self._untested
            self._lot = None
        attempts, self._refusals = self._refusals, 0
        self._settle()
        self._found += 1
        if self._found > RARE:
            # So many that a request of one group meets one bad row on average.
            self._group_rows = max(1, self._settled_rows // self._found)
        return attempts

    def again(self) -> None:
        """Nothing was said about the rows that were asked."""
        if self._lot is not None:
            return
        if self._is_halving:
            self._suspects = self._asked + self._suspects
        else:
            self._untested = self._asked + self._untested

    def asked_again(self) -> None:
        """What was said about the row may not be said twice: it is asked once more."""
        self._refusals += 1
        self.again()

    def overloaded(self) -> None:
        """The server said that it has too much to do; some say that of a request above their limit,
        and of each part of it that is.
        """
        self.failures += 1
        self._overloads += 1
        if self._overloads >= WHOLE_TRIES and self.rows > 1:
            self.smaller()
        else:
            self.again()

    def smaller(self) -> None:
        """They were too many at once, though each may be well."""
        self._untested = self._asked + self._suspects + self._untested
        self._suspects = []
        self._group_rows = max(1, self.rows // 2)

    def _settle(self) -> None:
        self._settled_rows += self.rows
        self.failures = 0
        self.deaths.forgive()


def _least(first: int | None, second: int | None) -> int | None:
    limits = [limit for limit in (first, second) if limit is not None]
    return min(limits) if limits else None
