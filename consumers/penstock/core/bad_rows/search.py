"""Finds the rows of one batch that cannot be answered. Each costs log2(rows) extra requests.

Rule: when some of the asked rows must be bad, half of them is asked next. If that half is answered,
the bad row is in the other, which needs no request to confirm it. A row is bad only if the server
refused it alone, or if its object is sentenced. Untested rows share a request while bad rows are
rare; when they are frequent, each request gets about as many rows as hold one bad row. The first
cuts are between two objects, and small objects come first: an object whose rows are all bad is soon
alone. Pure.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, groupby, pairwise, takewhile

from penstock.core.bad_rows.suspicions import LOT, Suspicions
from penstock.core.bad_rows.verdicts import (
    LEAST_TRIALS,
    UNCONTROLLED_TRIES,
    Chance,
    Kind,
    Losses,
    Outcome,
)
from penstock.core.rows.blocks import Block, Ticket, leading
from penstock.errors import HungUp

# If an object has this many times the rows of the next smaller object, it counts as another kind of
# object, such as a large file among the ticks of a stream.
GROWS = 3.0
# Until a search has found this many bad rows, one request carries all its untested rows.
RARE = 4
# The first `BORDER_CUTS` cuts are made where one object ends and the next begins. Each of them may
# cost one request more than a cut in the middle.
BORDER_CUTS = 3
# A request that the server refuses for overload is sent whole this many times before it is cut.
WHOLE_TRIES = 3


class Search:
    """Call `passed_over` until it returns nothing, `ask` for the next rows, send them, and `settle`
    how the request ended.
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
        self._settled_rows = self._bad_rows = self._refusals = 0
        self._were_others_first = False
        # The failures since a row was last rejected. If no bad row was their cause, they were
        # chance.
        self._unexplained = 0
        self._chance: Chance | None = None  # of the server; None: none was needed yet
        # `rows`: how many rows were asked last. `failures`: how often the server failed since this
        # search last settled rows. `_overloads`: how often it was overloaded, in all.
        self.rows = self.failures = self._overloads = 0
        self.losses = Losses()
        self.requests = 0  # how many requests this search has sent

    def asked_whole(self) -> None:
        """All rows were asked in one request before this search began. `settle` how it ended."""
        self._asked, self._untested = self._untested, []
        self.rows, self.requests = rows_of(self._asked), 1

    @property
    def is_settled(self) -> bool:
        return not self._suspects and not self._untested and self._lot is None

    @property
    def is_easy(self) -> bool:
        """True as long as no row of this search was refused or lost."""
        return (
            not self._suspects
            and not self._bad_rows
            and not self.losses.kills_workers
            and not self.losses.breaks_connections
        )

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

    def add(self, blocks: Sequence[Block]) -> None:
        """Take over the rows of another search."""
        self._untested = [*self._untested, *blocks]
        self._grew = True

    @property
    def unsettled(self) -> list[Block]:
        """The rows that are left, for another search to take over."""
        lot = self._lot[0] + self._lot[1] if self._lot else []
        return [*lot, *self._suspects, *self._untested]

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

    def settle(self, outcome: Outcome) -> list[Block]:
        """How the request with the asked rows ended. Returns the rejected blocks."""
        match outcome.kind:
            case Kind.ANSWERED:
                self._answered()
            case Kind.REFUSED:
                return self._refused(outcome)
            case Kind.UNFORESEEN if self._refusals:
                return self._refused(outcome)
            case Kind.UNFORESEEN:
                self._refusals += 1
                self._put_back()
            case Kind.TOO_MANY:
                self._divide()
            case Kind.BUSY:
                self.failures += 1
                self._overloads += 1
                if self._overloads >= WHOLE_TRIES and self.rows > 1:
                    self._divide()
                else:
                    self._put_back()
            case Kind.NOTHING | Kind.CHANCE:
                self.failures += 1
                self._put_back()
                if outcome.kind is Kind.CHANCE:
                    self.losses.forgive()
            case _:
                return self._lost(outcome)
        return []

    def _lost(self, outcome: Outcome) -> list[Block]:
        """The rows may be the cause, or the server."""
        self.failures += 1
        if outcome.kind is Kind.DIED and isinstance(outcome.error, HungUp):
            # The server hung up because it was going away.
            self._unexplained = 0
        elif outcome.chance is not None:
            self._chance = outcome.chance
            self._unexplained += 1
        is_blind = outcome.kind in (Kind.HUNG_UP, Kind.DOUBTED) and not outcome.has_control
        if is_blind and self._others_first():
            return []
        tries = LEAST_TRIALS if self._suspicions.knows(outcome.error) else UNCONTROLLED_TRIES
        if self.losses.add(outcome, is_alone=self.rows == 1, blind_tries=tries):
            return self._refused(outcome)
        self._refusals += outcome.kind is Kind.DOUBTED
        self._put_back()
        return []

    def _others_first(self) -> bool:
        """A lone row was lost, and no other row was ever answered: ask the other suspects before it
        is asked again. One of them may be answered, and so show that the server works. False if
        there are none, or if that was tried.
        """
        is_possible = self.rows == 1 and self._is_halving and bool(self._suspects)
        if self._were_others_first or not is_possible:
            return False
        self._were_others_first = True
        self._suspects = [*self._suspects, *self._asked]
        self.losses.forgive()
        return True

    def _answered(self) -> None:
        self._suspicions.answered(self._asked)
        self._end_losses()
        if not self._suspects and self._chance is not None:
            self._chance.explains(self._unexplained)
            self._unexplained = 0
        if self._lot is not None:
            self._untested = self._lot[1] + self._untested
            self._lot = None
            self._bad_rows, self._group_rows = 0, None
        elif self._group_rows is not None and not self._is_halving:
            # Bad rows often come in one stretch. This answer may be the end of it, so groups grow
            # again.
            self._group_rows *= 2

    def _refused(self, outcome: Outcome) -> list[Block]:
        """One of the asked rows is bad. If only one row was asked, it is rejected, together with
        the rows on whose behalf it was asked.
        """
        self._suspicions.refused(self._asked)
        self._refusals += 1
        attempts = self.losses.count or self._refusals
        self.losses.forgive()
        if not self._is_halving:
            self._border_cuts = BORDER_CUTS
        # One of the asked rows is certainly bad, so all suspects that were not asked may be good.
        self._untested = self._suspects + self._untested
        self._suspects = smallest_first(self._asked) if self.rows > 1 else []
        if self._suspects:
            return []
        why = outcome.rejection(attempts)._replace(attempts=self._refusals)
        trial = self._suspicions.reject(self._asked[0], why)
        rejected = self._asked
        if outcome.is_blind_doubt:
            self._suspicions.given_up_blindly(why)
            # The next rows are taken from another place: the first ones may be bad alone.
            before, after = leading(self._untested, rows_of(self._untested) // 3)
            self._untested = after + before
        if self._lot is not None:
            if trial.is_sentenced:
                self._suspicions.condemn(trial, self._lot[1])
                rejected = self._asked + self._lot[1]
            else:
                self._untested = self._lot[1] + self._untested
            self._lot = None
        self._refusals = 0
        self._unexplained = 0
        self._end_losses()
        self._bad_rows += 1
        if self._bad_rows > RARE:
            # With this size a group has one bad row on average.
            self._group_rows = max(1, self._settled_rows // self._bad_rows)
        return rejected

    def _put_back(self) -> None:
        """The asked rows are asked again."""
        if self._lot is not None:
            return
        if self._is_halving:
            self._suspects = self._asked + self._suspects
        else:
            self._untested = self._asked + self._untested

    def _divide(self) -> None:
        """The rows were too many for one request, but each of them may be good."""
        self._untested = self._asked + self._suspects + self._untested
        self._suspects = []
        self._group_rows = max(1, self.rows // 2)

    def _end_losses(self) -> None:
        """The server works: it answered the asked rows, or refused one of them."""
        self._settled_rows += self.rows
        self.failures = 0
        self.losses.forgive()


def _least(first: int | None, second: int | None) -> int | None:
    limits = [limit for limit in (first, second) if limit is not None]
    return min(limits) if limits else None


def fitting(blocks: Sequence[Block], most_rows: int, most_bytes: int) -> int:
    """How many rows, from the first on, fit into one request; at least one."""
    rows = nbytes = 0
    shape = blocks[0].shape if blocks else None
    for block in blocks:
        assert block.payload is not None
        if block.payload.shape != shape:
            break
        most = (most_bytes - nbytes) * block.rows // max(1, block.payload.nbytes)
        fits = min(block.rows, most_rows - rows, most)
        rows += max(0, fits)
        if fits < block.rows:
            break
        nbytes += block.payload.nbytes
    return max(1, rows)


def smallest_first(blocks: Sequence[Block]) -> list[Block]:
    """The blocks ordered by object. Objects with fewer rows come first."""
    rows: dict[Ticket, int] = {}
    for block in blocks:
        rows[block.ticket] = rows.get(block.ticket, 0) + block.rows
    place = {ticket: number for number, ticket in enumerate(rows)}
    return sorted(blocks, key=lambda block: (rows[block.ticket], place[block.ticket]))


def border_of_sizes(blocks: Sequence[Block]) -> int:
    """`blocks` are in the order of `smallest_first`. Returns how many rows come before the object
    that is larger than its predecessor by the largest factor. 0: no object has `GROWS` times the
    rows of its predecessor.
    """
    objects = groupby(blocks, key=lambda block: block.ticket)
    sizes = [sum(block.rows for block in of_one) for _, of_one in objects]
    borders = accumulate(sizes)
    best, steepest = 0, GROWS
    for border, (size, following) in zip(borders, pairwise(sizes), strict=False):
        if following >= steepest * size:
            best, steepest = border, following / size
    return best


def border_near_middle(blocks: Sequence[Block], whole: int) -> int:
    """How many rows come before the border between two objects that is nearest to the middle. 0:
    there is only one object.
    """
    best = before = 0
    for block, following in pairwise(blocks):
        before += block.rows
        if block.ticket is not following.ticket and abs(2 * before - whole) < abs(2 * best - whole):
            best = before
    return best


def first_half(suspects: Sequence[Block], *, at_border: bool) -> int:
    """How many suspects to ask. The first cuts are between two objects. So an object whose rows are
    all bad is soon alone, and the other objects are answered. Small objects are asked before large
    ones, because small objects are live ticks. If they are answered, that one request has shown
    that the large object is at fault.
    """
    whole = rows_of(suspects)
    border = 0
    if at_border:
        border = border_of_sizes(suspects) or border_near_middle(suspects, whole)
    return border or max(1, whole // 2)


def rows_of(blocks: Iterable[Block]) -> int:
    return sum(block.rows for block in blocks)


def of_living_lanes(blocks: list[Block]) -> list[Block]:
    """The blocks whose lanes are not closed."""
    return [block for block in blocks if block.ticket.owner.alive]
