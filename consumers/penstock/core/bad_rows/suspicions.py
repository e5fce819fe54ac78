"""Which objects are suspects, and when the rest of such an object is rejected without being asked.

Rule: an object becomes a suspect when a request with rows of it is refused, and stays one until any
of its rows is answered. Until then its rows share no request with those of other objects. Rows of
one member and shape are sentenced when `SENTENCE` of them, one after the other, were refused alone
with the same words. After the sentence only one row in `LOT`, drawn at random, is asked alone, and
if the model refuses this row, the rest of the lot is rejected with it. One answer, or a refusal in
other words, lifts the sentence. Pure.

If a share g of the rows is good, the object is sentenced with a chance of (1 - g) ** 50: one in 200
for a tenth. A wrong sentence costs at most 100 good rows on average, whatever their order.
"""

import re
from collections.abc import Iterable, Sequence
from weakref import WeakKeyDictionary

from penstock.core.rows.blocks import Block, Ticket
from penstock.core.rows.payload import Shape
from penstock.core.rows.rejections import Rejection
from penstock.errors import PenstockError, Poison

# With a millisecond for a request, 50 refused rows take a twentieth of a second. 5,000 refused rows
# cost 250 requests: nearly 50 until bad rows count as frequent, 50 for the sentence (`SENTENCE`),
# 50 for lots, and 100 probes with the canary: one after each row that was asked alone.
SENTENCE = 50
LOT = 100
# When this many rows of an object were refused, the log tells of the object.
LOUD_ROWS = 100
_NUMBER = re.compile(r"[0-9]+")


def _plain(code: str, message: str) -> str:
    """Numbers in the message may differ from row to row, so they are not compared."""
    return _NUMBER.sub("#", f"{code}: {message}")


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
        plain = _plain(why.code, why.message)
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
        self._suspicions: WeakKeyDictionary[Ticket, _Suspicion] = WeakKeyDictionary()
        # Objects that reached `LOUD_ROWS`. The caller takes them from here to log them.
        self.loud: list[tuple[Ticket, Rejection]] = []
        # The words of the last row that was given up although no row was ever answered.
        self._blind_words: str | None = None

    def suspects(self, blocks: Sequence[Block]) -> list[Block]:
        """The blocks of objects that are suspects now."""
        if not self._suspicions:
            return []
        suspicions = ((block, self._suspicions.get(block.ticket)) for block in blocks)
        return [block for block, of in suspicions if of is not None and of.is_suspect]

    def refused(self, blocks: Iterable[Block]) -> None:
        """One of these rows is bad, so their objects become suspects."""
        for block in blocks:
            self._suspicions.setdefault(block.ticket, _Suspicion()).is_suspect = True

    def answered(self, blocks: Iterable[Block]) -> None:
        """These rows were answered, so their objects are no longer suspects, and their sentences
        are lifted.
        """
        self._blind_words = None
        if not self._suspicions:
            return
        for block in blocks:
            if (suspicion := self._suspicions.get(block.ticket)) is not None:
                suspicion.is_suspect = False
                if (trial := self.trial_of(block)) is not None:
                    trial.lift()

    def given_up_blindly(self, why: Rejection) -> None:
        """A row was refused without a reason in each trial, and no row was ever answered."""
        self._blind_words = _plain(why.code, why.message)

    def knows(self, error: PenstockError | None) -> bool:
        """True if the last row was given up blindly for the same words, and none answered since."""
        if self._blind_words is None or not isinstance(error, Poison):
            return False
        return self._blind_words == _plain(error.code, str(error))

    def reject(self, block: Block, why: Rejection) -> Trial:
        """Reject the row of this block, which was refused alone."""
        trials = self._suspicions.setdefault(block.ticket, _Suspicion()).trials
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
        if not self._suspicions:
            return None
        suspicion = self._suspicions.get(block.ticket)
        if suspicion is None or not suspicion.trials:
            return None
        return suspicion.trials.get((block.member, block.shape))
