"""Finds the rows of one batch that cannot be answered. Each such row costs log2(rows) extra
requests, so not every row has to be asked alone.

Rule: when some of the asked rows must be bad, half of them is asked next. If that half is answered,
the bad row must be in the other half, which needs no request to confirm it. A row is bad only if
the server refused it alone, or if its object is sentenced. Untested rows share a request while bad
rows are rare. When bad rows are frequent, each request gets about as many rows as hold one bad row.
Pure. Owner: predict, which has one search for each batch; most searches end with the answer to
their first request.
"""

from collections.abc import Sequence
from itertools import takewhile

from penstock.core.bad_rows.cuts import (
    border_of_sizes,
    first_half,
    fitting,
    leading,
    of_living_lanes,
    rows_of,
    smallest_first,
)
from penstock.core.bad_rows.suspicions import LOT, Suspicions
from penstock.core.bad_rows.verdicts import LostRequests, Odds
from penstock.core.rows.blocks import Block, Ticket
from penstock.core.rows.rejections import Rejection
from penstock.errors import HungUp, NoAnswer, WorkerDied

# Until a search has found this many bad rows, one request carries all its untested rows.
RARE = 4
# The first `BORDER_CUTS` cuts are made where one object ends and the next begins. Each of them may
# cost one request more than a cut in the middle.
BORDER_CUTS = 3
# A request that the server refuses for overload is sent whole this many times before it is cut.
WHOLE_TRIES = 3


class Search:
    """Call `passed_over`, then `ask` for the next rows, send them, and report the outcome:
    `answered`, `refused`, `smaller` or `overloaded`; if the rows were lost, `died`, `unanswered`,
    `hung_up` or `broke`; if nothing is known of them, `again`. These methods return the rejected
    blocks.
    """

    def __init__(
        self, blocks: list[Block], most_rows: int, most_bytes: int, suspicions: Suspicions
    ) -> None:
        """`blocks` have one shape. A request has at most `most_rows` and `most_bytes`, except for a
        single larger row. `suspicions`: shared by all searches of this model.
        """
        self._most_rows, self._most_bytes = most_rows, most_bytes
        self._suspicions = suspicions
        # The row in `_lot[0]` is asked on behalf of all rows in `_lot[1]`.
        self._lot: tuple[list[Block], list[Block]] | None = None
        self._border_cuts = 0  # how many more cuts of these suspects are made between two objects
        self._grew = False
        self._untested = blocks
        self._suspects: list[Block] = []
        self._asked: list[Block] = []
        self._is_halving = False
        self._group_rows: int | None = None
        self._settled_rows = self._found = self._refusals = 0
        self._were_others_first = False
        # How many hang-ups came since this search last rejected a row because of them.
        self.hang_ups = 0
        # `rows`: how many rows were asked last. `failures`: how often the server failed since this
        # search last settled rows. `_overloads`: how often it was overloaded, in all.
        self.rows = self.failures = self._overloads = 0
        self.losses = LostRequests()
        self.requests = 0  # how many requests this search has sent

    @property
    def is_settled(self) -> bool:
        return not self._suspects and not self._untested and self._lot is None

    @property
    def is_easy(self) -> bool:
        """True as long as no row of this search was refused or lost."""
        return (
            not self._suspects
            and not self._found
            and not self.losses.kills_workers
            and not self.losses.breaks_connections
        )

    @property
    def has_suspects(self) -> bool:
        """Is it known that one of the asked rows is bad?"""
        return bool(self._suspects)

    @property
    def clears_small(self) -> bool:
        """Are the next rows small objects that were refused together with a much larger one?"""
        return self._border_cuts == BORDER_CUTS and border_of_sizes(self._suspects) > 0

    @property
    def sole_ticket(self) -> Ticket | None:
        """The object of all rows that are to be asked next. None: they are of several objects."""
        left = self._suspects or self._untested or (self._lot[0] if self._lot else [])
        if not left or any(block.ticket is not left[0].ticket for block in left):
            return None
        return left[0].ticket

    @property
    def was_refused(self) -> bool:
        """Were the rows that are asked now refused before, alone or among others?"""
        return self._refusals > 0

    def add(self, blocks: Sequence[Block]) -> None:
        """Take over the rows of another search."""
        self._untested = [*self._untested, *blocks]
        self._grew = True

    def give_up(self) -> list[Block]:
        """End this search, and return its unsettled rows, which another search takes over."""
        left = [*(self._lot[0] + self._lot[1] if self._lot else []), *self._suspects]
        left += self._untested
        self._suspects, self._untested, self._lot = [], [], None
        return left

    def passed_over(self, chance: float) -> list[Block]:
        """Reject and return the next rows of a sentenced object, unless `chance` has drawn one of
        them to be asked. If the result is empty, go on with `ask`.
        """
        self._untested = of_living_lanes(self._untested)
        if self._suspects or self._lot is not None or not self._untested:
            return []
        trial_of = self._suspicions.trial_of
        trial = trial_of(self._untested[0])
        if trial is None or not trial.is_sentenced:
            return []
        count = rows_of(takewhile(lambda block: trial_of(block) is trial, self._untested))
        group, self._untested = leading(self._untested, min(LOT, count))
        drawn = int(chance * LOT)
        if drawn >= rows_of(group):
            self._suspicions.condemn(trial, group)
            return group
        before, rest = leading(group, drawn)
        asked, after = leading(rest, 1)
        self._lot = (asked, before + after)
        return []

    def ask(self, most_rows: int | None = None) -> list[Block]:
        """The rows to send next, at most `most_rows` of them. Empty once every row is settled."""
        self._suspects = of_living_lanes(self._suspects)
        self._untested = of_living_lanes(self._untested)
        self._is_halving = bool(self._suspects)
        if self._lot is not None and not of_living_lanes(self._lot[0]):
            self._lot = None
        if self._lot is not None:
            self._asked = self._lot[0]
        elif self._is_halving:
            half = first_half(self._suspects, at_border=self._border_cuts > 0)
            self._border_cuts = max(0, self._border_cuts - 1)
            self._asked, self._suspects = leading(self._suspects, _least(half, most_rows))
        else:
            fits = None
            if self._grew:
                fits = fitting(self._untested, self._most_rows, self._most_bytes)
            limit = _least(self._group_rows, _least(fits, most_rows))
            if self._untested and (trial := self._suspicions.trial_of(self._untested[0])):
                # Rows of this object were refused one after the other, so each row is asked alone.
                limit = 1 if trial.in_a_row > RARE else limit
            self._asked, self._untested = leading(self._untested, limit)
        self.rows = rows_of(self._asked)
        self.requests += bool(self._asked)
        return self._asked

    def answered(self) -> None:
        """The asked rows are settled, and their objects are no longer suspects."""
        self._suspicions.answered(self._asked)
        self._settle()
        if self._lot is not None:
            self._untested = self._lot[1] + self._untested
            self._lot = None
            self._found, self._group_rows = 0, None
        elif self._group_rows is not None and not self._is_halving:
            # Bad rows often come in one stretch. This answer may be the end of it, so groups grow
            # again.
            self._group_rows *= 2

    def refused(self, why: Rejection) -> list[Block]:
        """One of the asked rows is bad. If only one row was asked, it is rejected, together with
        the rows on whose behalf it was asked.
        """
        self._suspicions.refused(self._asked)
        self._refusals += 1
        self.losses.forgive()
        if not self._is_halving:
            self._border_cuts = BORDER_CUTS
        # One of the asked rows is certainly bad, so all suspects that were not asked may be good.
        self._untested = self._suspects + self._untested
        self._suspects = smallest_first(self._asked) if self.rows > 1 else []
        if self._suspects:
            return []
        trial = self._suspicions.reject(self._asked[0], why._replace(attempts=self._refusals))
        rejected = self._asked
        if self._lot is not None:
            if trial.is_sentenced:
                self._suspicions.condemn(trial, self._lot[1])
                rejected = self._asked + self._lot[1]
            else:
                self._untested = self._lot[1] + self._untested
            self._lot = None
        self._refusals = 0
        self._settle()
        self._found += 1
        if self._found > RARE:
            # With this size a group has one bad row on average.
            self._group_rows = max(1, self._settled_rows // self._found)
        return rejected

    def died(self, error: WorkerDied, after_s: float) -> list[Block]:
        """The server's worker process died, `after_s` seconds after the rows were sent."""
        return self._lost(error, is_refusal=self.losses.died(self.rows, after_s))

    def unanswered(
        self, error: NoAnswer, heard: int, after_s: float, odds: Odds | None
    ) -> list[Block]:
        """The rows got no answer. See `LostRequests.unanswered`."""
        self.hang_ups += isinstance(error, HungUp)
        is_refusal = self.losses.unanswered(self.rows, heard, after_s, odds)
        if rejected := self._lost(error, is_refusal=is_refusal):
            self.hang_ups = 0
        return rejected

    def hung_up(self, error: HungUp, odds: Odds, *, gone_after_s: float | None) -> list[Block]:
        """The server hung up, because of these rows or by chance. `gone_after_s`: the time from the
        sending of the rows until the server was gone; None: the server was not gone.
        """
        self.hang_ups += 1
        is_refusal = self.losses.hung_up(self.rows, odds)
        if gone_after_s is not None and not is_refusal:
            self.losses.server_was_gone(gone_after_s)
        if rejected := self._lost(error, is_refusal=is_refusal):
            self.hang_ups = 0
        return rejected

    def doubted(self, odds: Odds, *, has_control: bool) -> bool:
        """The rows were refused without a reason. Returns True if the rows are to blame, so that
        `refused` is called next; otherwise they are asked again.
        """
        if self.losses.doubted(self.rows, odds, has_control=has_control):
            return True
        self._refusals += 1
        self.again()
        return False

    def broke(self, error: WorkerDied | NoAnswer) -> list[Block]:
        """The connection broke while one row above the usual size limit was sent, and the server
        was healthy right after. So the row may be too large.
        """
        if not self.losses.broke():
            self.again()
            return []
        message = f"the model server hangs up on this row, and answers others: {error}"
        return self.refused(Rejection("too_large", message, "predict"))

    def _lost(self, error: WorkerDied | NoAnswer, *, is_refusal: bool) -> list[Block]:
        if is_refusal:
            self.failures += 1
            return self.refused(self.losses.why(error))
        self.again()
        return []

    def again(self) -> None:
        """The outcome tells nothing about the asked rows, so they are asked again."""
        self.failures += 1
        self._put_back()

    def _put_back(self) -> None:
        if self._lot is not None:
            return
        if self._is_halving:
            self._suspects = self._asked + self._suspects
        else:
            self._untested = self._asked + self._untested

    def others_first(self) -> bool:
        """The asked row was lost, and no other row was ever answered: ask the other suspects before
        it is asked again. One of them may be answered, and so show that the server works. False if
        there are none, or if that was tried.
        """
        if self._were_others_first or not self._is_halving or not self._suspects:
            return False
        self._were_others_first = True
        self._suspects = [*self._suspects, *self._asked]
        self.losses.forgive()
        return True

    def asked_again(self) -> None:
        """An unforeseen exception came, perhaps by chance, so the row is asked once more."""
        self._refusals += 1
        self._put_back()

    def overloaded(self) -> None:
        """The server said that it has too much to do. Some servers say this of any request above
        their limit. Therefore the request is cut after some tries.
        """
        self.failures += 1
        self._overloads += 1
        if self._overloads >= WHOLE_TRIES and self.rows > 1:
            self.smaller()
        else:
            self._put_back()

    def smaller(self) -> None:
        """The rows were too many for one request, but each of them may be good."""
        self._untested = self._asked + self._suspects + self._untested
        self._suspects = []
        self._group_rows = max(1, self.rows // 2)

    def _settle(self) -> None:
        self._settled_rows += self.rows
        self.failures = 0
        self.losses.forgive()


def _least(first: int | None, second: int | None) -> int | None:
    limits = [limit for limit in (first, second) if limit is not None]
    return min(limits) if limits else None
