"""Metrics of the calls to each of several models, and of a shadow.

Rule: the stage that calls a model need not know of others: a call is counted for that model and for
all together.
"""

from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from penstock.telemetry.metric_types import CALL_BUCKETS_S

MODEL_OUTCOMES = ("answered", "refused", "overloaded", "worker_died", "unreachable", "ill")


class CallsTelemetry(Protocol):
    """Metrics of the calls to one model. The stages that call the model update them."""

    def call_answered(self, took_s: float, rows: int) -> None: ...

    def tokens_used(self, read: int, written: int, cost: float) -> None: ...

    def model_request(self, outcome: str) -> None: ...

    def model_health(self, *, is_open: bool, calls: int) -> None: ...

    def retried(self, stage: str, *, is_away: bool = True) -> None: ...


class ModelsTelemetry:
    """The metrics that have a label for the model. `whole`: the metrics that count for all models
    together.
    """

    def __init__(self, whole: CallsTelemetry, registry: CollectorRegistry) -> None:
        self.whole = whole
        self._health: dict[str, tuple[bool, int]] = {}
        self.requests = Counter(
            "penstock_models_requests",
            "Requests to each model by how they ended",
            ["model", "outcome"],
            registry=registry,
        )
        self.calls = Histogram(
            "penstock_models_call_seconds",
            "Calls to each model that answered",
            ["model"],
            buckets=CALL_BUCKETS_S,
            registry=registry,
        )
        self.rows = Counter(
            "penstock_models_rows", "Rows that each model answered", ["model"], registry=registry
        )
        self.breaker = Gauge(
            "penstock_models_breaker_open",
            "1 while a model gets only probes",
            ["model"],
            registry=registry,
        )

    def health_of(self, name: str, *, is_open: bool, calls: int) -> None:
        """Note the health of model `name`. Then set the two gauges of all models together: whether
        any breaker is open, and the sum of the allowed calls.
        """
        self._health[name] = (is_open, calls)
        self.whole.model_health(
            is_open=any(is_open for is_open, _ in self._health.values()),
            calls=sum(calls for _, calls in self._health.values()),
        )


class ModelTelemetry:
    """Counts the calls to one of several models. The labels are looked up once, and not at every
    call.
    """

    def __init__(self, models: ModelsTelemetry, name: str) -> None:
        self._models = models
        self._whole = models.whole
        self._name = name
        self._requests = {
            outcome: models.requests.labels(name, outcome) for outcome in MODEL_OUTCOMES
        }
        self._calls = models.calls.labels(name)
        self._rows = models.rows.labels(name)
        self._breaker = models.breaker.labels(name)

    def call_answered(self, took_s: float, rows: int) -> None:
        self._whole.call_answered(took_s, rows)
        self._calls.observe(took_s)
        self._rows.inc(rows)

    def tokens_used(self, read: int, written: int, cost: float) -> None:
        self._whole.tokens_used(read, written, cost)

    def model_request(self, outcome: str) -> None:
        self._whole.model_request(outcome)
        self._requests[outcome].inc()

    def model_health(self, *, is_open: bool, calls: int) -> None:
        self._breaker.set(is_open)
        self._models.health_of(self._name, is_open=is_open, calls=calls)

    def retried(self, stage: str, *, is_away: bool = True) -> None:
        self._whole.retried(stage, is_away=is_away)


# What can become of a row that is to be answered by the shadow.
SHADOW_OUTCOMES = ("agreed", "disagreed", "dropped", "unanswered")
# At most this many streams have counters of their own, so that the metrics stay readable. All other
# streams share the counters of `OTHER_STREAMS`.
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
