"""How long to wait before the next try, and when to give up. `Backoff` is for any service, `Tries`
for one object of a store. Time and the random number are arguments.
"""

from dataclasses import dataclass

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
    """All tries to read one object. The object is given up after some time without new bytes. Time
    counts only while the store was there and this worker did not keep the transfer waiting.
    `mishaps`: how many tries ended with an unforeseen exception.
    """

    def __init__(self, now_s: float, ill: Backoff = RETRY, away: Backoff = AWAY_RETRY) -> None:
        self.count = self.mishaps = 0
        self.is_open = False
        self._ill = ill
        self._away = away
        self._began_s = self._since_s = now_s
        self._in_a_row = 0
        self._ill_s = 0.0

    def begin(self) -> None:
        self.count += 1
        self.is_open = False

    def kept_waiting(self, seconds: float) -> None:
        """This worker kept the transfer waiting for `seconds`, which do not count against the
        object.
        """
        self._since_s += seconds

    def failed(
        self, now_s: float, jitter: float, asked_s: float | None, *, is_away: bool, has_new: bool
    ) -> float | None:
        """Seconds before the next try; None: give up. `is_away`: the store did not answer at all,
        which says nothing about the object. `has_new`: this try read bytes that no try before it
        had reached.
        """
        spent_s, self._since_s = now_s - self._since_s, now_s
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
        if isinstance(error, Unforeseen):
            self.mishaps += 1
            return 0.0 if self.mishaps == 1 else None
        is_late = error.code == "not_found" and now_s - self._began_s < wait_for_object_s
        return LATE_OBJECT_POLL_S if is_late else None
