"""Counters, gauges and histograms for the hot path: plain numbers until the metrics are read.

Rule: adding costs 0.1 to 0.3 µs; the library's own counters take up to 2 µs for locks and checks.
The exposed text is the same. Only the event loop's thread adds and reads. Owner: the telemetry.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

# For calls and the waits before them, which may take 1 ms.
CALL_BUCKETS_S = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
)  # fmt: skip
# For the whole way. Dense where bounds of live streams are: a quantile is no more exact than these.
LATENCY_BUCKETS_S = (
    0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip


def latency_buckets_s(bound_s: float | None) -> Sequence[float]:
    """With one that ends at `bound_s`: so the share of answers within it is exact."""
    return sorted({*LATENCY_BUCKETS_S, *([bound_s] if bound_s is not None else [])})


class Total(Collector):
    """A counter without labels."""

    def __init__(self, name: str, meaning: str, registry: CollectorRegistry) -> None:
        self._said = (name, meaning)
        self._value = 0.0
        self._created_s = time.time()
        registry.register(self)

    @property
    def value(self) -> float:
        return self._value

    def inc(self, by: float = 1.0) -> None:
        self._value += by

    def collect(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(*self._said, value=self._value, created=self._created_s)


class TotalOf(Collector):
    """A counter that another part counts; `read` when the metrics are."""

    def __init__(
        self, name: str, meaning: str, read: Callable[[], float], registry: CollectorRegistry
    ) -> None:
        self._said = (name, meaning)
        self._read = read
        self._created_s = time.time()
        registry.register(self)

    def collect(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(*self._said, value=self._read(), created=self._created_s)


class TotalBy(Collector):
    """A counter with one label; the `known` values are shown from the start, with 0."""

    def __init__(
        self,
        name: str,
        meaning: str,
        label: str,
        registry: CollectorRegistry,
        known: Sequence[str] = (),
    ) -> None:
        self._said = (name, meaning)
        self._label = label
        self._values = dict.fromkeys(known, 0.0)
        self._created_s = time.time()
        registry.register(self)

    @property
    def totals(self) -> Mapping[str, float]:
        """By the label's value."""
        return self._values

    def inc(self, value: str, by: float = 1.0) -> None:
        self._values[value] = self._values.get(value, 0.0) + by

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(*self._said, labels=[self._label])
        for value, total in self._values.items():
            family.add_metric([value], total, created=self._created_s)
        yield family


class Level(Collector):
    """A gauge without labels; None: not known, so it is not shown."""

    def __init__(self, name: str, meaning: str, registry: CollectorRegistry) -> None:
        self._said = (name, meaning)
        self._value: float | None = None
        registry.register(self)

    def set(self, value: float | None) -> None:
        self._value = value

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield GaugeMetricFamily(*self._said, value=self._value)


class LevelBy(Collector):
    """A gauge with one label. All values are set at once: what is not among them is gone."""

    def __init__(self, name: str, meaning: str, label: str, registry: CollectorRegistry) -> None:
        self._said = (name, meaning)
        self._label = label
        self._values: Mapping[str, float] = {}
        registry.register(self)

    def set(self, values: Mapping[str, float]) -> None:
        self._values = values

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(*self._said, labels=[self._label])
        for value, level in self._values.items():
            family.add_metric([value], level)
        yield family


class Marks(Collector):
    """A gauge that is 1 for each combination of labels that is true now; the others are gone."""

    def __init__(
        self, name: str, meaning: str, labels: Sequence[str], registry: CollectorRegistry
    ) -> None:
        self._said = (name, meaning)
        self._labels = labels
        self._marked: Collection[Sequence[str]] = ()
        registry.register(self)

    def set(self, marked: Collection[Sequence[str]]) -> None:
        self._marked = marked

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(*self._said, labels=self._labels)
        for values in self._marked:
            family.add_metric(values, 1.0)
        yield family


class Spread(Collector):
    """A histogram without labels."""

    def __init__(
        self, name: str, meaning: str, buckets: Sequence[float], registry: CollectorRegistry
    ) -> None:
        self._said = (name, meaning)
        self._bounds = tuple(map(float, buckets))
        # One more bucket for values above all bounds.
        self._counts = [0] * (len(buckets) + 1)
        self._sum = 0.0
        # By bucket, the last value that has a trace.
        self._examples: dict[int, Exemplar] = {}
        self._created_s = time.time()
        registry.register(self)

    @property
    def count(self) -> int:
        return sum(self._counts)

    @property
    def sum(self) -> float:
        return self._sum

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def example(self, value: float, trace_id: str) -> None:
        """Of an observed value. Only OpenMetrics shows it, as an exemplar of the value's bucket."""
        bucket = bisect_left(self._bounds, value)
        self._examples[bucket] = Exemplar({"trace_id": trace_id}, value, time.time())

    def collect(self) -> Iterator[HistogramMetricFamily]:
        names = [*map(str, self._bounds), "+Inf"]
        buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
        for bucket, (name, total) in enumerate(zip(names, accumulate(self._counts), strict=True)):
            example = self._examples.get(bucket)
            buckets.append((name, total, example) if example is not None else (name, total))
        family = HistogramMetricFamily(*self._said, buckets=buckets, sum_value=self._sum)
        family.add_sample(f"{self._said[0]}_created", {}, self._created_s)
        yield family


class Used:
    """How much of what is allowed was in use over a time, not only at the moment of a look.
    `share_s`: the share in use, from 0 to 1, summed over time.
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
