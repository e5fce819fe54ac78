"""Which objects are suspects, when the rest of such an object is rejected without being asked, and
where the suspected rows are cut so that a part of them is asked first.

Rule: an object becomes a suspect when a request with rows of it is refused, and stays one until any
of its rows is answered. Until then its rows share no request with those of other objects. Rows of
one member and shape are sentenced when `SENTENCE` of them, one after the other, were refused alone
with the same words. After the sentence only one row in `LOT`, drawn at random, is asked alone, and
if the model refuses this row, the rest of the lot is rejected with it. One answer, or a refusal in
other words, lifts the sentence. The first cuts are between two objects, and small objects come
first. Pure. Owners: predict, for the suspects of its model; one search for bad rows, for the cuts.

How often is a sentence wrong? If a share g of an object's rows is good, the object is sentenced
with a chance of (1 - g) ** 50: that is one in 200 if a tenth of the rows is good, and one in 70,000
if a fifth is good. After the sentence every good row is asked with a chance of at least 1 in 100,
and the first good row that is asked lifts the sentence. So a wrong sentence costs at most 100 good
rows on average, whatever the order of the rows. In one case of a hundred it costs more than 460
good rows (0.99 ** 460).
"""

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate, groupby, pairwise
from weakref import WeakKeyDictionary

from penstock.core.rows.blocks import Block, Ticket
from penstock.core.rows.payload import Shape
from penstock.core.rows.rejections import Rejection

# With a millisecond for a request, 50 refused rows take a twentieth of a second. 5,000 refused rows
# cost 250 requests: nearly 50 until bad rows count as frequent, 50 for the sentence (`SENTENCE`),
# 50 for lots, and 100 probes with the canary: one after each row that was asked alone.
SENTENCE = 50
LOT = 100
# When this many rows of an object were refused, the log tells of the object.
LOUD_ROWS = 100
_NUMBER = re.compile(r"[0-9]+")


class Trial:
    """The refusals of those rows of an object that have one member and shape."""

    __slots__ = ("in_a_row", "rejected_rows", "why", "words")

    def __init__(self) -> None:
        self.words = ""
        self.why: Rejection | None = None  # why the last row was refused
        self.in_a_row = 0
        self.rejected_rows = 0

    @property
    def is_sentenced(self) -> bool:
        return self.in_a_row >= SENTENCE

    def refused(self, why: Rejection) -> None:
        """A row was refused alone."""
        self.why = why
        # A row that is too large says nothing about the next row.
        if why.code == "too_large":
            self.in_a_row = 0
            return
        # Numbers in the message may differ from row to row, so they are not compared.
        plain = _NUMBER.sub("#", f"{why.code}: {why.message}")
        self.in_a_row = self.in_a_row + 1 if plain == self.words else 1
        self.words = plain

    def lift(self) -> None:
        """Forget the refusals, because a row was answered."""
        self.in_a_row = 0


class _Suspicion:
    """What is known against one object. `trials`: a mapping from member and shape to the refusals
    of rows with this member and shape.
    """

    __slots__ = ("is_suspect", "trials")

    def __init__(self) -> None:
        self.is_suspect = False
        self.trials: dict[tuple[str | None, Shape], Trial] = {}


class Suspicions:
    """The objects with refused rows, by ticket. An entry lasts as long as its ticket: until the
    object is answered, or until its assignment is over.
    """

    def __init__(self) -> None:
        self._found: WeakKeyDictionary[Ticket, _Suspicion] = WeakKeyDictionary()
        # Objects that reached `LOUD_ROWS`. The caller takes them from here to log them.
        self.loud: list[tuple[Ticket, Rejection]] = []

    def suspects(self, blocks: Sequence[Block]) -> list[Block]:
        """The blocks of objects that are suspects now."""
        if not self._found:
            return []
        found = ((block, self._found.get(block.ticket)) for block in blocks)
        return [block for block, of in found if of is not None and of.is_suspect]

    def refused(self, blocks: Iterable[Block]) -> None:
        """One of these rows is bad, so their objects become suspects."""
        for block in blocks:
            self._found.setdefault(block.ticket, _Suspicion()).is_suspect = True

    def answered(self, blocks: Iterable[Block]) -> None:
        """These rows were answered, so their objects are no longer suspects, and their sentences
        are lifted.
        """
        if not self._found:
            return
        for block in blocks:
            if (found := self._found.get(block.ticket)) is not None:
                found.is_suspect = False
                if (trial := self.trial_of(block)) is not None:
                    trial.lift()

    def reject(self, block: Block, why: Rejection) -> Trial:
        """Reject the row of this block, which was refused alone."""
        trials = self._found.setdefault(block.ticket, _Suspicion()).trials
        trial = trials.setdefault((block.member, block.shape), Trial())
        trial.refused(why)
        self._reject(trial, block, why)
        return trial

    def condemn(self, trial: Trial, blocks: Sequence[Block]) -> None:
        """Reject rows without asking them. The reason is that of the row that was asked last."""
        assert trial.why is not None
        code, message, *_ = trial.why
        message = (
            f"not asked: the last {SENTENCE} rows of this object that were asked alone were "
            f"refused, so only one in {LOT} of the rest is asked: {message}"
        )
        for block in blocks:
            self._reject(trial, block, Rejection(code, message, "predict"))

    def _reject(self, trial: Trial, block: Block, why: Rejection) -> None:
        block.reject(why)
        before, trial.rejected_rows = trial.rejected_rows, trial.rejected_rows + block.rows
        if before < LOUD_ROWS <= trial.rejected_rows and trial.why is not None:
            self.loud.append((block.ticket, trial.why))

    def trial_of(self, block: Block) -> Trial | None:
        """The refusals of rows with the block's object, member and shape. None: no such row was
        refused.
        """
        if not self._found:
            return None
        found = self._found.get(block.ticket)
        if found is None or not found.trials:
            return None
        return found.trials.get((block.member, block.shape))


# If an object has this many times the rows of the next smaller object, it counts as another kind of
# object, such as a large file among the ticks of a stream.
GROWS = 3.0


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
    for border, (one, following) in zip(borders, pairwise(sizes), strict=False):
        if following >= steepest * one:
            best, steepest = border, following / one
    return best


def border_near_middle(blocks: Sequence[Block], whole: int) -> int:
    """How many rows come before the border between two objects that is nearest to the middle. 0:
    there is only one object.
    """
    best = before = 0
    for one, following in pairwise(blocks):
        before += one.rows
        if one.ticket is not following.ticket and abs(2 * before - whole) < abs(2 * best - whole):
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


def leading(blocks: list[Block], rows: int | None) -> tuple[list[Block], list[Block]]:
    """Returns two lists: the first `rows` rows (None: all), and the rows behind them. A block that
    lies across the border is cut.
    """
    if rows is None:
        return blocks, []
    for index, block in enumerate(blocks):
        if block.rows > rows:
            if not rows:
                return blocks[:index], blocks[index:]
            rest = block.split(rows)
            return blocks[: index + 1], [rest, *blocks[index + 1 :]]
        rows -= block.rows
    return blocks, []


def rows_of(blocks: Iterable[Block]) -> int:
    return sum(block.rows for block in blocks)


def of_living_lanes(blocks: list[Block]) -> list[Block]:
    """The blocks whose lanes are not closed."""
    return [block for block in blocks if block.ticket.owner.alive]
