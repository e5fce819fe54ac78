"""The server's worker died of these rows, or hung up on them, or of something else: when is that
taken for a refusal?

Rule: a death is held against rows only after others in a row, and alone against one row only when
chance would explain them one time in a million. Any answer or refusal forgives all of it,
except that the search stays careful. Pure. Owner: one search for bad rows.
"""

from consumers.core.blocks import Rejection
from consumers.errors import HungUp, NoAnswer, WorkerDied

# A worker process may die of anything once, and of its neighbours' deeds.
SPLIT_DEATHS = 2
# Alone, a row must be the only likely cause. Something else that kills every five seconds hits a
# trial of t seconds, begun at a random moment, with a chance of t / 5 s; all of them, in a row and
# by chance, one time in a million.
LONE_DEATHS = 3
KILL_PERIOD_S = 5.0
MOST_DOUBT = 1e-6
# Several rows are only parted by it: parts of rows that are well cost requests, and no row.
SPLIT_DOUBT = 0.1
# A row above the usual limit of a request under which the connection broke so often, with a server
# that was well right after each, is taken for too large.
HANG_UPS = 2
# Slow trials prove little, but nothing is tried for ever: twenty of them are enough.
LEAST_PROOF = 0.5


class Deaths:
    """Of the rows that are asked now. `count`: how often in a row the worker died of them;
    `hang_ups`: how often the connection broke under a row that may be too large. `is_deadly`: the
    worker died twice of rows of this search, so that all are tried one part at a time; `is_touchy`:
    the server hung up on them twice, which harms no others.
    """

    __slots__ = ("_doubt", "_heard", "_hung", "count", "hang_ups", "is_deadly", "is_touchy")

    def __init__(self) -> None:
        self.is_deadly = self.is_touchy = self._hung = False
        self.forgive()

    def forgive(self) -> None:
        self.count = self.hang_ups = 0
        # What the server had answered in all when these rows were last left without an answer.
        self._heard = -1
        self._doubt = 1.0

    def died(self, rows: int, after_s: float) -> bool:
        """The worker died so long after these rows were sent; True if that must be taken for a
        refusal.
        """
        self._count(hung=False)
        self._doubt *= min(LEAST_PROOF, after_s / KILL_PERIOD_S)
        self.is_deadly = self.is_deadly or self.count >= SPLIT_DEATHS
        if rows > 1:
            return self.is_deadly
        return self.count >= LONE_DEATHS and self._doubt <= MOST_DOUBT

    def hung_up(self, rows: int, chance: float) -> bool:
        """As a death, of a server that answered others since the last time; `chance` is that of any
        request to end so.
        """
        self._count(hung=True)
        self.is_touchy = self.is_touchy or self.count >= SPLIT_DEATHS
        doubt = min(self._doubt, chance**self.count)
        if rows > 1:
            return self.is_touchy and doubt <= SPLIT_DOUBT
        return self.count >= LONE_DEATHS and doubt <= MOST_DOUBT

    def _count(self, *, hung: bool) -> None:
        """A death and a hang-up do not add up: what is said of the row must be true each time."""
        if hung is not self._hung:
            self._hung, self.count, self._doubt = hung, 0, 1.0
        self.count += 1

    def broke(self, *, was_well: bool) -> bool:
        """The connection, under one row above the usual limit; `was_well`: the server was, right
        after. True if the row must be taken for too large.
        """
        self.hang_ups += was_well
        return self.hang_ups >= HANG_UPS

    def fell(self, after_s: float) -> None:
        """The server that hung up on the rows was gone afterwards: as a death, of all of it."""
        self._doubt *= min(LEAST_PROOF, after_s / KILL_PERIOD_S)

    def unanswered(self, rows: int, heard: int, after_s: float) -> bool:
        """No answer came to the rows; `heard` tells how many requests the server has answered so
        far, `after_s` when one came at the latest so far. As a death, but only if it answered
        anything since the last time: a server that is away says nothing about rows.
        """
        before, self._heard = self._heard, heard
        return heard > before and self.died(rows, after_s)

    def why(self, error: WorkerDied | NoAnswer) -> Rejection:
        """The rejection of a row that was sent alone `count` times and got this error each time."""
        if isinstance(error, WorkerDied):
            message = (
                f"the model's worker process died each of the {self.count} times that this row was "
                f"sent alone, and had answered just before: {error}"
            )
            return Rejection("model_rejected", message, "predict")
        if isinstance(error, HungUp):
            message = (
                f"the model server hung up each of the {self.count} times that this row was sent "
                f"alone, and answered others in between: {error}"
            )
            return Rejection("unavailable", message, "predict")
        message = (
            f"the model server left this row without an answer each of the {self.count} times that "
            f"it was sent alone, and answered others just before: {error}"
        )
        return Rejection("unavailable", message, "predict")


# What was answered longer ago tells little of how the server is now.
REMEMBERED = 200


class Mishaps:
    """How often connections break under rows that are well, as far as known: what a row that is
    blamed must differ from. `heard` is how many requests were answered in all. Owner: the calls of
    one model.
    """

    __slots__ = ("_count", "_since")

    def __init__(self) -> None:
        self._count = self._since = 0

    def happened(self, times: int, heard: int) -> None:
        self._count += times
        if heard - self._since > REMEMBERED:
            self._since, self._count = heard - REMEMBERED // 2, self._count // 2

    def chance(self, heard: int) -> float:
        """As if the next request would break: nothing is known of a server that is new."""
        return (self._count + 1) / (heard - self._since + self._count + 1)
