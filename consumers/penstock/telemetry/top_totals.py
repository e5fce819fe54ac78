"""A counter by stream, of which only the largest are shown one by one.

Rule: no series ever falls. A stream that gets a series of its own begins at 0, and what it had so
far stays with the others; a stream that loses its series ends it, and what that counted is dropped.
Owner: the gauges of the status, which set it from totals that the worker keeps for its pages.
"""

from collections.abc import Iterator, Mapping
from heapq import nlargest

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from penstock.telemetry.streams import OTHERS, SHOWN


class TopTotals(Collector):
    def __init__(self, name: str, meaning: str, registry: CollectorRegistry) -> None:
        self._described = (name, meaning)
        self._former: Mapping[str, float] = {}
        self._shown: dict[str, float] = {}
        self._others = 0.0
        registry.register(self)

    def set(self, totals: Mapping[str, float]) -> None:
        """`totals`: for each stream, its count so far; one that was forgotten begins again at 0."""
        top = nlargest(SHOWN, totals, key=lambda stream: totals[stream])
        self._shown = {stream: self._shown.get(stream, 0.0) for stream in top}
        for stream, total in totals.items():
            former = self._former.get(stream, 0.0)
            grown = total - former if total >= former else total
            if stream in self._shown:
                self._shown[stream] += grown
            else:
                self._others += grown
        self._former = dict(totals)

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(*self._described, labels=["stream"])
        for stream, total in self._shown.items():
            family.add_metric([stream], total)
        if len(self._former) > len(self._shown):
            family.add_metric([OTHERS], self._others)
        yield family
