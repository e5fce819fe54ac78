"""What a worker remembers of the last minutes: rates and latencies, and their history. Memory does
not grow.

Rule: to add a delivery takes a few steps of arithmetic; latencies are sorted once per window of ten
seconds, and when figures are asked for. A latency is known to 2.5 %.
"""

from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from math import expm1, isnan, nan
from typing import Any, Final

WINDOW_S: Final = 10.0
# The number of windows that count as the last minute: the current one and five before it. Together
# they last 50 to 60 s.
MINUTE: Final = 6
# How many windows of history there are: ten minutes.
HISTORY: Final = 60
# The 99th percentile of fewer objects is the time of a single one.
FEW: Final = 5
# Buckets of latencies are 5 % wide.
STEPS: Final = 20.0
# The figures of the worker that have a history.
NAMES: Final = ("p99_ms", "rows_per_s", "backlog_s", "utilisation")

# For each bucket of latencies: the number of objects in it.
Counts = dict[int, int]


def window_of(now_s: float) -> int:
    return int(now_s / WINDOW_S)


def add(whole: Counts, part: Counts, sign: int = 1) -> None:
    """Add the counts of the part to the whole. If `sign` is -1, subtract them instead."""
    for bucket, count in part.items():
        whole[bucket] = whole.get(bucket, 0) + sign * count


def quantiles_ms(counts: Counts, *shares: float) -> list[float | None]:
    """For each share (such as 0.5 and 0.99): the latency that this share of the objects did not
    exceed; None if there are no objects. `shares` must ascend.
    """
    total, seen = sum(counts.values()), 0
    quantiles: list[float | None] = []
    for bucket in sorted(counts):
        seen += counts[bucket]
        while len(quantiles) < len(shares) and seen >= total * shares[len(quantiles)]:
            quantiles.append(round(expm1((bucket + 0.5) / STEPS), 1))
    return quantiles or [None] * len(shares)


class Recent:
    """The deliveries of one stream, or of all streams, by window. `objects`, `rows` and `counts`
    are the figures of the current window: the caller adds to them, and calls `turn` before the
    first delivery of a later window. `p99_ms`: the 99th percentile of the last closed window that
    had objects.
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
        # Nothing was delivered in the windows between the former window and the new one. Their
        # places in the history still hold figures of ten minutes before, so these are removed.
        for passed in range(max(self.window, window - HISTORY), window):
            self._p99s_ms[passed % HISTORY] = nan
        if p99_ms is not None:
            self.p99_ms = p99_ms
            # If the window is too old for the history, a later window already uses its place.
            if window - self.window <= HISTORY:
                self._p99s_ms[self.window % HISTORY] = p99_ms
            self._closed.append((self.window, self.counts))
            self.counts = {}
        self._before = (self.window, self.objects, self.rows)
        self.window = window
        self.objects = self.rows = 0

    def minute(self, now_s: float) -> Counts:
        """The latencies of the last minute."""
        since = window_of(now_s) - MINUTE
        window_counts = dict(self.counts) if self.window > since else {}
        for window, counts in self._closed:
            if window > since:
                add(window_counts, counts)
        return window_counts

    @property
    def now_p99_ms(self) -> float | None:
        """The 99th percentile of the current window; of the last one that had objects, while the
        current one has only a few.
        """
        if sum(self.counts.values()) >= FEW:
            return quantiles_ms(self.counts, 0.99)[0]
        return self.p99_ms or None

    def rates(self, now_s: float) -> tuple[float, float]:
        """Returns the objects per second and the rows per second, over the last ten seconds. The
        current window lies within these ten seconds. Only a part of the window before it does, so
        only this share of that window's figures is counted.
        """
        now = now_s / WINDOW_S
        windows = {self._before[0]: self._before[1:], self.window: (self.objects, self.rows)}
        objects, rows = windows.get(int(now), (0, 0))
        objects_before, rows_before = windows.get(int(now) - 1, (0, 0))
        share, over_s = 1.0 - now % 1.0, min(WINDOW_S, max(1.0, now_s - self._began_s))
        return (objects + objects_before * share) / over_s, (rows + rows_before * share) / over_s

    def p99s_ms(self, now_s: float) -> list[float | None]:
        """The 99th percentile of each window, the newest window last. None stands for a window
        without a delivery.
        """
        last = window_of(now_s)
        first = max(last - HISTORY + 1, window_of(self._began_s))
        closed = (self._p99s_ms[window % HISTORY] for window in range(first, self.window))
        quantiles = [None if isnan(p99) else p99 for p99 in closed]
        if self.window >= first:
            quantiles += quantiles_ms(self.counts, 0.99)
        return quantiles + [None] * (last + 1 - max(first, self.window + 1))


class RecentHistory:
    """The figures of the worker in each window of the last ten minutes, and the ages of the streams
    that the status showed then. Call `note` once a window. The ages of at most `most_streams` are
    kept: the stream whose age was noted longest ago is forgotten first.
    """

    def __init__(self, most_streams: int) -> None:
        self._most_streams = most_streams
        self._windows = 0
        self._worker: deque[Mapping[str, float | None]] = deque(maxlen=HISTORY)
        # For each stream, pairs of a window's number and the stream's age in that window. The
        # newest pair is last.
        self._ages: dict[str, deque[tuple[int, float]]] = {}

    def note(
        self, worker: Mapping[str, float | None], streams: Sequence[Mapping[str, Any]]
    ) -> None:
        """`worker`: a value for each of `NAMES`. `streams`: the streams that the status shows
        now.
        """
        self._windows += 1
        self._worker.append(worker)
        for stream in streams:
            ages = self._ages.pop(stream["stream"], None) or deque(maxlen=HISTORY)
            ages.append((self._windows, stream["age_s"]))
            self._ages[stream["stream"]] = ages
        while len(self._ages) > self._most_streams:
            del self._ages[next(iter(self._ages))]

    @property
    def of_worker(self) -> dict[str, Any]:
        """The figures of the worker, in the form that the status shows."""
        columns = {name: [figures[name] for figures in self._worker] for name in NAMES}
        return {"every_s": int(WINDOW_S), **columns}

    def ages_of(self, stream: str) -> list[float | None]:
        """The stream's age in each window, the newest last. None stands for a window in which the
        status did not show the stream.
        """
        oldest = self._windows - HISTORY
        ages = {at: age_s for at, age_s in self._ages.get(stream, ()) if at > oldest}
        if not ages:
            return []
        return [ages.get(at) for at in range(min(ages), self._windows + 1)]
