"""Does the server answer questions without rows, but never rows? And does it answer rows with
something that is not an answer of a model?

Rule: a server that does not even answer a question without rows is away, and while it is away, lost
rows say nothing. If it answers such a question, but `TRIES` requests with rows were lost one after
the other, over a time of at least `LEAST_S`, then it fails at rows. A search for one bad row may
lose as many requests one after the other, but finds good rows in less time. Pure. Owner: the health
of one model server.
"""

from penstock.errors import HungUp, NoAnswer, Poison

TRIES = 3
LEAST_S = 1.0


class RowsUnanswered:
    """Report how each request ended. `why` is the sentence for people; None: there is nothing to
    tell.
    """

    __slots__ = ("_error", "_is_idle_answered", "_lost", "_odd", "_since_s")

    def __init__(self) -> None:
        self._odd = 0
        self.answered()

    def answered(self) -> None:
        """Rows got an answer or a refusal."""
        self._lost = 0
        self._since_s = 0.0
        self._error: NoAnswer | None = None
        self._is_idle_answered = False

    def idle_answered(self) -> None:
        """A question without rows got an answer."""
        self._is_idle_answered = self._lost > 0

    def away(self) -> None:
        """A question without rows got no answer, or no connection could be made."""
        self._is_idle_answered = False

    def lost(self, error: NoAnswer, now_s: float) -> None:
        """Rows got no answer."""
        if not self._lost:
            self._since_s = now_s
        self._lost += 1
        self._error = error

    def why(self, now_s: float) -> str | None:
        error = self._error
        if error is None or not self._is_idle_answered:
            return None
        if self._lost < TRIES or now_s - self._since_s < LEAST_S:
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
        200 that is not the answer of a model. After every `TRIES` such errors in a row this returns
        a sentence for people, otherwise None.
        """
        self._odd = self._odd + 1 if error is not None and error.sent else 0
        if error is None or not self._odd or self._odd % TRIES:
            return None
        return (
            f"it answers 200 with something else, {self._odd} times in a row. Sent were "
            f"{error.sent}. What came: {error}"
        )
