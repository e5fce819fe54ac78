"""Metrics with a label for the service: calls to each of several models and to a shadow; replicas
that gave objects and answers; regions.

Rule: the stage that calls a model need not know of others: a call is counted for that model and for
all together. A region's bytes are the sum of its stores' bytes, computed when the metrics are read.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from penstock.telemetry.metric_types import CALL_BUCKETS_S, TotalBy, TotalByTwo

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


# What became of a second request, as `core.health.retries` names it.
HEDGED = ("won", "lost", "resumed")
# Stands for the region of stores that belong to no region.
ELSEWHERE = "elsewhere"


class ReplicasTelemetry:
    """Counts the bytes that each store with replicas gave; in a worker of a region, the bytes of
    each store. Also counts how often a replica was asked instead of a store or a model server.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.bytes_by_store = TotalBy(
            "penstock_store_bytes",
            "Bytes of stores with replicas, in a region of all, by the one that gave them",
            "store",
            registry,
        )
        self._stores_left = TotalBy(
            "penstock_store_failovers",
            "Times that a replica was asked because this store did not answer",
            "store",
            registry,
        )
        self._servers_left = TotalBy(
            "penstock_model_failovers",
            "Times that a replica took over because this server was unavailable or failing",
            "endpoint",
            registry,
        )

        self.hedged = TotalByTwo(
            "penstock_hedged_reads",
            "Late reads of a store that were sent again, by what became of the second read",
            ("store", "outcome"),
            registry,
            HEDGED,
        )
        self._hedged_calls = TotalBy(
            "penstock_hedged_calls",
            "Late calls of a model that were sent to a second server, by whether it answered first",
            "outcome",
            registry,
        )

    def store_read(self, store: str, nbytes: int) -> None:
        self.bytes_by_store.inc(store, nbytes)

    def store_failed_over(self, store: str) -> None:
        self._stores_left.inc(store)

    def model_failed_over(self, endpoint: str) -> None:
        self._servers_left.inc(endpoint)

    def model_hedged(self, outcome: str) -> None:
        self._hedged_calls.inc(outcome)

    def failovers(self) -> dict[str, float]:
        """For each store or model server that did not answer: how often a replica was asked
        instead.
        """
        return {**self._stores_left.totals, **self._servers_left.totals}


class RegionTelemetry(Collector):
    """The metrics that only a worker in a region has. `name`: the worker's own region. `region_of`:
    for each store's name, its region.
    """

    def __init__(
        self,
        name: str,
        region_of: Mapping[str, str],
        bytes_by_store: TotalBy,
        registry: CollectorRegistry,
    ) -> None:
        self.name = name
        self._region_of = region_of
        self._bytes_by_store = bytes_by_store
        self._created_s = time.time()
        registry.register(self)
        local_share = Gauge(
            "penstock_region_local_share",
            "Of the bytes of objects those that this worker's own region gave",
            ["region"],
            registry=registry,
        )
        local_share.labels(name).set_function(self.local_share)
        self._lag = Gauge(
            "penstock_region_lag_records",
            "Records that a region's group has not committed, of those that may be helped",
            ["region"],
            registry=registry,
        )
        self._helped = Gauge(
            "penstock_region_helped",
            "1 while this worker helps the region",
            ["region"],
            registry=registry,
        )

    def bytes_by_region(self) -> dict[str, int]:
        totals: dict[str, int] = {}
        for store, total in self._bytes_by_store.totals.items():
            region = self._region_of.get(store, ELSEWHERE)
            totals[region] = totals.get(region, 0) + int(total)
        return totals

    def local_share(self) -> float:
        """The share of the read bytes that came from the worker's own region; 1 if nothing was read
        yet.
        """
        totals = self.bytes_by_region()
        total = sum(totals.values())
        return totals.get(self.name, 0) / total if total else 1.0

    def seen(self, region: str, lag: int | None, *, is_helped: bool) -> None:
        """Show the state of another region. `lag`: how many records the region's group has not
        committed; None if Kafka did not tell.
        """
        if lag is not None:
            self._lag.labels(region).set(lag)
        self._helped.labels(region).set(is_helped)

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(
            "penstock_region_bytes",
            "Bytes of objects by the region whose store gave them",
            labels=["region"],
        )
        for region, total in self.bytes_by_region().items():
            family.add_metric([region], total, created=self._created_s)
        yield family
