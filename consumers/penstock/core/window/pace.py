"""Batch size and wait, learned from the time of calls and the latency target; and from when rows
that are held back may leave: those of huge objects, and those of streams that go apart.

Rule of batches: a call's time is fitted as `base + rows * per_row`, where recent calls count more.

- Rows of a batch: as many as a call answers in half of the time that the rest of the way leaves,
  but at least so many that the base is a small part of the call's cost.
- Wait: as long as a call takes, if the server is busy half of the time or more; the more it is
  idle, the shorter. On a full processor (where timers ring late) every request is worth avoiding:
  the wait grows up to the fixed wait, which it never exceeds.

The fixed values hold while there is no data, or no batch could reach the target; but then, too, no
call has more rows than about a second's, or than make its base a small part of it.

Rule of what is held back: huge objects give way to small live objects, and a replay gives way to
the live group. While fresh small objects arrive, here or for the live group beside a replay, only
one batch of backlog is with the model at a time, and then backlog pauses for a multiple of the time
that it took: a fixed share of one call slot on any machine. Without fresh small objects it makes no
pause, because a group that is late anyway needs throughput. A replay stands still while the live
group is late. Streams apart have as many calls at a time as do not slow the calls of all other
streams, to which always one is left if there may be several. How many calls a server really works
on at a time is not known, so the number begins at one and is tried. Pure: time is an argument.
"""

import math
from dataclasses import dataclass, field
from typing import Final

from penstock.core.health.other_groups import Neighbour
from penstock.core.window.read_share import ReadShare

# How many calls must be known before the fit is used, and how many calls the fit remembers, which
# is a few seconds of calls.
MIN_CALLS = 20
MEMORY_CALLS = 300.0
# The share of the target that one call may take; the other half is for waiting and queueing.
CALL_SHARE = 0.5
# How busy the server is: the share of time with a call under way, as a moving average with this
# time constant. If the share is `FULL_WAIT_BUSY` or more, a row waits as long as a call takes,
# because otherwise calls would queue.
BUSY_MEMORY_S = 1.0
FULL_WAIT_BUSY = 0.5
# On an idle machine a timer rings up to 1 ms late, 0.5 ms on average, because the event loop counts
# in whole milliseconds. From three times that average on, the processor counts as full.
IDLE_LATE_S = 0.0007
FULL_LATE_S = 0.0015
# Weight of the newest timer in the average lateness: a memory of some tenths of a second.
LATE_STEP = 0.05
# The wait never falls to zero: lateness is learned from timers, and without a wait no timer would
# be set.
LEAST_WAIT_S = 0.0005
# Batches with fewer rows save no measurable time, and cost the server more per row.
LEAST_ROWS = 32
# A call's base may be at most a quarter of the time that its rows take. With smaller batches each
# row of a large object would cost as much as a row that comes alone.
ROWS_TO_BASE = 4.0
# If no batch is small enough to reach the target, none need be longer than this: rows of other
# streams wait for it.
MOST_CALL_S = 1.0
# A server that is so slow at first gets batches that grow: until it is known what takes its time, a
# batch has at most twice the rows of any before.
SLOW_CALL_S = 0.25
# If more than this share of the target is spent elsewhere, no batch is small enough to reach the
# target.
LOST_SHARE = 0.8
# Which quantile of the time spent elsewhere is tracked, and how far each step of the tracking goes,
# as a share of the target.
ELSEWHERE_QUANTILE = 0.95
ELSEWHERE_STEP = 0.02


@dataclass(slots=True)
class CallFit:
    """Least squares of call time over rows. Older calls count less and less."""

    weight: float = 0.0
    rows: float = 0.0
    time_s: float = 0.0
    rows_rows: float = 0.0
    rows_time: float = 0.0
    calls: int = 0

    def add(self, rows: int, took_s: float) -> None:
        keep = 1.0 - 1.0 / MEMORY_CALLS
        self.weight = self.weight * keep + 1.0
        self.rows = self.rows * keep + rows
        self.time_s = self.time_s * keep + took_s
        self.rows_rows = self.rows_rows * keep + rows * rows
        self.rows_time = self.rows_time * keep + rows * took_s
        self.calls += 1

    def line(self) -> tuple[float, float]:
        """Returns (base, per row) in seconds, neither below zero. If all calls had the same number
        of rows, all of the time is base.
        """
        mean_rows, mean_s = self.rows / self.weight, self.time_s / self.weight
        spread = self.rows_rows / self.weight - mean_rows * mean_rows
        if spread <= 1e-9 * (1.0 + mean_rows * mean_rows):
            return mean_s, 0.0
        slope = (self.rows_time / self.weight - mean_rows * mean_s) / spread
        per_row_s = min(max(slope, 0.0), mean_s / mean_rows)
        return mean_s - per_row_s * mean_rows, per_row_s

    def call_s(self, rows: int) -> float:
        """The time that a call of this many rows should take."""
        base_s, per_row_s = self.line()
        return base_s + per_row_s * rows


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The limits that hold for the window."""

    max_rows: int
    max_wait_s: float


@dataclass(slots=True)
class Pace:
    """`fixed`: the configured values. They are the upper bounds, and they hold until enough calls
    are known.
    """

    fixed: BatchPlan
    target_s: float
    _fit: CallFit = field(default_factory=CallFit)
    _elsewhere_s: float = 0.0
    _answered_s: float = 0.0
    _busy: float = 0.0
    _late_s: float = 0.0
    _largest: int = 0

    @property
    def elsewhere_s(self) -> float:
        """What an object spends before the window and after the call, as a high quantile."""
        return self._elsewhere_s

    def answered(self, rows: int, took_s: float, now_s: float) -> None:
        """A call with `rows` rows took `took_s`, and ended now."""
        passed_s = max(now_s - self._answered_s, 1e-6)
        self._answered_s = now_s
        self._busy += min(1.0, passed_s / BUSY_MEMORY_S) * (took_s / passed_s - self._busy)
        self._fit.add(rows, took_s)
        self._largest = max(self._largest, rows)

    def elsewhere(self, spent_s: float) -> None:
        """Call this for each delivered object. `spent_s`: the time that it spent before the window,
        plus the time that it spent after the call. The pace tracks a high quantile of these sums.
        """
        step_s = ELSEWHERE_STEP * self.target_s
        up = spent_s > self._elsewhere_s
        moved = step_s * (ELSEWHERE_QUANTILE if up else ELSEWHERE_QUANTILE - 1.0)
        self._elsewhere_s = min(max(0.0, self._elsewhere_s + moved), self.target_s)

    def rang(self, late_s: float) -> None:
        """A timer of the window rang `late_s` after it was due."""
        self._late_s += LATE_STEP * (late_s - self._late_s)

    def size(self, rows: int) -> float:
        """How many times as long as the average a call of this many rows should take."""
        if self._fit.calls < MIN_CALLS:
            return 1.0
        usual_s = self._fit.call_s(round(self._fit.rows / self._fit.weight))
        return max(self._fit.call_s(rows), 1e-6) / max(usual_s, 1e-6)

    def plan(self) -> BatchPlan:
        """The limits that hold now."""
        fit = self._fit
        if not fit.calls:
            return self.fixed
        base_s, per_row_s = fit.line()
        left_s = self.target_s - self._elsewhere_s
        call_s = base_s + per_row_s * round(fit.rows / fit.weight)
        is_lost = self._elsewhere_s > LOST_SHARE * self.target_s
        is_slow = min(call_s, base_s + per_row_s * LEAST_ROWS) > left_s
        if fit.calls < MIN_CALLS or is_lost or is_slow:
            most_rows = self._most_rows(MOST_CALL_S, base_s, per_row_s, 1)
            if fit.time_s > SLOW_CALL_S * fit.weight:
                most_rows = min(most_rows, 2 * self._largest)
            if most_rows == self.fixed.max_rows:
                return self.fixed
            return BatchPlan(most_rows, self.fixed.max_wait_s)
        most_rows = self._most_rows(CALL_SHARE * left_s, base_s, per_row_s, LEAST_ROWS)
        return BatchPlan(most_rows, self._wait_s(left_s, call_s))

    def _most_rows(self, most_s: float, base_s: float, per_row_s: float, least: int) -> int:
        if per_row_s <= 0.0:
            return self.fixed.max_rows
        fitting = (most_s - base_s) / per_row_s
        worthwhile = ROWS_TO_BASE * base_s / per_row_s
        return int(min(self.fixed.max_rows, max(least, fitting, worthwhile)))

    def _wait_s(self, left_s: float, call_s: float) -> float:
        """How long a row waits for other rows. On a full machine a row waits longer, even beyond
        the target, because more requests would only make the answers later.
        """
        most_s = self.fixed.max_wait_s
        company_s = call_s * min(1.0, self._busy / FULL_WAIT_BUSY)
        room_s = left_s * (1 - CALL_SHARE) - call_s
        wait_s = min(most_s, max(LEAST_WAIT_S, min(company_s, room_s)))
        fullness = (self._late_s - IDLE_LATE_S) / (FULL_LATE_S - IDLE_LATE_S)
        return wait_s + min(1.0, max(0.0, fullness)) * (most_s - wait_s)


# The rows of an object from this number on are backlog. 8,192 rows are more than a second of any
# sensor's rows, and a twentieth of a second of this worker's throughput.
BACKLOG_ROWS = 8_192
# How long after a small object the next one is still expected: two ticks of a stream at 20 Hz.
EXPECT_S = 0.1
# An object that is read later than this after its announcement belongs to a backlog, not to a live
# stream.
FRESH_S = 1.0
# How long backlog pauses after a batch, as a multiple of the time that the batch's call took.
REST = 3.0
# The upper limit of this pause, for slow servers with long calls.
MOST_REST_S = 0.1
# A call was held up if it took this many times as long, for what its rows cost, as fast calls do,
# and this share of what a call apart takes. If calls apart are hardly longer than others, they hold
# nothing up.
HELD_UP: Final = 8.0
HELD_SHARE: Final = 1 / 3
# The number shrinks if more than this share of the last calls was held up, and grows after so many
# calls if less than the other share was.
SHRINK_SHARE: Final = 0.3
GROW_SHARE: Final = 0.05
STEP: Final = 0.1
GROW_CALLS: Final = 20
# After the number has shrunk it stays for this long, each time twice as long up to `MOST_STAY_S`.
STAY_S: Final = 30.0
MOST_STAY_S: Final = 480.0
# What is known of a call's cost is no smaller.
LEAST_S: Final = 0.0001
# The fastest call counts less with each further call, so a server may become slower.
FADES: Final = 1.01
# After this time without a call of another stream there is none to hold up.
QUIET_S: Final = 1.0


class ApartCalls:
    """Call `taken` and `done` for each batch. After each of them, no batch apart may leave before
    `from_s`. `most`: how many calls apart may be in flight beside others.
    """

    def __init__(self) -> None:
        self.most = 1
        self._in_flight = self._others = 0
        self._apart_s = 0.0
        self._fast = math.inf
        self._held_up = 0.0
        self._calls = 0
        self._stay_s = STAY_S
        self._stay_until_s = -math.inf
        self._others_s = -math.inf

    def from_s(self, calls: int) -> float:
        """`calls`: how many calls there may be at a time, of all streams."""
        if self._in_flight < max(1, min(self.most, calls - 1)):
            return 0.0
        if self._others or self._in_flight >= calls:
            return math.inf
        return self._others_s + QUIET_S

    def taken(self, now_s: float, *, is_apart: bool) -> int:
        """Returns beside how many calls apart this one goes."""
        beside = self._in_flight
        if is_apart:
            self._in_flight += 1
        else:
            self._others += 1
        return beside

    def done(
        self, took_s: float, likely_s: float, beside: int, now_s: float, *, is_apart: bool
    ) -> None:
        """`likely_s`: what the rows cost; 0 if that is not known, or no stream goes apart."""
        if is_apart:
            self._in_flight -= 1
            self._apart_s += STEP * (took_s - self._apart_s) if self._apart_s else took_s
            return
        self._others -= 1
        self._others_s = now_s
        if not likely_s:
            return
        times = took_s / max(likely_s, LEAST_S)
        self._fast = min(FADES * self._fast, times)
        # A call beside fewer calls apart tells nothing of the present number.
        if beside < self.most:
            return
        is_held_up = times > HELD_UP * self._fast and took_s > HELD_SHARE * self._apart_s
        self._held_up += STEP * (is_held_up - self._held_up)
        self._calls += 1
        if self._held_up > SHRINK_SHARE:
            self._change(max(1, self.most - 1))
            self._stay_until_s = now_s + self._stay_s
            self._stay_s = min(MOST_STAY_S, 2 * self._stay_s)
        elif (
            self._calls >= GROW_CALLS and self._held_up < GROW_SHARE and now_s >= self._stay_until_s
        ):
            self._change(self.most + 1)

    def _change(self, most: int) -> None:
        self.most, self._held_up, self._calls = most, 0.0, 0


class BacklogPace:
    """Call each method when its event happens. `beside`, `taken` and `answered` return the time
    before which no backlog may leave.
    """

    def __init__(self) -> None:
        self._expected_until_s = -math.inf
        self._neighbour: Neighbour = "quiet"
        self._reads = ReadShare()

    def beside(self, neighbour: Neighbour) -> float:
        """Note the state of the live group that runs beside this replay."""
        self._neighbour = neighbour
        return math.inf if neighbour == "behind" else 0.0

    def read(self, rows: int, age_s: float, now_s: float) -> None:
        """An object of `rows` rows was read, `age_s` after it was announced."""
        if rows < BACKLOG_ROWS and age_s <= FRESH_S:
            self._expected_until_s = now_s + EXPECT_S

    def live(self, took_s: float, now_s: float) -> None:
        """An object was read, `took_s` after its record came, of a stream that goes before those
        whose class is backlog. It does so also if it is late: backlog may be what makes it late.
        """
        self._expected_until_s = now_s + FRESH_S
        self._reads.live(took_s, now_s)

    def reads(self, now_s: float) -> float:
        """How many objects of backlog may be read at a time."""
        return self._reads.at_a_time if self._has_live(now_s) else math.inf

    def begin_read(self) -> None:
        """An object of backlog is read now. Then call `rest_s`."""
        self._reads.begin()

    def rest_s(self, took_s: float, now_s: float, *, is_wanted: bool) -> float:
        """How long to rest behind an object of backlog whose read took so long. `is_wanted`: more
        objects wait for their turn.
        """
        rest_s = self._reads.rest_s(took_s, now_s, is_wanted=is_wanted)
        return rest_s if self._has_live(now_s) else 0.0

    def taken(self, now_s: float) -> float:
        """A batch with backlog goes to the model."""
        return math.inf if self._has_live(now_s) else 0.0

    def answered(self, took_s: float, now_s: float) -> float:
        """The batch with backlog was answered after `took_s`."""
        if self._neighbour == "behind":
            return math.inf
        return now_s + min(MOST_REST_S, REST * took_s) if self._has_live(now_s) else 0.0

    def _has_live(self, now_s: float) -> bool:
        return now_s < self._expected_until_s or self._neighbour != "quiet"
