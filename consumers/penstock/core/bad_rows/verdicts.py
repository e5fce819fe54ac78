"""What the end of a request says about its rows.

Rule: a failure counts against rows only if the server was well otherwise. A single row is blamed
only if chance would explain its failures less than once in a million times; several rows are cut as
soon as a failure repeats. `outcome_of` says what each error means; `Losses` counts the outcomes
that may be the server's fault, until any answer or refusal.
"""

import math
from enum import Enum, auto
from typing import Final, Literal, NamedTuple

from penstock.core.rows.rejections import Rejection
from penstock.errors import (
    Doubtful,
    ErrorCode,
    HungUp,
    NoAnswer,
    Overloaded,
    PenstockError,
    Poison,
    Transient,
    Unforeseen,
    WorkerDied,
)

LEAST_TRIALS: Final = 3
DOUBT: Final = 1e-6
DOUBT_OF_STEADY: Final = 1e-3
# A server is steady after this many answers without a failure. A failure that comes then may be the
# first of many, so the count begins anew.
STEADY_ANSWERS: Final = 100
# Older requests tell little about the server as it is now, so of more than this many each counts
# half.
REMEMBERED: Final = 200
MOST_NOTED: Final = 10 * REMEMBERED
# Several rows are cut when the probability that chance failed them is at most this. A cut costs
# requests, but rejects no row.
CUT_DOUBT: Final = 0.1
# Any cause, such as another request, may kill a worker process or break a connection once. So
# several rows are cut only after this many losses, one after the other.
CUT_LOSSES: Final = 2
# A single row is blamed for deaths only if nothing else is a likely cause. Assume that another
# cause kills the worker process every five seconds. A trial of t seconds that begins at a random
# moment is then hit with a chance of t / 5 s. The row is blamed when the product of these chances
# over all its trials is below one in a million.
LONE_DEATHS: Final = 3
KILL_PERIOD_S: Final = 5.0
MOST_DOUBT: Final = 1e-6
# A slow trial proves little, but the trials must come to an end. So each trial at least halves the
# doubt, and twenty trials are enough.
LEAST_PROOF: Final = 0.5
MOST_DEATHS: Final = 20
# A row above the usual limit of a request counts as too large after this many broken connections,
# if the server was healthy right after each of them.
OVERSIZE_HANG_UPS: Final = 2
# If no good row is known, a row that is refused without a reason is blamed after this many tries,
# the canary, too: a server that is busy for three quarters of the time refuses all of them once in
# 300 times. The next rows that are refused with the same words, before any row is answered, are
# blamed after `LEAST_TRIALS`.
UNCONTROLLED_TRIES: Final = 20


class Chance:
    """Did a row make its requests fail, or did the server fail by chance? All kinds of failure of
    one server that rows may have caused: a row may fail in one way now, and in another next time.
    `answered`, `broken`: the good requests since the server began to fail.

    Some servers break connections at random, or refuse rows because they are busy. So a row is
    blamed only if chance hardly explains its failures. Suppose that chance did it all: of the
    requests since the server began to fail, it hit those with the row and `broken` others, and
    spared `answered`. Then the probability that all `trials` of the row are among those that were
    hit is

        (broken + 1) / (answered + broken + 1) · (broken + 2) / (answered + broken + 2) · ...

    with one factor for each trial. One in a million blames the row. One in a thousand is enough if
    the server had been steady and has broken no good request since: that such a server begins to
    break requests at random just when a bad row comes has a probability of one in a thousand
    itself.

        steady | answered | broken | trials until the row is blamed
        yes    |       20 |      0 | 3
        yes    |        8 |      0 | 5
        no     |      200 |      0 | 3
        no     |       50 |      0 | 5
        no     |       10 |      0 | 13
        no     |       90 |     10 | 7
        no     |      100 |    100 | 22: half of all requests fail
    """

    __slots__ = ("_has_failed", "_in_a_row", "_was_steady", "answered", "broken")

    def __init__(self) -> None:
        self.answered = self.broken = self._in_a_row = 0
        self._has_failed = self._was_steady = False

    def succeeded(self, requests: int = 1) -> None:
        """So many requests, one after the other, did not fail."""
        self._in_a_row += requests
        # What was before the last `MOST_NOTED` of them counts no more.
        for _ in range(min(requests, MOST_NOTED)):
            self.answered += 1
            if self.answered + self.broken > REMEMBERED:
                self.answered, self.broken = self.answered // 2, self.broken // 2

    def failed(self) -> None:
        """A request failed, because of its rows or by chance."""
        is_steady = self._in_a_row >= STEADY_ANSWERS
        if is_steady or not self._has_failed:
            self._was_steady, self._has_failed = is_steady, True
            self.answered = self.broken = 0
        self._in_a_row = 0

    def explains(self, failures: int) -> None:
        """So many requests failed whose rows turned out to be good."""
        self.broken += failures
        self._was_steady = self._was_steady and not failures

    def blames(self, trials: int) -> bool:
        """True if the row is bad that was sent alone this often, and failed each time."""
        by_chance = math.prod(
            (self.broken + trial) / (self.answered + self.broken + trial)
            for trial in range(1, trials + 1)
        )
        most = DOUBT_OF_STEADY if self._was_steady else DOUBT
        return trials >= LEAST_TRIALS and by_chance <= most

    def cuts(self, failures: int) -> bool:
        """True if one of the rows seems bad that were sent together and failed this often."""
        return self._all_by_chance(failures) <= CUT_DOUBT

    def excludes(self, deaths: int) -> bool:
        """True if the server does not kill so many good requests in succession."""
        return self._all_by_chance(deaths) <= MOST_DOUBT

    def _all_by_chance(self, failures: int) -> float:
        share = self.broken / max(1, self.answered + self.broken)
        return float(share**failures)


class Kind(Enum):
    """What the end of a request says of its rows."""

    ANSWERED = auto()
    REFUSED = auto()  # at least one of them is bad
    TOO_MANY = auto()  # for one request
    NOTHING = auto()
    BUSY = auto()  # nothing; but some servers say so of any request above their limit
    CHANCE = auto()  # nothing; and what was lost before says nothing, either
    UNFORESEEN = auto()  # one is bad if the same happens once more
    # One is bad if `Losses` says so:
    DIED = auto()  # the server or its worker process died, or gave no answer
    HUNG_UP = auto()
    OVERSIZE = auto()  # the server hung up on a row above the usual limit
    DOUBTED = auto()  # the rows were refused without a reason


# How the server was after a request had failed: it answered other rows; it did not; it was gone
# because of the request; it was gone before the request; it was not asked.
Server = Literal["well", "ill", "gone", "away", "unasked"]
# What must come before the rows are asked again: nothing; a pause; the server must be healthy; it
# must be healthy, and the rows are then sent at a random moment.
Wait = Literal["nothing", "pause", "health", "trial"]


class Outcome(NamedTuple):
    """`after_s`: how long the request lasted. `chance`: how often good requests fail."""

    kind: Kind
    error: PenstockError | None = None
    wait: Wait = "nothing"
    after_s: float = 0.0
    chance: Chance | None = None
    has_control: bool = True

    @property
    def is_blind_doubt(self) -> bool:
        """The rows were refused without a reason, and no good row is known."""
        return self.kind is Kind.DOUBTED and not self.has_control

    def rejection(self, attempts: int) -> Rejection:
        """Why a row is rejected that met this outcome so many times when it was sent alone."""
        error = self.error
        if isinstance(error, Poison):
            return Rejection(error.code, str(error), "predict")
        if self.kind is Kind.OVERSIZE:
            message = f"the model server hangs up on this row, and answers others: {error}"
            return Rejection("too_large", message, "predict")
        others = "questions without rows"
        if self.has_control or not isinstance(error, HungUp):
            others = "others"
        message = (
            f"the model server failed each of the {attempts} times that this row was sent alone, "
            f"and answered {others} in between: {error}"
        )
        code: ErrorCode = "model_rejected" if isinstance(error, WorkerDied) else "unavailable"
        return Rejection(code, message, "predict")


ANSWERED: Final = Outcome(Kind.ANSWERED)


def outcome_of(
    error: PenstockError,
    server: Server,
    after_s: float,
    *,
    is_alone: bool,
    chance: Chance,
) -> Outcome:
    """What an error says, as one table; the first line that fits counts. `is_alone`: True if a
    single row was sent.
    """
    kind = Kind.NOTHING
    wait: Wait = "pause"
    match error:
        case HungUp() if server == "away":
            kind, wait = Kind.NOTHING, "trial"
        case NoAnswer(is_oversize=True) if is_alone and server == "well":
            kind, wait = Kind.OVERSIZE, "pause"
        case HungUp() if server == "ill":
            kind, wait = Kind.CHANCE, "nothing"
        case HungUp() if server != "gone":
            is_blind = is_alone and server == "unasked"
            kind, wait = Kind.HUNG_UP, "trial" if is_blind else "nothing"
        case WorkerDied() | NoAnswer():
            kind, wait = Kind.DIED, "trial" if is_alone else "health"
        case Overloaded():
            kind, wait = Kind.BUSY, "pause"
        case Transient():
            kind, wait = Kind.NOTHING, "pause"
        # The server took the canary before, and refuses it now; or it may be loading its model. So
        # the row need not be the cause.
        case Doubtful() if is_alone and server == "ill":
            kind, wait = Kind.NOTHING, "pause"
        case Poison() if is_alone and server == "ill":
            kind, wait = Kind.NOTHING, "health"
        case Doubtful():
            is_patient = chance.broken or server == "unasked"
            kind, wait = Kind.DOUBTED, "pause" if is_patient else "nothing"
        case Unforeseen() if is_alone:
            kind, wait = Kind.UNFORESEEN, "nothing"
        case Poison(code="too_large") if not is_alone:
            kind, wait = Kind.TOO_MANY, "nothing"
        case Poison():
            kind, wait = Kind.REFUSED, "nothing"
    is_chance = kind in (Kind.DIED, Kind.HUNG_UP, Kind.DOUBTED)
    return Outcome(
        kind,
        error,
        wait,
        after_s,
        chance if is_chance else None,
        has_control=server != "unasked",
    )


class Losses:
    """How requests with the rows that are asked now were lost, one after the other. `count`: how
    often, in whatever ways: a server may fail at a row in one way now, and in another next time.
    `kills_workers`: the server or its worker process died twice during this search, so only one
    such search asks at a time. `breaks_connections`: the server hung up twice during this search,
    which does not harm other rows.
    """

    __slots__ = ("_deaths", "_doubt", "_oversize", "breaks_connections", "count", "kills_workers")

    def __init__(self) -> None:
        self.kills_workers = self.breaks_connections = False
        self.forgive()

    def forgive(self) -> None:
        self.count = self._deaths = self._oversize = 0
        self._doubt = 1.0

    def add(
        self, outcome: Outcome, *, is_alone: bool, blind_tries: int = UNCONTROLLED_TRIES
    ) -> bool:
        """Returns True if the loss counts as a refusal. `blind_tries`: after so many doubts of a
        single row if no good row is known.
        """
        kind, chance = outcome.kind, outcome.chance
        self.count += 1
        if kind is Kind.OVERSIZE:
            self._oversize += 1
            return self._oversize >= OVERSIZE_HANG_UPS
        if kind is Kind.DIED:
            self._deaths += 1
            self._doubt *= min(LEAST_PROOF, outcome.after_s / KILL_PERIOD_S)
            self.kills_workers = self.kills_workers or self._deaths >= CUT_LOSSES
            if not is_alone:
                return self.kills_workers
            is_enough = self._deaths >= LONE_DEATHS and self._doubt <= MOST_DOUBT
            is_chance = chance is not None and not chance.excludes(self.count)
            return is_enough and (not is_chance or self._deaths >= MOST_DEATHS)
        assert chance is not None
        if is_alone:
            is_enough = outcome.is_blind_doubt and self.count >= blind_tries
            return chance.blames(self.count) or is_enough
        if kind is Kind.HUNG_UP:
            self.breaks_connections = self.breaks_connections or self.count >= CUT_LOSSES
            return self.breaks_connections and chance.cuts(self.count)
        return chance.cuts(self.count)
