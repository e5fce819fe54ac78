"""What does a lost request tell? Are its rows bad, does the server fail at rows, or was it chance?
A request is lost if the server dies while it has the rows, hangs up on them, or does not answer.

Rule: a loss counts against several rows only when it repeats, and against a single row only when
chance would explain its losses less than once in a million times. Any answer or refusal clears the
count, but the search stays careful. Pure. Owners: one search for bad rows (`LostRequests`); the
health of one model server (`ChanceFailures`, `RowsUnanswered`).
"""

import math
from typing import NamedTuple

from penstock.core.rows.rejections import Rejection
from penstock.errors import HungUp, NoAnswer, WorkerDied

# Any cause, such as another request, may kill a worker process once. So several rows are split only
# after this many deaths, one after the other.
SPLIT_DEATHS = 2
# A single row is blamed only if nothing else is a likely cause. Assume that another cause kills the
# worker process every five seconds. A trial of t seconds that begins at a random moment is then hit
# with a chance of t / 5 s. The row is blamed when the product of these chances over all trials of
# the row is below one in a million.
LONE_DEATHS = 3
KILL_PERIOD_S = 5.0
MOST_DOUBT = 1e-6
# The assumed chance that a server begins to break connections at random just when a suspected row
# comes is one in a thousand. `MOST_DOUBT_OF_LATE` limits the chance that such a server breaks all
# requests with the row. So the product of both chances is at most `MOST_DOUBT`.
MOST_DOUBT_OF_LATE = 1e-3
# Several rows are split if the chance that their hang-ups came at random is at most this. A split
# costs requests, but rejects no row.
SPLIT_DOUBT = 0.1
# A row above the usual limit of a request counts as too large after this many broken connections,
# if the server was healthy right after each of them.
HANG_UPS = 2
# A slow trial proves little, but the trials must come to an end. So each trial at least halves the
# doubt, and twenty trials are enough.
LEAST_PROOF = 0.5
# If no good row is known, a row that is refused without a reason is blamed after this many tries,
# the canary, too: a server that is busy for three quarters of the time refuses all of them once in
# 300 times.
UNCONTROLLED_TRIES = 20


class _HangUp(NamedTuple):
    """One hang-up on the rows. Chance can explain it in two ways: `broken` requests one after the
    other broke at random; or another cause, which kills the server every five seconds, hit the
    trial. `hit`: the chance that such a kill hit the trial.
    """

    broken: int
    hit: float


class LostRequests:
    """How requests with the rows that are asked now were lost. `count`: how many times, one after
    the other, the worker process died; or how many times the server hung up. `hang_ups`: how often
    the connection broke under a row that may be too large. `kills_workers`: the worker process died
    twice during this search, so only one such search asks at a time. `breaks_connections`: the
    server hung up twice during this search, which does not harm other rows. `doubtful`: how often,
    one after the other, the rows were refused without a reason.
    """

    __slots__ = (
        "_doubt",
        "_hang_ups",
        "_heard",
        "_hung",
        "breaks_connections",
        "count",
        "doubtful",
        "hang_ups",
        "kills_workers",
    )

    def __init__(self) -> None:
        self.kills_workers = self.breaks_connections = self._hung = False
        self.forgive()

    def forgive(self) -> None:
        self.count = self.hang_ups = self.doubtful = 0
        # How many requests the server had answered when these rows last got no answer.
        self._heard = -1
        self._doubt = 1.0
        self._hang_ups: list[_HangUp] = []

    def died(self, rows: int, after_s: float) -> bool:
        """The worker process died `after_s` after these rows were sent. Returns True if the death
        counts as a refusal.
        """
        self._count(hung=False)
        self._doubt *= min(LEAST_PROOF, after_s / KILL_PERIOD_S)
        self.kills_workers = self.kills_workers or self.count >= SPLIT_DEATHS
        if rows > 1:
            return self.kills_workers
        return self.count >= LONE_DEATHS and self._doubt <= MOST_DOUBT

    def hung_up(self, rows: int, odds: "Odds") -> bool:
        """The server hung up on these rows. Returns True if that counts as a refusal."""
        self._count(hung=True)
        self._hang_ups.append(_HangUp(1, 0.0))
        self.breaks_connections = self.breaks_connections or self.count >= SPLIT_DEATHS
        doubt = math.prod(max(odds.usual**one.broken, one.hit) for one in self._hang_ups)
        if rows > 1:
            return self.breaks_connections and doubt <= SPLIT_DOUBT
        broken = sum(one.broken for one in self._hang_ups)
        return self.count >= LONE_DEATHS and odds.are_against(broken, doubt)

    def _count(self, *, hung: bool) -> None:
        """Deaths and hang-ups are counted separately. The error that is reported must have come at
        each of the counted losses, so a loss of the other kind begins a new count.
        """
        if hung is not self._hung:
            self._hung, self.count, self._doubt, self._hang_ups = hung, 0, 1.0, []
        self.count += 1

    def doubted(self, rows: int, odds: "Odds", *, has_control: bool) -> bool:
        """The rows were refused without a reason, maybe only because the server was busy. Returns
        True if that counts as a refusal. `has_control`: rows that are known to be good can be asked
        in between.
        """
        self.doubtful += 1
        tries = self.doubtful
        if rows > 1:
            return odds.share**tries <= SPLIT_DOUBT
        return odds.are_against(tries, odds.usual**tries) or (
            not has_control and tries >= UNCONTROLLED_TRIES
        )

    def broke(self) -> bool:
        """The connection broke while one row above the usual limit was sent, and the server was
        healthy right after. Returns True if the row counts as too large.
        """
        self.hang_ups += 1
        return self.hang_ups >= HANG_UPS

    def server_was_gone(self, after_s: float) -> None:
        """The server was gone after it hung up, so two requests were lost one after the other.
        `after_s`: the time from the sending of the rows until the server was gone. Another cause
        may have killed the server in this time, so a longer time proves less.
        """
        self._hang_ups[-1] = _HangUp(2, min(LEAST_PROOF, after_s / KILL_PERIOD_S))

    def unanswered(self, rows: int, heard: int, after_s: float, odds: "Odds | None") -> bool:
        """The rows got no answer. True: that counts as a refusal. `heard`: how many requests the
        server has answered so far; `after_s`: how long the rows waited for an answer, but at most
        the time of the slowest answer. A server that is away says nothing about rows. So the loss
        counts (like a death) only if the server has answered any request since these rows were last
        lost. `odds`: given only if the server hung up, because a server may hang up at random.
        """
        before, self._heard = self._heard, heard
        if heard == before or not self.died(rows, after_s):
            return False
        return rows > 1 or odds is None or odds.are_against(self.count, odds.usual**self.count)

    def why(self, error: WorkerDied | NoAnswer) -> Rejection:
        """The rejection of a row that was sent alone `count` times and met this error each time."""
        if isinstance(error, WorkerDied):
            message = (
                f"the model's worker process died each of the {self.count} times that this row was "
                f"sent alone, and had answered just before: {error}"
            )
            return Rejection("model_rejected", message, "predict")
        if isinstance(error, HungUp):
            others = "others" if self._hung else "questions without rows"
            message = (
                f"the model server hung up each of the {self.count} times that this row was sent "
                f"alone, and answered {others} in between: {error}"
            )
            return Rejection("unavailable", message, "predict")
        message = (
            f"the model server left this row without an answer each of the {self.count} times that "
            f"it was sent alone, and answered others just before: {error}"
        )
        return Rejection("unavailable", message, "predict")


# The chance of a hang-up is estimated from about this many last answers. Older answers tell little
# about the server as it is now.
REMEMBERED = 200
# If a server hangs up after this many answers without a hang-up, it may have begun to hang up at
# random.
QUIET_ANSWERS = 100


class Odds(NamedTuple):
    """How likely it is that a connection breaks under good rows. `usual`: the chance over a long
    time. `broken` and `answered`: how many good requests broke, and how many were answered, since
    the server began to hang up.
    """

    usual: float
    broken: int
    answered: int

    def are_against(self, times: int, doubt: float) -> bool:
        """Is it certain enough that the row is the cause, after `times` of its requests broke one
        after the other? `doubt`: the chance that they broke without the row.
        """
        return doubt <= MOST_DOUBT and self.of_late(times) <= MOST_DOUBT_OF_LATE

    @property
    def share(self) -> float:
        """The share of good requests that broke since the server began to break them."""
        return self.broken / max(1, self.broken + self.answered)

    def of_late(self, times: int) -> float:
        """The chance that `times` requests break one after the other, if the server began to break
        connections at random when it first hung up. The share of connections that it then breaks is
        unknown, so every share is taken to be equally likely.
        """
        return math.prod(
            (1 + self.broken + number) / (2 + self.broken + self.answered + number)
            for number in range(times)
        )


class ChanceFailures:
    """How often connections break under good rows, or good rows are refused without a reason. The
    more often that happens, the more failures it takes until a row is blamed. `heard`: how many
    requests were answered in all.
    """

    __slots__ = ("_began", "_count", "_last", "_of_late", "_since")

    def __init__(self) -> None:
        self._count = self._since = self._began = self._of_late = 0
        self._last = -QUIET_ANSWERS

    def seen(self, heard: int) -> None:
        """Call this at each failure, whether it comes under good rows or under bad ones."""
        if heard - self._last >= QUIET_ANSWERS:
            self._began, self._of_late = heard, 0
        self._last = heard

    def odds(self, heard: int) -> Odds:
        return Odds(self.chance(heard), self._of_late, heard - self._began)

    def happened(self, times: int, heard: int) -> None:
        """`times` requests with good rows failed."""
        self._of_late += times
        self._count += times
        if heard - self._since > REMEMBERED:
            self._since, self._count = heard - REMEMBERED // 2, self._count // 2

    def chance(self, heard: int) -> float:
        """The chance that the connection of a good request breaks. The next request is counted as
        if it had broken, so that a new server is not trusted too much.
        """
        return (self._count + 1) / (heard - self._since + self._count + 1)
