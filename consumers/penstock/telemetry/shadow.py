"""Metrics of a shadow model: what became of the rows sent to it, and its calls.

Rule: at most a hundred streams have counters of their own; all others share one. Owner: the
worker's telemetry, which makes these metrics if there is a shadow.
"""

from prometheus_client import CollectorRegistry, Counter, Histogram

from penstock.telemetry.metric_types import CALL_BUCKETS_S

# What can become of a row that is to be answered by the shadow.
SHADOW_OUTCOMES = ("agreed", "disagreed", "dropped", "unanswered")
# How many streams get their own counters, so that a page of metrics stays readable.
SHADOW_STREAMS = 100
OTHER_STREAMS = "(others)"


class ShadowTelemetry:
    def __init__(self, registry: CollectorRegistry) -> None:
        rows = Counter(
            "penstock_shadow_rows",
            "Rows that a shadow was to answer, by what became of them",
            ["outcome"],
            registry=registry,
        )
        self._rows = {outcome: rows.labels(outcome) for outcome in SHADOW_OUTCOMES}
        self._streams = Counter(
            "penstock_shadow_stream_rows",
            "Rows that two models answered, by stream",
            ["stream", "outcome"],
            registry=registry,
        )
        self._named: set[str] = set()
        self._unsent = Counter(
            "penstock_shadow_unsent", "Disagreements without a record", registry=registry
        )
        self._calls = Histogram(
            "penstock_shadow_call_seconds",
            "Calls to a shadow that answered",
            buckets=CALL_BUCKETS_S,
            registry=registry,
        )

    def rows(self, outcome: str, count: int) -> None:
        self._rows[outcome].inc(count)

    def compared(self, stream: str, agreed: int, disagreed: int) -> None:
        if stream not in self._named:
            if len(self._named) < SHADOW_STREAMS:
                self._named.add(stream)
            else:
                stream = OTHER_STREAMS
        for outcome, count in (("agreed", agreed), ("disagreed", disagreed)):
            self._rows[outcome].inc(count)
            self._streams.labels(stream, outcome).inc(count)

    def unsent(self, records: int) -> None:
        self._unsent.inc(records)

    def call_answered(self, took_s: float) -> None:
        self._calls.observe(took_s)
