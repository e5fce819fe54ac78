"""What the worker counts, in one place: every metric with its meaning.

Rule: stages tell what happened, once per object, batch or commit and never per row; this file and
counters.py alone know the metrics library. Owner: the application, which makes one per process;
nothing here is global.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from consumers.counters import Spread, Total, TotalBy

LATENCY_BUCKETS_S = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
)  # fmt: skip
BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)

# The region of stores that no region has.
ELSEWHERE = "elsewhere"
# What became of a row that a shadow was to answer, too.
SHADOW_OUTCOMES = ("agreed", "disagreed", "dropped", "unanswered")
# Streams that metrics name; all others are one. A page of metrics stays readable.
SHADOW_STREAMS = 100
OTHER_STREAMS = "(others)"

MODEL_OUTCOMES = ("answered", "refused", "overloaded", "worker_died", "unreachable", "ill")


class CallsTelemetry(Protocol):
    """Metrics of the calls to one model, updated by its callers."""

    def call_answered(self, took_s: float, rows: int) -> None: ...

    def model_request(self, outcome: str) -> None: ...

    def model_health(self, *, is_open: bool, calls: int) -> None: ...

    def retried(self, stage: str, *, is_away: bool = True) -> None: ...


class TimeSpent(NamedTuple):
    """Where an object's time went, in seconds; `kafka_in` is by the record's own time stamp."""

    kafka_in: float = 0.0
    queue: float = 0.0
    fetch: float = 0.0
    decode: float = 0.0
    wait: float = 0.0
    call: float = 0.0
    hold_back: float = 0.0
    publish: float = 0.0


class Telemetry:
    """Counters by verb. All times in seconds, all sizes in bytes."""

    def __init__(self) -> None:
        self.retries = 0
        self.region: str | None = None
        self.region_bytes: dict[str, int] = {}
        self._region_of: Mapping[str, str] = {}
        self._health: dict[str, tuple[bool, int]] = {}
        self._by_model: tuple[Counter, Histogram, Counter, Gauge] | None = None
        self._shadow: ShadowTelemetry | None = None
        self.registry = CollectorRegistry()
        reg = self.registry
        self._records = Total("penstock_records", "Records read from the input topic", reg)
        self._ignored = Total(
            "penstock_records_ignored", "Notifications that announce no new object", reg
        )
        self._objects = Total("penstock_objects", "Objects read to their end", reg)
        self._object_bytes = Total("penstock_object_bytes", "Bytes received from the store", reg)
        self._store_bytes = Counter(
            "penstock_store_bytes",
            "Bytes of stores with replicas, in a region of all, by the one that gave them",
            ["store"],
            registry=reg,
        )
        self._failovers = Counter(
            "penstock_store_failovers",
            "Times that a replica was asked because this store did not answer",
            ["store"],
            registry=reg,
        )
        self._region_bytes = Counter(
            "penstock_region_bytes",
            "Bytes of objects by the region whose store gave them",
            ["region"],
            registry=reg,
        )
        self._local_share = Gauge(
            "penstock_region_local_share",
            "Of the bytes of objects those that this worker's own region gave",
            ["region"],
            registry=reg,
        )
        self._region_lag = Gauge(
            "penstock_region_lag_records",
            "Records that a region's group has not committed, of those that may be helped",
            ["region"],
            registry=reg,
        )
        self._region_helped = Gauge(
            "penstock_region_helped", "1 while this worker helps the region", ["region"],
            registry=reg,
        )  # fmt: skip
        self._passed_over = Counter(
            "penstock_model_failovers",
            "Times that a replica was asked from then on because this server was away or ill",
            ["endpoint"],
            registry=reg,
        )
        self._batches = TotalBy(
            "penstock_batches", "Batches by the reason they closed for", "reason", reg
        )
        self._batch_rows = Spread("penstock_batch_rows", "Rows in a batch", BATCH_BUCKETS, reg)
        self._waits = Spread(
            "penstock_batch_wait_seconds", "Wait of a batch's first row", LATENCY_BUCKETS_S, reg
        )
        self._calls = Spread(
            "penstock_model_call_seconds", "Model calls that answered", LATENCY_BUCKETS_S, reg
        )
        self._retries = Counter(
            "penstock_retries", "Requests that will be made again", ["stage"], registry=reg
        )
        self._requests = TotalBy(
            "penstock_model_requests",
            "Requests to the model by how they ended",
            "outcome",
            reg,
            MODEL_OUTCOMES,
        )
        self._breaker = Gauge(
            "penstock_model_breaker_open", "1 while only probes are sent", registry=reg
        )
        self._allowed = Gauge(
            "penstock_model_calls_allowed", "Model calls at a time, as learned", registry=reg
        )
        self._model_rows = Total("penstock_model_rows", "Rows that the model answered", reg)
        self._rows = Total("penstock_rows_delivered", "Rows on the output topic", reg)
        self._results = Counter("penstock_results", "Result objects written", registry=reg)
        self._result_bytes = Counter(
            "penstock_result_bytes", "Bytes of the result objects written", registry=reg
        )
        self._rejected = Counter(
            "penstock_rejected", "Rows and objects answered by an error", ["code"], registry=reg
        )
        self._latency = Spread(
            "penstock_latency_seconds",
            "Record's time stamp to its last answer being on the output topic",
            LATENCY_BUCKETS_S,
            reg,
        )
        self._spent = TotalBy(
            "penstock_way_seconds",
            "Time that delivered objects spent, by part of their way",
            "part",
            reg,
            TimeSpent._fields,
        )
        self._commits = Counter("penstock_commits", "Commit requests", registry=reg)
        self.buffer_bytes = Gauge("penstock_buffer_bytes", "Byte budget in use", registry=reg)
        self.partitions = Gauge("penstock_partitions", "Partitions assigned", registry=reg)
        self.lines_stopped = Gauge(
            "penstock_lines_stopped", "Partitions that stand still at a dead letter", registry=reg
        )
        self.lag = Gauge("penstock_lag_records", "Records not committed yet", registry=reg)

    def in_region(self, region: str, region_of: Mapping[str, str]) -> None:
        """Where the worker is, and where each store is."""
        self.region, self._region_of = region, region_of
        self._local_share.labels(region).set_function(self.local_share)

    def local_share(self) -> float:
        """1 while nothing was read."""
        total = sum(self.region_bytes.values())
        return self.region_bytes.get(self.region or "", 0) / total if total else 1.0

    def failovers(self) -> dict[str, float]:
        """Of stores and of model servers, by the one that was left."""
        return {
            next(iter(sample.labels.values())): sample.value
            for counter in (self._failovers, self._passed_over)
            for family in counter.collect()
            for sample in family.samples
            if sample.name.endswith("_total")
        }

    def region_seen(self, region: str, lag: int | None, *, is_helped: bool) -> None:
        """None: nobody knows."""
        if lag is not None:
            self._region_lag.labels(region).set(lag)
        self._region_helped.labels(region).set(is_helped)

    def record_read(self, *, ignored: bool) -> None:
        self._records.inc()
        if ignored:
            self._ignored.inc()

    def object_read(self, nbytes: int) -> None:
        self._objects.inc()
        self._object_bytes.inc(nbytes)

    def store_read(self, store: str, nbytes: int) -> None:
        self._store_bytes.labels(store).inc(nbytes)
        if self.region is not None:
            region = self._region_of.get(store, ELSEWHERE)
            self.region_bytes[region] = self.region_bytes.get(region, 0) + nbytes
            self._region_bytes.labels(region).inc(nbytes)

    def store_failed_over(self, store: str) -> None:
        self._failovers.labels(store).inc()

    def model_failed_over(self, endpoint: str) -> None:
        self._passed_over.labels(endpoint).inc()

    def batch_closed(self, reason: str, rows: int, waited_s: float) -> None:
        self._batches.inc(reason)
        self._batch_rows.observe(rows)
        self._waits.observe(waited_s)

    def call_answered(self, took_s: float, rows: int) -> None:
        self._calls.observe(took_s)
        self._model_rows.inc(rows)

    def model_request(self, outcome: str) -> None:
        self._requests.inc(outcome)

    def model_health(self, *, is_open: bool, calls: int) -> None:
        self._breaker.set(is_open)
        self._allowed.set(calls)

    def retried(self, stage: str, *, is_away: bool = True) -> None:
        """`is_away`: the service is ill or away, and waited for without an end of its own."""
        self.retries += is_away
        self._retries.labels(stage).inc()

    def waited(self, *, is_on_purpose: bool) -> None:
        """As a service that is away would have it waited for."""
        self.retries += is_on_purpose

    def rejected(self, code: str, count: int) -> None:
        self._rejected.labels(code).inc(count)

    def rows_delivered(self, rows: int) -> None:
        self._rows.inc(rows)

    def result_written(self, nbytes: int) -> None:
        self._results.inc()
        self._result_bytes.inc(nbytes)

    def objects_delivered(self, latencies_s: Sequence[float], spent: Sequence[TimeSpent]) -> None:
        for latency_s in latencies_s:
            self._latency.observe(latency_s)
        sums_s = map(sum, zip(*spent, strict=True))
        for part, spent_s in zip(TimeSpent._fields, sums_s, strict=True):
            self._spent.inc(part, max(0.0, spent_s))

    def committed(self) -> None:
        self._commits.inc()

    def of_models(self, names: Sequence[str]) -> dict[str, "ModelTelemetry"]:
        """Where there are several: each by its name, beside the metrics of all together."""
        if self._by_model is None:
            self._by_model = _of_each_model(self.registry)
        requests, calls, rows, breaker = self._by_model
        return {
            name: ModelTelemetry(
                self,
                name,
                {outcome: requests.labels(name, outcome) for outcome in MODEL_OUTCOMES},
                calls.labels(name),
                rows.labels(name),
                breaker.labels(name),
            )
            for name in names
        }

    def of_shadow(self) -> "ShadowTelemetry":
        """Where there is one."""
        if self._shadow is None:
            self._shadow = ShadowTelemetry(self.registry)
        return self._shadow

    def health_of(self, name: str, *, is_open: bool, calls: int) -> None:
        """One of several: the gauges without a name say of all whether one is open, and the sum."""
        self._health[name] = (is_open, calls)
        self.model_health(
            is_open=any(is_open for is_open, _ in self._health.values()),
            calls=sum(calls for _, calls in self._health.values()),
        )


class ModelTelemetry:
    """The calls to one of several models."""

    def __init__(
        self,
        whole: Telemetry,
        name: str,
        requests: Mapping[str, Counter],
        calls: Histogram,
        rows: Counter,
        breaker: Gauge,
    ) -> None:
        self._whole = whole
        self._name = name
        self._requests = requests
        self._calls = calls
        self._rows = rows
        self._breaker = breaker

    def call_answered(self, took_s: float, rows: int) -> None:
        self._whole.call_answered(took_s, rows)
        self._calls.observe(took_s)
        self._rows.inc(rows)

    def model_request(self, outcome: str) -> None:
        self._whole.model_request(outcome)
        self._requests[outcome].inc()

    def model_health(self, *, is_open: bool, calls: int) -> None:
        self._breaker.set(is_open)
        self._whole.health_of(self._name, is_open=is_open, calls=calls)

    def retried(self, stage: str, *, is_away: bool = True) -> None:
        self._whole.retried(stage, is_away=is_away)


def _of_each_model(registry: CollectorRegistry) -> tuple[Counter, Histogram, Counter, Gauge]:
    requests = Counter(
        "penstock_models_requests",
        "Requests to each model by how they ended",
        ["model", "outcome"],
        registry=registry,
    )
    calls = Histogram(
        "penstock_models_call_seconds",
        "Calls to each model that answered",
        ["model"],
        buckets=LATENCY_BUCKETS_S,
        registry=registry,
    )
    rows = Counter(
        "penstock_models_rows", "Rows that each model answered", ["model"], registry=registry
    )
    breaker = Gauge(
        "penstock_models_breaker_open",
        "1 while a model gets only probes",
        ["model"],
        registry=registry,
    )
    return requests, calls, rows, breaker


class ShadowTelemetry:
    """Rows that a shadow model was to answer, too, and its calls."""

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
            buckets=LATENCY_BUCKETS_S,
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
