"""Counters, gauges and histograms for the hot path: plain numbers until they are read.

Rule: to add a value takes 0.1 to 0.3 µs; the metrics library's own types take up to 2 µs, because
of locks. When read, ours give the same text. Only the event loop's thread adds and reads.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

# The buckets for the number of rows of a batch.
BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
# The buckets for the times of model calls and of the waits before these calls. Such a time may be
# as short as 1 ms.
CALL_BUCKETS_S = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
)  # fmt: skip
# The buckets for the time of an object's whole way. They are narrow near the latency targets that
# live streams have, because a quantile is no more exact than its bucket.
LATENCY_BUCKETS_S = (
    0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip


def latency_buckets_s(bound_s: float | None) -> Sequence[float]:
    """The buckets of latencies. One bucket ends at `bound_s`, so that the share of answers within
    this bound is exact.
    """
    return sorted({*LATENCY_BUCKETS_S, *([bound_s] if bound_s is not None else [])})


class _Metric(Collector):
    def __init__(self, name: str, meaning: str, registry: CollectorRegistry) -> None:
        self._described = (name, meaning)
        self._created_s = time.time()
        registry.register(self)


class Total(_Metric):
    """A counter without labels."""

    value = 0.0

    def inc(self, by: float = 1.0) -> None:
        self.value += by

    def collect(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(*self._described, value=self.value, created=self._created_s)


class TotalOf(_Metric):
    """A counter that another part keeps. `read`: a function that gives the count; it is called when
    the metrics are read.
    """

    def __init__(
        self, name: str, meaning: str, read: Callable[[], float], registry: CollectorRegistry
    ) -> None:
        super().__init__(name, meaning, registry)
        self._read = read

    def collect(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(*self._described, value=self._read(), created=self._created_s)


class TotalBy(_Metric):
    """A counter with one label. `totals`: for each value of the label, its count. `known`: values
    of the label that are shown from the start, with the count 0.
    """

    def __init__(
        self,
        name: str,
        meaning: str,
        label: str,
        registry: CollectorRegistry,
        known: Sequence[str] = (),
    ) -> None:
        super().__init__(name, meaning, registry)
        self._label = label
        self.totals = dict.fromkeys(known, 0.0)

    def inc(self, value: str, by: float = 1.0) -> None:
        self.totals[value] = self.totals.get(value, 0.0) + by

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(*self._described, labels=[self._label])
        for value, total in self.totals.items():
            family.add_metric([value], total, created=self._created_s)
        yield family


class TotalByTwo(_Metric):
    """A counter with two labels. `totals`: for each value of the first label, the counts by the
    value of the second one.
    """

    def __init__(
        self,
        name: str,
        meaning: str,
        labels: tuple[str, str],
        registry: CollectorRegistry,
        seconds: Sequence[str],
    ) -> None:
        """`seconds`: all values of the second label."""
        super().__init__(name, meaning, registry)
        self._labels = labels
        self._seconds = seconds
        self.totals: dict[str, dict[str, int]] = {}

    def show(self, first: str) -> None:
        """Show this value of the first label from now on, with counts of 0."""
        self.totals.setdefault(first, dict.fromkeys(self._seconds, 0))

    def inc(self, first: str, second: str) -> None:
        self.show(first)
        self.totals[first][second] += 1

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(*self._described, labels=self._labels)
        for first, totals in self.totals.items():
            for second, total in totals.items():
                family.add_metric([first, second], total, created=self._created_s)
        yield family


class Level(_Metric):
    """A gauge without labels. If its value is None, the value is not known, and the gauge is not
    shown.
    """

    _value: float | None = None

    def set(self, value: float | None) -> None:
        self._value = value

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield GaugeMetricFamily(*self._described, value=self._value)


class LevelBy(_Metric):
    """A gauge with labels. `set` replaces all values. Labels without a new value are no longer
    shown.
    """

    def __init__(
        self, name: str, meaning: str, labels: Sequence[str], registry: CollectorRegistry
    ) -> None:
        super().__init__(name, meaning, registry)
        self._labels = labels
        self._values: Mapping[tuple[str, ...], float] = {}

    def set(self, values: Mapping[tuple[str, ...], float]) -> None:
        self._values = values

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(*self._described, labels=self._labels)
        for values, level in self._values.items():
            family.add_metric(values, level)
        yield family


class Spread(_Metric):
    """A histogram without labels."""

    def __init__(
        self, name: str, meaning: str, buckets: Sequence[float], registry: CollectorRegistry
    ) -> None:
        super().__init__(name, meaning, registry)
        self._bounds = tuple(map(float, buckets))
        # One more bucket for values above all bounds.
        self._counts = [0] * (len(buckets) + 1)
        self.sum = 0.0
        # For each bucket: the last value in it that has a trace.
        self._examples: dict[int, Exemplar] = {}

    @property
    def count(self) -> int:
        return sum(self._counts)

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def example(self, value: float, trace_id: str) -> None:
        """Remember the trace of an observed value. The trace is shown as the exemplar of the
        value's bucket, but only in the format OpenMetrics.
        """
        bucket = bisect_left(self._bounds, value)
        self._examples[bucket] = Exemplar({"trace_id": trace_id}, value, time.time())

    def collect(self) -> Iterator[HistogramMetricFamily]:
        names = [*map(str, self._bounds), "+Inf"]
        buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
        for bucket, (name, total) in enumerate(zip(names, accumulate(self._counts), strict=True)):
            example = self._examples.get(bucket)
            buckets.append((name, total, example) if example is not None else (name, total))
        family = HistogramMetricFamily(*self._described, buckets=buckets, sum_value=self.sum)
        family.add_sample(f"{self._described[0]}_created", {}, self._created_s)
        yield family


class Used:
    """How much of an allowance is in use. All of the time counts, and not only the moments at which
    the metrics are read. `share_s`: the share in use (from 0 to 1) times the seconds for which it
    was in use, summed over all changes of the share.
    """

    def __init__(self, now_s: float) -> None:
        self._share = 0.0
        self._sum_s = 0.0
        self._since_s = now_s

    def change(self, now_s: float, share: float) -> None:
        self._sum_s = self.share_s(now_s)
        self._share, self._since_s = min(1.0, share), now_s

    def share_s(self, now_s: float) -> float:
        return self._sum_s + self._share * (now_s - self._since_s)
