"""When is a request sent again? After a failure, how long to wait and when to give up: `Backoff`
is for any service, `Tries` for one object of a store. And before an answer, if it is late:
`Hedging`. Time and the random number are arguments.

Rule of `Hedging`: a request is late when it has waited longer than 95 of 100 of its size do. Second
requests are at most 5 of 100: each request earns a part of one, and a failure costs several. None
are sent while the service is strained or has the most it may get at a time. (Dean and Barroso, "The
Tail at Scale", hedge after the 95th percentile for the same reason; gRPC's hedging has such a
throttle.) Times are in classes that grow by a tenth, and count less with age, so that the
percentile follows a service whose times change.
"""

import math
from dataclasses import dataclass
from typing import Final, Literal

from penstock.core.health.limiter import Limiter
from penstock.errors import Poison, Unforeseen

# The longest pause that is granted: a server that asks for a longer one is misconfigured.
MOST_ASKED_S = 300.0
# The breaker and each replica have a budget. It is full at `FLOOR`; a failure spends one unit, and
# an answer earns `RETRY_SHARE`. A failing server may still work on requests that got no answer, so
# repeats may add only a tenth to its load. Retry budgets of other clients allow 10 to 20 %.
RETRY_SHARE = 0.1
FLOOR = 3.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential pauses. The jitter shortens each pause by up to half, so that workers do not try
    at the same moments.
    """

    first_s: float
    most_s: float
    give_up_s: float | None = None

    def delay_s(
        self, attempt: int, waited_s: float, jitter: float, asked_s: float | None = None
    ) -> float | None:
        """Seconds before the next try, or None: give up. `attempt`: how many tries in a row have
        failed, at least 1.

        `jitter` is a random number in [0, 1). `asked_s` is the pause that the other side asked for,
        granted up to `MOST_ASKED_S`.
        """
        if self.give_up_s is not None and waited_s >= self.give_up_s:
            return None
        step_s = min(self.most_s, self.first_s * 2.0 ** min(attempt - 1, 30))
        return max(step_s * (0.5 + jitter / 2), min(asked_s or 0.0, MOST_ASKED_S))


# How long an object is tried although its store answers other requests but not those for this
# object, or although the transfer keeps breaking at the same byte: two minutes, as long as a
# rolling update of a cluster takes.
GIVE_UP_S = 120.0
RETRY = Backoff(first_s=0.1, most_s=5.0, give_up_s=GIVE_UP_S)
# A store that does not answer at all says nothing about the object, so the tries never end.
AWAY_RETRY = Backoff(first_s=0.1, most_s=5.0)
LATE_OBJECT_POLL_S = 0.1


class Tries:
    """All failed tries to read one object, the first of which began at `began_s`. The object is
    given up after some time without new bytes. Time counts only while the store was there and this
    worker did not keep the transfer waiting. `mishaps`: how many tries ended with an unforeseen
    exception. `last_s`: when the last try failed.
    """

    def __init__(self, began_s: float, ill: Backoff = RETRY, away: Backoff = AWAY_RETRY) -> None:
        self.count = self.mishaps = 0
        self._ill = ill
        self._away = away
        self._began_s = self.last_s = began_s
        self._in_a_row = 0
        self._waited_s = self._ill_s = 0.0

    def failed(
        self,
        now_s: float,
        waited_s: float,
        jitter: float,
        asked_s: float | None,
        *,
        is_away: bool,
        has_new: bool,
    ) -> float | None:
        """Seconds before the next try; None: give up. `waited_s`: how long this worker kept the
        transfer waiting, in all tries together. `is_away`: the store did not answer at all, which
        says nothing about the object. `has_new`: this try read bytes that no try before it had
        reached.
        """
        self.count += 1
        spent_s = now_s - self.last_s - (waited_s - self._waited_s)
        self.last_s, self._waited_s = now_s, waited_s
        self._in_a_row += 1
        if has_new:
            self._in_a_row, self._ill_s = 1, 0.0
        elif not is_away:
            self._ill_s += spent_s
        backoff = self._away if is_away else self._ill
        if asked_s is not None and backoff.give_up_s is not None:
            # A pause longer than the time that is left would only delay the moment of giving up.
            asked_s = min(asked_s, max(0.0, backoff.give_up_s - self._ill_s))
        return backoff.delay_s(self._in_a_row, self._ill_s, jitter, asked_s)

    def refused(self, error: Poison, now_s: float, wait_for_object_s: float) -> float | None:
        """Seconds before the next try; None: give up. `error`: the error lies in the object itself,
        not in the store. `wait_for_object_s`: how long an announced object may be missing.
        """
        self.count += 1
        if isinstance(error, Unforeseen):
            self.mishaps += 1
            return 0.0 if self.mishaps == 1 else None
        is_late = error.code == "not_found" and now_s - self._began_s < wait_for_object_s
        return LATE_OBJECT_POLL_S if is_late else None


# The share of requests that are late, and so the most that may be sent again.
LATE_SHARE: Final = 0.05
# Each request earns `LATE_SHARE` of a second one. At most this many are saved up, so that after a
# quiet hour not all requests are sent twice. gRPC's throttle saves up as many by default.
MOST_SAVED: Final = 10.0
# With fewer answers than this there is no 95th percentile.
LEAST_ANSWERS: Final = 20
# A busy worker reads answers some milliseconds late. A request that is late by less than this would
# be sent again for nothing.
LEAST_S: Final = 0.020
# A request without an answer costs as many second requests as 100 requests earn. So none are sent
# while one request in a hundred fails, but one object that fails again and again ends them for
# nobody else.
FAILURE_COST: Final = 5.0
# After a service said that it has too much to do, no second request is sent for this long, as long
# as a limit grows with caution.
REST_S: Final = 10.0
# Classes of times: the first one ends at `SHORTEST_S`, each further one is a tenth longer, and the
# last one begins at ten minutes.
SHORTEST_S: Final = 0.0005
_GROWTH: Final = math.log(1.1)
_CLASSES: Final = 148
# When this many times are kept, all counts are halved.
MOST_KEPT: Final = 1_000
# The percentile is looked up once for so many times.
LOOK_UP_EVERY: Final = 16

# What became of a second request: it answered first (`won`), or it did not (`lost`). `resumed`: the
# rest of a stalled body was asked for.
Outcome = Literal["won", "lost", "resumed"]

# Where classes of sizes end: a request of an unknown size is of class 0.
_SIZES: Final = (64 << 10, 1 << 20, 8 << 20)


def size_class(nbytes: int | None) -> int:
    if nbytes is None:
        return 0
    return 1 + sum(nbytes > most for most in _SIZES)


class Times:
    """How long the last requests took."""

    __slots__ = ("_counts", "_late_s", "_seen", "_total")

    def __init__(self) -> None:
        self._counts = [0.0] * _CLASSES
        self._total = 0.0
        self._seen = 0
        self._late_s: float | None = None

    def add(self, took_s: float) -> None:
        place = 0
        if took_s > SHORTEST_S:
            place = min(_CLASSES - 1, 1 + int(math.log(took_s / SHORTEST_S) / _GROWTH))
        self._counts[place] += 1.0
        self._total += 1.0
        self._seen += 1
        if self._total >= MOST_KEPT:
            self._counts = [count / 2 for count in self._counts]
            self._total = sum(self._counts)
        if self._seen >= LEAST_ANSWERS and (
            self._late_s is None or self._seen % LOOK_UP_EVERY == 0
        ):
            self._late_s = self._percentile()

    @property
    def late_s(self) -> float | None:
        """Longer than this takes `LATE_SHARE` of the requests; None: it is not known yet."""
        return self._late_s

    def _percentile(self) -> float:
        above, place = 0.0, _CLASSES
        while place > 0 and above <= LATE_SHARE * self._total:
            place -= 1
            above += self._counts[place]
        return SHORTEST_S * math.exp(place * _GROWTH)


class TimesBySize:
    """How long the last requests took, by how many bytes they asked for. None: not known."""

    def __init__(self) -> None:
        self._of_size = [Times() for _ in range(2 + len(_SIZES))]

    def of(self, nbytes: int | None) -> Times:
        return self._of_size[size_class(nbytes)]


class Hedging:
    """Call `asked` at each request and `answered` at each answer. A request that has no answer
    `late_s` later may be sent again if `may_ask_again`.
    """

    def __init__(self, limiter: Limiter | None = None) -> None:
        """`limiter`: the limit of requests to the service, if it is known."""
        self.limiter = limiter
        self._all = Times()
        self._by_size = TimesBySize()
        self._saved = 1.0
        self._strained_until_s = -math.inf

    def asked(self) -> None:
        self._saved = min(MOST_SAVED, self._saved + LATE_SHARE)

    def late_s(self, nbytes: int | None) -> float | None:
        """After which time is a request of this size late? None: it is not known yet."""
        late_s = self._by_size.of(nbytes).late_s
        if late_s is None:
            late_s = self._all.late_s
        return None if late_s is None else max(LEAST_S, late_s)

    def may_ask_again(self, now_s: float) -> bool:
        """Take the permission to send one late request again."""
        if self._saved < 1.0 or now_s < self._strained_until_s:
            return False
        limiter = self.limiter
        if limiter is not None and (
            limiter.in_flight >= limiter.most or limiter.is_strained(now_s)
        ):
            return False
        self._saved -= 1.0
        return True

    def answered(self, nbytes: int | None, took_s: float) -> None:
        """`nbytes`: the size as it was known before the answer."""
        self._all.add(took_s)
        self._by_size.of(nbytes).add(took_s)

    def unanswered(self) -> None:
        self._saved = max(-MOST_SAVED, self._saved - FAILURE_COST)

    def refused(self, now_s: float) -> None:
        """The service said that it has too much to do."""
        self._strained_until_s = now_s + REST_S
