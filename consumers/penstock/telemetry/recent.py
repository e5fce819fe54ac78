"""What was delivered lately: rates over ten seconds, percentiles over a minute, and their history.

Rule: time is cut into windows of ten seconds. To add a delivery takes a few steps of arithmetic;
latencies are sorted once per window, and when somebody asks. A latency is known to 2.5 %. Memory
does not grow with the number of objects. Owner: the figures of a stream, or the figures of the
whole worker.
"""

from array import array
from collections import deque
from math import expm1, isnan, log1p, nan
from typing import Final

WINDOW_S: Final = 10.0
# The current window and five before it: a minute at most, 50 s at least.
MINUTE: Final = 6
# How many windows of history there are: ten minutes.
HISTORY: Final = 60
# Buckets of latencies are 5 % wide.
_STEPS: Final = 20.0

# The number of objects whose latency is in a bucket, by bucket.
Counts = dict[int, int]


def window_of(now_s: float) -> int:
    return int(now_s / WINDOW_S)


def bucket_of(latency_s: float) -> int:
    return int(log1p(latency_s * 1000.0) * _STEPS)


def add(whole: Counts, part: Counts, sign: int = 1) -> None:
    """Add the counts of the part to the whole; with `sign` -1 take them away."""
    for bucket, count in part.items():
        whole[bucket] = whole.get(bucket, 0) + sign * count


def quantiles_ms(counts: Counts, *shares: float) -> list[float | None]:
    """The latency at each of these ascending shares, such as 0.5 and 0.99; None: no objects."""
    total, seen = sum(counts.values()), 0
    found: list[float | None] = []
    for bucket in sorted(counts):
        seen += counts[bucket]
        while len(found) < len(shares) and seen >= total * shares[len(found)]:
            found.append(round(expm1((bucket + 0.5) / _STEPS), 1))
    return found or [None] * len(shares)


class Recent:
    """`turn` to the current window before adding to `objects`, `rows` and `counts`. `p99_ms`: the
    99th percentile of the last closed window that had objects.
    """

    __slots__ = (
        "_before",
        "_began_s",
        "_closed",
        "_p99s_ms",
        "counts",
        "objects",
        "p99_ms",
        "rows",
        "window",
    )

    def __init__(self, now_s: float) -> None:
        self.window = window_of(now_s)
        self.objects = 0
        self.rows = 0
        self.counts: Counts = {}
        self.p99_ms = 0.0
        self._began_s = now_s
        self._before = (self.window - 1, 0, 0)
        self._closed: deque[tuple[int, Counts]] = deque(maxlen=MINUTE - 1)
        self._p99s_ms = array("d", [nan]) * HISTORY

    def turn(self, window: int) -> None:
        """Close the window that was current, and begin this later one."""
        (p99_ms,) = quantiles_ms(self.counts, 0.99)
        # In the windows between the two nothing was delivered. The places of these windows still
        # hold figures of ten minutes before, which must go.
        for passed in range(max(self.window, window - HISTORY), window):
            self._p99s_ms[passed % HISTORY] = nan
        if p99_ms is not None:
            self.p99_ms = p99_ms
            # If the window is too old for the history, its place belongs to a later one.
            if window - self.window <= HISTORY:
                self._p99s_ms[self.window % HISTORY] = p99_ms
            self._closed.append((self.window, self.counts))
            self.counts = {}
        self._before = (self.window, self.objects, self.rows)
        self.window = window
        self.objects = self.rows = 0

    def minute(self, now_s: float) -> Counts:
        since = window_of(now_s) - MINUTE
        found = dict(self.counts) if self.window > since else {}
        for window, counts in self._closed:
            if window > since:
                add(found, counts)
        return found

    def rates(self, now_s: float) -> tuple[float, float]:
        """Objects and rows per second over the last ten seconds. The current window lies within
        these ten seconds. The window before it lies within them in part, so only that share of its
        figures is counted.
        """
        now = now_s / WINDOW_S
        found = {self._before[0]: self._before[1:], self.window: (self.objects, self.rows)}
        objects, rows = found.get(int(now), (0, 0))
        objects_before, rows_before = found.get(int(now) - 1, (0, 0))
        share, over_s = 1.0 - now % 1.0, min(WINDOW_S, max(1.0, now_s - self._began_s))
        return (objects + objects_before * share) / over_s, (rows + rows_before * share) / over_s

    def p99s_ms(self, now_s: float) -> list[float | None]:
        """The 99th percentile of each window, the newest last; None: no delivery in it."""
        last = window_of(now_s)
        first = max(last - HISTORY + 1, window_of(self._began_s))
        closed = (self._p99s_ms[window % HISTORY] for window in range(first, self.window))
        found = [None if isnan(p99) else p99 for p99 in closed]
        if self.window >= first:
            found += quantiles_ms(self.counts, 0.99)
        return found + [None] * (last + 1 - max(first, self.window + 1))
