"""Batch size, wait and calls in flight, learned from what calls take and what latency is allowed.

Rule: a call's time is fitted as `base + rows * per_row`, recent calls counting more. The largest
batch is the one whose call still fits into half of the time that the rest of the way leaves, or the
smallest that costs the server little more per row, if that is larger. A row waits for company as
long as a call takes when the server is busy half of the time, and less the more it is idle: so a
server with room is asked at once, and one that gets slower less often. Where the processor is what
is short, and timers ring late, each request is worth avoiding: the wait grows to the fixed one,
which it never exceeds. Calls in flight grow by one and shrink by half, as the answers come in time
or late. Without data, and while the target is out of reach whatever a batch does (a backlog, a
model that is slower than that), the fixed values hold: they are good for throughput. Owner:
predict.
"""

from dataclasses import dataclass, field

# Calls until the fit is believed, and its memory: a few seconds of calls.
MIN_CALLS = 20
MEMORY_CALLS = 300.0
# What of the target may go into one call; the other half is waiting and queueing.
CALL_SHARE = 0.5
# A call is late when it takes this many times what the fit says: then calls queue in the server.
LATE_FACTOR = 2.0
GROW_AFTER_CALLS = 50
# How fast the share of time in which a call is under way is believed, and from which share on a row
# waits as long as a call takes: beyond it the calls themselves would queue.
BUSY_MEMORY_S = 1.0
FULL_WAIT_BUSY = 0.5
# A timer rings up to 1 ms late on an idle machine, as the event loop counts in whole milliseconds:
# 0.5 on average. From three times that on, the processor is taken to be full.
IDLE_LATE_S = 0.0007
FULL_LATE_S = 0.0015
# Of what is known of it, what the next timer replaces: some tenths of a second of batches.
LATE_STEP = 0.05
# A timer that is never set cannot tell that it rings late.
LEAST_WAIT_S = 0.0005
# Smaller batches save no time that can be measured, and cost the server more per row.
LEAST_ROWS = 32
# A batch is not cut so small that its call's base is more than a quarter of what its rows take: a
# stream of large objects would have to be answered at the price of small ones.
ROWS_TO_BASE = 4.0
# Above this share of the target spent elsewhere no batch can save it.
LOST_SHARE = 0.8
# The quantile of the time spent elsewhere that is tracked, and its step as a share of the target.
ELSEWHERE_QUANTILE = 0.95
ELSEWHERE_STEP = 0.02


@dataclass(slots=True)
class CallFit:
    """Least squares of call time over rows, older calls fading out."""

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
        """(base, per row) in seconds; neither is below zero. With one size only it is all base."""
        mean_rows, mean_s = self.rows / self.weight, self.time_s / self.weight
        spread = self.rows_rows / self.weight - mean_rows * mean_rows
        if spread <= 1e-9 * (1.0 + mean_rows * mean_rows):
            return mean_s, 0.0
        slope = (self.rows_time / self.weight - mean_rows * mean_s) / spread
        per_row_s = min(max(slope, 0.0), mean_s / mean_rows)
        return mean_s - per_row_s * mean_rows, per_row_s


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What the window and the callers go by."""

    max_rows: int
    max_wait_s: float
    calls: int


@dataclass(slots=True)
class Pace:
    """`fixed` are the configured values: upper bounds for rows and calls, and all there
    is at first.
    """

    fixed: BatchPlan
    target_s: float
    calls: float = field(init=False)
    _fit: CallFit = field(default_factory=CallFit)
    _in_time: int = 0
    _elsewhere_s: float = 0.0
    _answered_s: float = 0.0
    _busy: float = 0.0
    _late_s: float = 0.0

    def __post_init__(self) -> None:
        self.calls = float(self.fixed.calls)

    def answered(self, rows: int, took_s: float, now_s: float) -> None:
        """A call with so many rows took so long, and ended now."""
        passed_s = max(now_s - self._answered_s, 1e-6)
        self._answered_s = now_s
        self._busy += min(1.0, passed_s / BUSY_MEMORY_S) * (took_s / passed_s - self._busy)
        is_late = self._fit.calls >= MIN_CALLS and took_s > LATE_FACTOR * self.call_s(rows)
        self._fit.add(rows, took_s)
        if is_late and took_s > CALL_SHARE * self.target_s:
            self.calls = max(1.0, self.calls / 2)
            self._in_time = 0
            return
        self._in_time += 1
        if self._in_time >= GROW_AFTER_CALLS:
            self.calls = min(float(self.fixed.calls), self.calls + 1.0)
            self._in_time = 0

    def elsewhere(self, spent_s: float) -> None:
        """What an object spent before the window and after the call; its high
        quantile is tracked.
        """
        step_s = ELSEWHERE_STEP * self.target_s
        up = spent_s > self._elsewhere_s
        moved = step_s * (ELSEWHERE_QUANTILE if up else ELSEWHERE_QUANTILE - 1.0)
        self._elsewhere_s = min(max(0.0, self._elsewhere_s + moved), self.target_s)

    def rang(self, late_s: float) -> None:
        """A timer of the window rang so long after it was due."""
        self._late_s += LATE_STEP * (late_s - self._late_s)

    def call_s(self, rows: int) -> float:
        """What a call of so many rows should take."""
        base_s, per_row_s = self._fit.line()
        return base_s + per_row_s * rows

    def plan(self) -> BatchPlan:
        """What to go by now."""
        if self._fit.calls < MIN_CALLS or self._elsewhere_s > LOST_SHARE * self.target_s:
            return self.fixed
        left_s = self.target_s - self._elsewhere_s
        call_s = self.call_s(round(self._fit.rows / self._fit.weight))
        if min(call_s, self.call_s(LEAST_ROWS)) > left_s:
            return self.fixed
        return BatchPlan(self._most_rows(left_s), self._wait_s(left_s, call_s), int(self.calls))

    def _most_rows(self, left_s: float) -> int:
        base_s, per_row_s = self._fit.line()
        if per_row_s <= 0.0:
            return self.fixed.max_rows
        fitting = (CALL_SHARE * left_s - base_s) / per_row_s
        worthwhile = ROWS_TO_BASE * base_s / per_row_s
        return int(min(self.fixed.max_rows, max(LEAST_ROWS, fitting, worthwhile)))

    def _wait_s(self, left_s: float, call_s: float) -> float:
        """How long a row waits for others. On a full machine the target is no reason to wait less:
        more requests would only make it later.
        """
        most_s = self.fixed.max_wait_s
        company_s = call_s * min(1.0, self._busy / FULL_WAIT_BUSY)
        room_s = left_s * (1 - CALL_SHARE) - call_s
        wait_s = min(most_s, max(LEAST_WAIT_S, min(company_s, room_s)))
        fullness = (self._late_s - IDLE_LATE_S) / (FULL_LATE_S - IDLE_LATE_S)
        return wait_s + min(1.0, max(0.0, fullness)) * (most_s - wait_s)
