"""The server's worker died of these rows, or of something else: when is that taken for a refusal?

Rule: a death is held against rows only after others in a row, and alone against one row only when
chance would explain them one time in a million. Any answer or refusal forgives all of it,
except that the search stays careful. Pure. Owner: one search for bad rows.
"""

# A worker process may die of anything once, and of its neighbours' deeds.
SPLIT_DEATHS = 2
# Alone, a row must be the only likely cause. Something else that kills every five seconds hits a
# trial of t seconds, begun at a random moment, with a chance of t / 5 s; all of them, in a row and
# by chance, one time in a million.
LONE_DEATHS = 3
KILL_PERIOD_S = 5.0
MOST_DOUBT = 1e-6
# A row above the usual limit of a request under which the connection broke so often, with a server
# that was well right after each, is taken for too large.
HANG_UPS = 2
# Slow trials prove little, but nothing is tried for ever: twenty of them are enough.
LEAST_PROOF = 0.5


class Deaths:
    """Of the rows that are asked now. `count`: how often in a row the worker died of them;
    `hang_ups`: how often the connection broke under a row that may be too large. `is_deadly`: the
    worker died twice of rows of this search, so that all are tried one part at a time.
    """

    __slots__ = ("_doubt", "_heard", "count", "hang_ups", "is_deadly")

    def __init__(self) -> None:
        self.is_deadly = False
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
        self.count += 1
        self._doubt *= min(LEAST_PROOF, after_s / KILL_PERIOD_S)
        self.is_deadly = self.is_deadly or self.count >= SPLIT_DEATHS
        if rows > 1:
            return self.is_deadly
        return self.count >= LONE_DEATHS and self._doubt <= MOST_DOUBT

    def unanswered(self, rows: int, heard: int, after_s: float) -> bool:
        """No answer came to the rows; `heard` tells how many requests the server has answered so
        far, `after_s` when one came at the latest so far. As a death, but only if it answered
        anything since the last time: a server that is away says nothing about rows.
        """
        before, self._heard = self._heard, heard
        return heard > before and self.died(rows, after_s)
