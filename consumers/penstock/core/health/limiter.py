"""How many requests a service gets at a time: a store its reads, a model its calls.

Rule: the limit grows while work waits for it and more requests at a time bring more answers. Its
measure is an experiment: requests are sent at two levels in turn, and by Little's law the answers
per second are `level / time`. A step is worth it if at least a quarter of it is gained (`WORTH`).
Earlier latencies are never compared: a store may go from 2 to 60 ms, and then needs more requests
at a time, not fewer.

- Work waits while at least a tenth of the requests find the limit reached; otherwise nothing
  changes.
- If answers take half as long again as in the last comparison, half of the level tells whether the
  service is farther away or bears less.
- A service that has too much to do, or does not answer in time, halves the limit, once for all
  requests that were under way; it goes back fast to a part of where it was, then slowly. What is
  refused before the service has borne anything again tells no other level.
- A limit that was set as a number only shrinks by failures, and goes back to that number.
- A request that takes many times as long as most, while later ones are answered, is late by what it
  asks for. It takes no room of others (`relieve`).

Pure: time is an argument.
"""

import math
from dataclasses import dataclass
from typing import Final, Literal

# A higher level must gain at least this share of the step: with an exponent of 0.75, a step of 50 %
# must bring at least 11 % more answers. A store whose time grows with the square of the level is
# held at 0.65 to 0.9 of the best level, where it gives 91 to 99 % of its best.
WORTH: Final = 0.25
FAST_STEP: Final = 1.5
FINE_STEP: Final = 1.25
# The steps down before a service that has slowed.
WIDE_STEP: Final = 2.0
WIDEST_STEP: Final = 4.0
# A service has slowed if its answers take this many times as long as they did, though the level is
# the same. If the level is higher, they may take as many times as long as its square.
SLOWED: Final = 1.5
# At least this share of the requests must find the limit reached. With less, a higher limit hardly
# shortens the wait.
WAITING_SHARE: Final = 0.1
# Fewer answers of a level are not compared: lognormal times with a sigma of 0.4, as object stores
# have, have a mean that is certain to 14 % then.
LEAST_ANSWERS: Final = 8
# The times of answers that wait in one queue of the service rise and fall together, so they look
# more certain than they are. Their variance counts as at least this much.
LEAST_SPREAD: Final = 0.1
# After this many turns of both levels without a clear result the higher one is not worth it.
MOST_TURNS: Final = 6
# How long the limit rests after a step that was not worth it.
REST_S: Final = 1.0
# After a refusal the limit goes back fast to this share of the level at which it was refused. From
# there it takes this many answers for each step of one: a step too far costs a refused request,
# which is one in a hundred at this pace, and up to four at a service of 100 answers a second. If
# the level is passed by `PASSED` without another refusal, the refusal was chance, and steps are
# large again.
STEADY_SHARE: Final = 0.8
GROW_AFTER_ANSWERS: Final = 50
PASSED: Final = 1.25
# For this long after a refusal no request is made that is not needed.
CAUTION_S: Final = 10.0
# The time of answers that is usual at present counts the last 50 answers; the one that is usual in
# the long run counts ten minutes.
RECENT_ANSWERS: Final = 50
LONG_RUN_S: Final = 600.0
# A service is slower than itself if it takes this many times as long as it usually does.
SLOWER: Final = 2.0

# A request is late after this time, and after so many times the usual one. Of those that no later
# one has overtaken, one after the other is taken for late, and no more than the limit allows: if
# the service does not answer at all, it gets at most twice as many.
LATE_S: Final = 0.25
LATE_TIMES: Final = 8.0
# A late answer tells little of the others: it counts for no level, and as at most so many times the
# usual time. With 8 nearly nothing was late any more beside five slow cameras of ten; with 2 a
# service that becomes ten times slower gets too many requests for long.
LATE_COUNTS: Final = 4.0

# What holds the number of requests: too few arrivals; the service, because more requests at a time
# would bring no more answers, or because it said so; the configured most; None while it grows.
Holds = Literal["arrivals", "service", "most"]


@dataclass(slots=True, eq=False)
class LoadLevel:
    """One of the two levels that are compared, and the logarithms of the times of its answers. The
    logarithm makes a rare answer that takes a second count little.
    """

    requests: float
    answers: int = 0
    sum: float = 0.0
    squares: float = 0.0

    def add(self, log_s: float) -> None:
        self.answers += 1
        self.sum += log_s
        self.squares += log_s * log_s

    @property
    def mean(self) -> float:
        return self.sum / self.answers

    @property
    def error(self) -> float:
        """The variance of the mean."""
        spread = self.squares / self.answers - self.mean**2
        return max(LEAST_SPREAD, spread) / self.answers


class InFlight:
    """A request in flight. `round`: failures of one round count as one, because one cause makes
    them all. `place`: how many requests were in flight when it began, including this one. `size`:
    how many times as long as the average a request with as much to do should take. `is_late`: it
    takes no room of others.
    """

    __slots__ = ("began_s", "is_late", "level", "place", "round", "size")

    def __init__(self, began_s: float, round: int, place: int, level: LoadLevel | None) -> None:
        self.began_s = began_s
        self.round = round
        self.place = place
        self.level = level
        self.size = 1.0
        self.is_late = False


class Limiter:
    """While `has_room`, a request may `begin`. Then call exactly one of `answered`, `failed` and
    `dropped`. `begin_at`: the limit at the start; None: `most` is a constant.
    """

    def __init__(self, most: int, begin_at: int | None = None) -> None:
        self.most = most
        self.is_constant = begin_at is None
        self.in_flight = self.late = 0
        # In the order in which they began.
        self._open: dict[InFlight, None] = {}
        # When the newest began of those that were answered; and the last was taken for late that
        # none had overtaken.
        self._overtook_s = self._guessed_s = -math.inf
        self.limit = most if begin_at is None else min(begin_at, most)
        # The limit as a fraction; while two levels are compared, the lower one.
        self._level = float(self.limit)
        self._round = 0
        # A level that the service is known to bear: after a failure the limit goes back to it fast.
        self._steady = self._level
        # Up to this level the limit grows slowly, because the service refused there.
        self._ceiling = 0.0
        self._refused_s = -math.inf
        # Has the service answered a request that began after the last failure?
        self._is_bearing = True
        self._begun = self._at_limit = 0
        self._is_wanted = False
        self._low: LoadLevel | None = None
        self._high: LoadLevel | None = None
        self._measured: LoadLevel | None = None
        self._to_skip = 0
        self._turns = 0
        self._step = FAST_STEP
        # Did the last comparison find that a higher level is not worth it?
        self._is_held = False
        # Does the search go up (1) or down (-1), or does the next result tell (0)?
        self._way = 0
        # Is the best level between the last two?
        self._is_between = False
        self._rest_until_s = -math.inf
        # The level that the last comparison preferred.
        self._base: LoadLevel | None = None
        self._recent: float | None = None
        self._long_run: float | None = None
        self._answered_s = -math.inf
        # While requests are in flight: since when the service has not answered any.
        self._silent_since_s = -math.inf

    def __repr__(self) -> str:
        return f"{self.taken} of {self.limit} requests in flight, {self.late} late"

    @property
    def taken(self) -> int:
        """How many requests in flight take room of others."""
        return self.in_flight - self.late

    @property
    def has_room(self) -> bool:
        return self.taken < self.limit and self.in_flight < self.most

    def relieve(self, now_s: float) -> float | None:
        """Find the requests that are late. Returns after how many seconds to look again; None: not
        before a request begins or ends.
        """
        if self.is_constant or not self._open:
            return None
        late_s = max(LATE_S, LATE_TIMES * (self.answer_s or 0.0))
        if self.is_strained(now_s):
            return late_s
        guessed = 0
        for request in self._open:
            if request.is_late:
                guessed += request.began_s >= self._overtook_s
                continue
            if (left_s := request.began_s + late_s - now_s) > 0.0:
                return left_s
            if self.in_flight >= self.most:
                return None
            if request.began_s >= self._overtook_s:
                if guessed >= self.limit:
                    return None
                if (left_s := self._guessed_s + late_s - now_s) > 0.0:
                    return left_s
                self._guessed_s = now_s
            request.is_late = True
            self.late += 1
        return None

    def _end(self, request: InFlight) -> None:
        self.in_flight -= 1
        self.late -= request.is_late
        del self._open[request]

    @property
    def holds(self) -> Holds | None:
        """What keeps the number of requests in flight as it is. None: it is growing."""
        if not self._is_wanted:
            return "arrivals"
        if self._level >= self.most:
            return "most"
        return "service" if self._is_held else None

    def is_strained(self, now_s: float) -> bool:
        """True if the service refused a request in the last `CAUTION_S`, or did not answer in time
        and the limit is not back yet. Then no request may be made that is not needed.
        """
        return self._level < self._steady or now_s - self._refused_s < CAUTION_S

    @property
    def answer_s(self) -> float | None:
        """How long the service takes to answer at present. None: it has not answered yet."""
        return None if self._recent is None else math.exp(self._recent)

    @property
    def usual_s(self) -> float | None:
        """How long the service takes to answer in the long run."""
        return None if self._long_run is None else math.exp(self._long_run)

    @property
    def is_slower_than_usual(self) -> bool:
        recent, long_run = self._recent, self._long_run
        if recent is None or long_run is None:
            return False
        return recent - long_run > math.log(SLOWER)

    def silent_s(self, now_s: float) -> float:
        """How long requests have waited since the service last answered one; 0 if none waits."""
        return now_s - self._silent_since_s if self.in_flight else 0.0

    def idle_s(self, now_s: float) -> float:
        """How long the service has not been asked."""
        return 0.0 if self.in_flight else now_s - self._silent_since_s

    def begin(self, now_s: float) -> InFlight:
        if not self.in_flight:
            self._silent_since_s = now_s
        self.in_flight += 1
        place, level = self.taken, None
        self._begun += 1
        if place >= self.limit:
            self._at_limit += 1
            # Requests of the round in which the level changed are not counted: the service still
            # works on those of the other level.
            if self._to_skip:
                self._to_skip -= 1
            else:
                level = self._measured
        if self._begun >= max(self.limit, LEAST_ANSWERS):
            self._look_at_arrivals()
        request = InFlight(now_s, self._round, place, level)
        self._open[request] = None
        return request

    def asked_again(self, more: int) -> None:
        """So many more second requests are in flight. They take no room of others."""
        self.in_flight += more
        self.late += more

    def dropped(self, request: InFlight) -> None:
        """The request ended without telling anything about the service."""
        self._end(request)

    def heard(self, now_s: float) -> None:
        """The service answered a request whose time is not compared."""
        self._silent_since_s = now_s
        self._goes_back()

    def answered(self, request: InFlight, now_s: float) -> None:
        """The service answered. A refusal of what was asked counts as an answer."""
        self._end(request)
        self._overtook_s = max(self._overtook_s, request.began_s)
        self._silent_since_s = now_s
        if request.round == self._round:
            self._is_bearing = True
        log_s = math.log(max(now_s - request.began_s, 1e-6))
        self._note_time(self._as_usual(log_s) if request.is_late else log_s, now_s)
        if request.size != 1.0:
            log_s -= math.log(request.size)
        if self._goes_back():
            return
        if request.level is not None:
            if request.level is self._measured and not request.is_late:
                request.level.add(log_s)
                if request.level.answers >= self._enough(request.level):
                    self._measure_next(request.level, now_s)
        elif self._measured is None and self._is_wanted and now_s >= self._rest_until_s:
            self._begin_to_measure()

    def failed(self, request: InFlight, now_s: float, *, is_full: bool) -> None:
        """The service failed. `is_full`: it said that it has too much to do."""
        self._end(request)
        if is_full:
            self._silent_since_s = now_s
        if request.round != self._round:
            return
        self._round += 1
        is_same_event, self._is_bearing = not self._is_bearing, False
        # The requests that are in flight now, or were when it began, were too many.
        place = float(max(request.place, self.taken + 1))
        level = min(self._level, place) if is_full else self._level
        self._is_held = True
        self._forget()
        self._steady = max(self._level, self._steady)
        if is_full:
            self._refused_s = now_s
            self._step = FINE_STEP
            if not is_same_event:
                self._steady = max(1.0, level * STEADY_SHARE)
                self._ceiling = max(level + 1.0, level * PASSED)
        self._set(max(1.0, level / 2))

    def _goes_back(self) -> bool:
        """After a failure each answer raises the limit. False: the limit is back."""
        if self._level < self._steady:
            self._set(min(self._steady, self._level + 1.0))
        elif self.is_constant or self._level < self._ceiling:
            if self._level < self.most and (self.is_constant or self._is_wanted):
                self._set(min(float(self.most), self._level + 1.0 / GROW_AFTER_ANSWERS))
        else:
            return False
        return True

    def begins_anew(self) -> None:
        """The service works again after it was away: one request at a time, and soon more."""
        self._forget()
        self._set(1.0)

    def _set(self, level: float) -> None:
        self._level = level
        self.limit = round(level)

    def _move(self, level: float) -> None:
        self._steady = level
        self._set(level)

    def _as_usual(self, log_s: float) -> float:
        """What the time of a late answer tells of all others."""
        return log_s if self._recent is None else min(log_s, self._recent + math.log(LATE_COUNTS))

    def _note_time(self, log_s: float, now_s: float) -> None:
        if self._recent is None or self._long_run is None:
            self._recent = self._long_run = log_s
        else:
            self._recent += (log_s - self._recent) / RECENT_ANSWERS
            share = min(1.0, (now_s - self._answered_s) / LONG_RUN_S)
            self._long_run += share * (log_s - self._long_run)
        self._answered_s = now_s

    def _look_at_arrivals(self) -> None:
        """Does work wait for the limit?"""
        self._is_wanted = self._at_limit >= WAITING_SHARE * self._begun
        self._begun = self._at_limit = 0
        if self._is_wanted or self._measured is None:
            return
        # At the higher level no work waits any more, so that is the level to be at.
        if self._high is not None and self._measured is self._high:
            self._level = self._high.requests
        self._forget()
        self._move(self._level)

    def _forget(self) -> None:
        self._low = self._high = self._measured = self._base = None
        self._step, self._way, self._is_between = FAST_STEP, 0, False

    def _begin_to_measure(self) -> None:
        # The level of the last refusal is passed. Else a lower level could not be measured.
        self._ceiling = 0.0
        low = self._level
        if low >= self.most:
            low = self._below(low)
        self._low, self._high = LoadLevel(low), LoadLevel(self._above(low))
        self._turns = 0
        self._take(self._low if low == self._level else self._high)

    def _has_slowed(self, level: LoadLevel) -> bool:
        if self._base is None:
            return False
        times = max(1.0, level.requests / self._base.requests)
        return level.mean - math.sqrt(level.error) - self._base.mean > math.log(SLOWED * times**2)

    def _look_below(self, high: LoadLevel) -> None:
        self._forget()
        self._step = WIDE_STEP
        self._low, self._high = LoadLevel(self._below(high.requests)), high
        self._turns = 1
        self._take(self._low)

    def _take(self, level: LoadLevel) -> None:
        self._measured = level
        self.limit = round(level.requests)
        self._to_skip = self.limit

    def _enough(self, level: LoadLevel) -> int:
        return max(LEAST_ANSWERS, int(level.requests)) * (self._turns // 2 + 1)

    def _measure_next(self, measured: LoadLevel, now_s: float) -> None:
        low, high = self._low, self._high
        assert low is not None
        assert high is not None
        if self._has_slowed(measured):
            self._look_below(measured)
            return
        self._turns += 1
        other = high if measured is low else low
        if other.answers < LEAST_ANSWERS:
            self._take(other)
            return
        grew = high.mean - low.mean
        doubt = math.sqrt(low.error + high.error)
        even = (1.0 - WORTH) * math.log(high.requests / low.requests)
        if grew + doubt < even:
            self._went(1, high, now_s)
        elif grew - doubt > even:
            self._went(-1, low, now_s)
        elif self._turns < 2 * MOST_TURNS:
            self._take(other)
        else:
            self._rest(low, now_s)

    def _went(self, direction: int, to: LoadLevel, now_s: float) -> None:
        """A level was better than the other one: go on in its direction. If the step before went
        the other way, the best level is between the two, and steps become smaller.
        """
        if not self._way:
            self._way = direction
            self._step = min(self._step, FAST_STEP) if direction > 0 else max(self._step, FAST_STEP)
        elif self._is_between or direction != self._way:
            self._is_between = True
            self._step = math.sqrt(self._step)
        elif self._step >= WIDE_STEP:
            self._step = WIDEST_STEP
        self._is_held = self._is_between or direction < 0
        self._base = to
        is_end = to.requests >= self.most if direction > 0 else to.requests <= 1.0
        if is_end or (self._is_between and self._step < FINE_STEP):
            self._rest(to, now_s)
            return
        if self._way > 0:
            self._low, self._high = to, LoadLevel(self._above(to.requests))
            self._take(self._high)
        else:
            self._low, self._high = LoadLevel(self._below(to.requests)), to
            self._take(self._low)
        self._turns = 1
        self._level = self._steady = self._low.requests

    def _rest(self, at: LoadLevel, now_s: float) -> None:
        self._is_held = True
        self._rest_until_s = now_s + REST_S
        self._forget()
        self._step, self._base = FINE_STEP, at
        self._move(at.requests)

    def _above(self, level: float) -> float:
        return min(float(self.most), max(level * self._step, float(int(level) + 1)))

    def _below(self, level: float) -> float:
        return max(1.0, min(level / self._step, float(math.ceil(level) - 1)))
