"""Batch size and wait, learned from the time of calls and the latency target.

Rule: a call's time is fitted as `base + rows * per_row`, where recent calls count more.

- Rows of a batch: as many as a call answers in half of the time that the rest of the way leaves,
  but at least so many that the base is a small part of the call's cost.
- Wait: as long as a call takes, if the server is busy half of the time or more; the more it is
  idle, the shorter. On a full processor (where timers ring late) every request is worth avoiding:
  the wait grows up to the fixed wait, which it never exceeds.

The fixed values hold while there is no data, or no batch could reach the target; but then, too, no
call has more rows than about a second's, or than make its base a small part of it.
"""

from dataclasses import dataclass, field

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
