"""Does a server answer questions without rows, but no rows? Or rows by a bare 500, or by something
else?

Rule: a server that does not even answer a question without rows is away, and while it is away, lost
rows say nothing. Of the rows that it lost as it went, all count as one loss: they may be what it
died of, but an outage loses all that is under way. Pure.
"""

from penstock.errors import Doubtful, HungUp, NoAnswer, Poison

# After this many losses one after the other, over at least this time, the server itself fails
# whenever it gets rows. A search for one bad row may lose as many requests, but it finds good rows
# in less time.
TELL_AFTER = 3
TELL_AFTER_S = 1.0


class RowsUnanswered:
    """Three questions about a server. Does it answer questions without rows, but no requests with
    rows? Does it refuse all rows without a reason? Or does it answer rows with something that is
    not an answer of a model? Report how each request ended. `why`: a sentence for people; None if
    there is nothing to tell.
    """

    __slots__ = (
        "_doubt",
        "_doubts",
        "_error",
        "_given_up",
        "_is_away",
        "_is_idle_answered",
        "_lost",
        "_lost_alone",
        "_lost_before",
        "_odd",
        "_since_s",
    )

    def __init__(self) -> None:
        self._odd = self._lost = 0
        self.answered()

    def answered(self, refusal: Poison | None = None, now_s: float = 0.0) -> None:
        """Rows got an answer or a refusal."""
        if not isinstance(refusal, Doubtful):
            self._doubts = self._given_up = 0
        elif not self._doubts or self._lost:
            self._doubts, self._since_s = 1, now_s
        else:
            self._doubts += 1
        self._doubt = refusal
        self._lost = self._lost_alone = 0
        # The losses up to the last answer to a question without rows.
        self._lost_before = 0
        self._is_away = False
        self._error: NoAnswer | None = None
        self._is_idle_answered = False

    def idle_answered(self) -> None:
        """A question without rows got an answer."""
        self._is_idle_answered = self._lost > 0
        self._lost_before, self._is_away = self._lost, False

    def away(self) -> None:
        """A question without rows got no answer, or no connection could be made."""
        self._is_idle_answered, self._is_away = False, True
        self._doubts = 0
        self._lost = min(self._lost, self._lost_before + 1)
        self._lost_alone = min(self._lost_alone, self._lost)

    def lost(self, error: NoAnswer, now_s: float, rows: int) -> None:
        """So many rows of one request got no answer."""
        self._error = error
        if self._is_away and self._lost > self._lost_before:
            return
        if not self._lost:
            self._since_s = now_s
        self._doubts = 0
        self._lost += 1
        self._lost_alone += rows == 1

    def gave_up(self) -> None:
        """A row was rejected for its doubts, and no row was ever answered."""
        self._given_up += 1

    @property
    def is_certain(self) -> bool:
        """Were rows lost or given up that were sent alone? Before that, one bad row may be the
        cause.
        """
        return max(self._lost_alone, self._given_up) >= TELL_AFTER

    def why(self, now_s: float) -> str | None:
        if self._doubts >= TELL_AFTER and now_s - self._since_s >= TELL_AFTER_S:
            return (
                f"it refuses each row it is asked, without a reason, {self._doubts} times in a "
                f"row: {self._doubt}. Does the model's own code fail at such rows? See the "
                "server's log; penstock doctor OBJECT tries one row"
            )
        error = self._error
        if error is None or not self._is_idle_answered:
            return None
        if self._lost < TELL_AFTER or now_s - self._since_s < TELL_AFTER_S:
            return None
        does = (
            "closes the connection when it gets rows"
            if isinstance(error, HungUp)
            else "leaves rows without an answer"
        )
        sent = f" Sent were {error.sent}." if error.sent else ""
        return (
            f"it answers a question without rows (OPTIONS, health or an empty batch), and {does}: "
            f"{self._lost} times in a row.{sent} What came: {error}. Does the model's own code "
            "fail at such rows? See the server's log; penstock doctor OBJECT tries one row"
        )

    def odd(self, error: Poison | None) -> str | None:
        """Call this for each answer to rows. `error`: None, or the error of an answer with status
        200 that is not the answer of a model. After every `TELL_AFTER` such errors in a row this
        returns a sentence for people, otherwise None.
        """
        self._odd = self._odd + 1 if error is not None and error.sent else 0
        if error is None or not self._odd or self._odd % TELL_AFTER:
            return None
        return (
            f"it answers 200 with something else, {self._odd} times in a row. Sent were "
            f"{error.sent}. What came: {error}"
        )
