"""The metrics of every worker: reads, batches, model calls, answers; each counts all
models, stores and partitions together.

Rule: of a counter by stream only the largest are shown one by one, and no series ever falls. A
figure that is not known is not shown.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from penstock.ports import Spans
from penstock.telemetry.metric_types import (
    BATCH_BUCKETS,
    CALL_BUCKETS_S,
    Level,
    LevelBy,
    Spread,
    Total,
    TotalBy,
    TotalOf,
    latency_buckets_s,
)
from penstock.telemetry.per_service import (
    MODEL_OUTCOMES,
    CallsTelemetry,
    ModelsTelemetry,
    ModelTelemetry,
    RegionTelemetry,
    ReplicasTelemetry,
    ShadowTelemetry,
)
from penstock.telemetry.rekey import RekeyTelemetry, count_mended_times
from penstock.telemetry.streams import OTHERS, SHOWN, Streams, Told


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


BOUNDS: Final = ("worker", "model", "store", "kafka", "skew")
PROBLEM: Final = ("level", "kind", "service", "stream")


class StatusGauges:
    """`show` and `show_problems` set most gauges, from parts of the status. The page itself sets
    the gauges that are public attributes.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._show_worker(registry)
        self._show_streams(registry)
        self._show_stores(registry)
        self._problems = LevelBy(
            "penstock_problem",
            "1 for each thing that the page's first lines say is wrong",
            PROBLEM,
            registry,
        )

    def _show_worker(self, reg: CollectorRegistry) -> None:
        self.buffer_bytes = Gauge("penstock_buffer_bytes", "Byte budget in use", registry=reg)
        self.buffer_limit = Gauge("penstock_buffer_limit_bytes", "Byte budget", registry=reg)
        self.lines_stopped = Gauge(
            "penstock_lines_stopped", "Lines that stand still at a dead letter", registry=reg
        )
        self.backlog = Gauge(
            "penstock_backlog_seconds", "Age of the oldest record without an answer", registry=reg
        )
        self.lag = Gauge("penstock_lag_records", "Records not committed yet", registry=reg)
        self.lag_age = Gauge(
            "penstock_lag_age_seconds", "Since Kafka last told where the input ends", registry=reg
        )
        self._owed = Level(
            "penstock_owed_objects", "Objects read from Kafka and not answered yet", reg
        )
        self.input_retention = Level(
            "penstock_input_retention_seconds", "How long the input topic keeps a record", reg
        )
        # For each key in the status: its gauge.
        self._of_flow = {
            "backlog_bytes": Level(
                "penstock_backlog_bytes",
                "Bytes of the owed objects whose references say a size",
                reg,
            ),
            "drain_s": Level(
                "penstock_drain_seconds", "Until the backlog is worked off, while it shrinks", reg
            ),
            "utilisation": Level(
                "penstock_utilisation",
                "The busiest of event loop, model calls and buffer, 0 to 1",
                reg,
            ),
        }
        self._busy = LevelBy(
            "penstock_busy", "How busy each part was over five seconds, 0 to 1", ("part",), reg
        )
        self._bound_by = LevelBy("penstock_bound_by", "1 for what limits the worker", ("by",), reg)

    def _show_streams(self, reg: CollectorRegistry) -> None:
        def of_stream(name: str, meaning: str) -> LevelBy:
            return LevelBy(name, meaning, ("stream",), reg)

        self._stream_p99 = of_stream("penstock_stream_p99_seconds", "99th percentile over a minute")
        self._of_streams = {
            "objects_per_s": of_stream("penstock_stream_objects_per_second", "Objects delivered"),
            "rows_per_s": of_stream("penstock_stream_rows_per_second", "Rows delivered"),
            "age_s": of_stream(
                "penstock_stream_age_seconds", "Age of the oldest object without an answer"
            ),
            "rejected": of_stream(
                "penstock_stream_rejected", "Rows and objects answered by an error"
            ),
        }
        self._model_seconds = TopTotals(
            "penstock_stream_model_seconds", "The model's time that a stream's rows took", reg
        )

    def _show_stores(self, reg: CollectorRegistry) -> None:
        self._reads = LevelBy("penstock_store_in_flight", "Reads in flight", ("store",), reg)
        self._read_limit = LevelBy(
            "penstock_store_limit", "How many reads may be in flight", ("store",), reg
        )

    def show_problems(self, problems: Iterable[Mapping[str, Any]]) -> None:
        causes = (tuple(problem[label] or "" for label in PROBLEM) for problem in problems)
        self._problems.set(dict.fromkeys(causes, 1.0))

    def show_stores(self, stores: Iterable[Mapping[str, Any]]) -> None:
        shown = list(stores)
        self._reads.set({(store["name"],): store["in_flight"] for store in shown})
        self._read_limit.set({(store["name"],): store["limit"] for store in shown})

    def show_costs(self, spent_s: Mapping[str, float]) -> None:
        self._model_seconds.set(spent_s)

    def show(self, flow: Mapping[str, Any], owed: int, figures: Told) -> None:
        self._owed.set(owed)
        for key, level in self._of_flow.items():
            level.set(flow[key])
        self._busy.set({(part,): share for part, share in flow["busy"].items()})
        self._bound_by.set({(by,): float(by == flow["bound_by"]) for by in BOUNDS})
        rows = [*figures.streams, *([figures.others] if figures.others is not None else [])]
        self._stream_p99.set(
            {(row["stream"],): row["p99_ms"] / 1000 for row in rows if row["p99_ms"] is not None}
        )
        for key, metric in self._of_streams.items():
            metric.set({(row["stream"],): row[key] for row in rows})


# More kinds than the stores together have for a bucket. All others are counted as "others".
MOST_KINDS = 40


class TimeSpent(NamedTuple):
    """How many seconds an object spent in each part of its way. `kafka_in` begins at the record's
    timestamp.
    """

    kafka_in: float = 0.0
    queue: float = 0.0
    fetch: float = 0.0
    decode: float = 0.0
    wait: float = 0.0
    call: float = 0.0
    hold_back: float = 0.0
    publish: float = 0.0


class Telemetry:
    """Each method counts one kind of event, which its name tells. Times are in seconds, sizes in
    bytes.
    """

    def __init__(self, bound_s: float | None = None) -> None:
        """`bound_s`: the target of the latency. A bucket of the latencies ends at this target."""
        # Counts the tries at unavailable services, and the deliberate waits. The watchdog counts
        # each of these as progress.
        self.retries = 0
        self.bound_s = bound_s
        self.streams = Streams()
        self.registry = CollectorRegistry()
        self.region: RegionTelemetry | None = None
        self.rekeying: RekeyTelemetry | None = None
        self._models: ModelsTelemetry | None = None
        self._shadow: ShadowTelemetry | None = None
        self._count_reading(self.registry)
        self._count_batches(self.registry)
        self._count_calls(self.registry)
        self._count_answers(self.registry)
        self.partitions = Gauge(
            "penstock_partitions", "Partitions assigned", registry=self.registry
        )
        self.status_gauges = StatusGauges(self.registry)

    def _count_reading(self, reg: CollectorRegistry) -> None:
        self._records = Total("penstock_records", "Records read from the input topic", reg)
        self._ignored = Total(
            "penstock_records_ignored", "Notifications that announce no new object", reg
        )
        self._events = TotalBy(
            "penstock_events_ignored", "Events that announce no new object, by kind", "kind", reg
        )
        self._objects = Total("penstock_objects", "Objects read to their end", reg)
        self._object_bytes = Total("penstock_object_bytes", "Bytes received from the store", reg)
        self.replicas = ReplicasTelemetry(reg)
        self._decoder_deaths = TotalBy(
            "penstock_decoder_deaths",
            "Decoders that came to a bad end, by the signal that ended them",
            "signal",
            reg,
        )

    def _count_batches(self, reg: CollectorRegistry) -> None:
        self._batches = TotalBy(
            "penstock_batches", "Batches by the reason they closed for", "reason", reg
        )
        self._batch_rows = Spread("penstock_batch_rows", "Rows in a batch", BATCH_BUCKETS, reg)
        self._waits = Spread(
            "penstock_batch_wait_seconds", "Wait of a batch's first row", CALL_BUCKETS_S, reg
        )

    def _count_calls(self, reg: CollectorRegistry) -> None:
        self._calls = Spread(
            "penstock_model_call_seconds", "Model calls that answered", CALL_BUCKETS_S, reg
        )
        self._retries = TotalBy(
            "penstock_retries", "Requests that will be made again", "stage", reg
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
        self._tokens = TotalBy(
            "penstock_model_tokens", "Tokens that the model read and wrote", "kind", reg
        )
        self._tokens_cost = Total(
            "penstock_model_tokens_cost",
            "What these tokens cost, by model.cost_per_million_read and _written",
            reg,
        )

    def _count_answers(self, reg: CollectorRegistry) -> None:
        self._rows = Total("penstock_rows_delivered", "Rows on the output topic", reg)
        self._results = Total("penstock_results", "Result objects written", reg)
        self._result_bytes = Total(
            "penstock_result_bytes", "Bytes of the result objects written", reg
        )
        self._rejected = TotalBy(
            "penstock_rejected", "Rows and objects answered by an error", "code", reg
        )
        self._unforeseen = TotalBy(
            "penstock_unforeseen",
            "Exceptions that nobody foresaw, by what was under way",
            "place",
            reg,
        )
        self._latency = Spread(
            "penstock_latency_seconds",
            "Record's time stamp to its last answer being on the output topic",
            latency_buckets_s(self.bound_s),
            reg,
        )
        self._spent = TotalBy(
            "penstock_way_seconds",
            "Time that delivered objects spent, by part of their way",
            "part",
            reg,
            TimeSpent._fields,
        )
        self._over_bound = Total(
            "penstock_objects_over_bound", "Objects that took longer than window.target_p99_ms", reg
        )
        self._commits = Total("penstock_commits", "Commit requests", reg)
        # For each topic, how many records got another time. The adapter counts them.
        self.times_mended: Mapping[str, int] = {}
        count_mended_times(lambda: self.times_mended, reg)
        self._commit_failures = Total(
            "penstock_commit_failures", "Commits and transactions that failed", reg
        )

    def record_read(self, *, ignored: bool) -> None:
        self._records.inc()
        if ignored:
            self._ignored.inc()

    def event_ignored(self, kind: str) -> bool:
        """Returns True at the first event of this kind. Senders choose the kinds, so only the first
        kinds are counted by their name.
        """
        known = self._events.totals
        is_new = kind not in known and len(known) < MOST_KINDS
        self._events.inc(kind if is_new or kind in known else "others")
        return is_new

    def object_read(self, nbytes: int) -> None:
        self._objects.inc()
        self._object_bytes.inc(nbytes)

    def batch_closed(self, reason: str, rows: int, waited_s: float) -> None:
        self._batches.inc(reason)
        self._batch_rows.observe(rows)
        self._waits.observe(waited_s)

    def call_answered(self, took_s: float, rows: int) -> None:
        self._calls.observe(took_s)
        self._model_rows.inc(rows)

    def tokens_used(self, read: int, written: int, cost: float) -> None:
        self._tokens.inc("read", read)
        self._tokens.inc("written", written)
        self._tokens_cost.inc(cost)

    def model_request(self, outcome: str) -> None:
        self._requests.inc(outcome)

    def model_health(self, *, is_open: bool, calls: int) -> None:
        self._breaker.set(is_open)
        self._allowed.set(calls)

    def decoder_died(self, signal: str) -> None:
        self._decoder_deaths.inc(signal)

    def retried(self, stage: str, *, is_away: bool = True) -> None:
        """Count a request that is made again. `is_away`: True if the service is unavailable, so
        that the worker waits for it without a time limit.
        """
        self.retries += is_away
        self._retries.inc(stage)

    def waited(self, *, is_on_purpose: bool) -> None:
        """Note a wait. If it `is_on_purpose`, it counts like a try at an unavailable service."""
        self.retries += is_on_purpose

    def rejected(self, code: str, count: int) -> None:
        self._rejected.inc(code, count)

    def unforeseen(self, place: str) -> None:
        self._unforeseen.inc(place)

    def rows_delivered(self, rows: int) -> None:
        self._rows.inc(rows)

    def result_written(self, nbytes: int) -> None:
        self._results.inc()
        self._result_bytes.inc(nbytes)

    def objects_delivered(self, latencies_s: Sequence[float], spent: Sequence[TimeSpent]) -> None:
        bound_s = self.bound_s
        for latency_s in latencies_s:
            self._latency.observe(latency_s)
            if bound_s is not None and latency_s > bound_s:
                self._over_bound.inc()
        totals_s, sums_s = self._spent.totals, map(sum, zip(*spent, strict=True))
        for part, spent_s in zip(TimeSpent._fields, sums_s, strict=True):
            totals_s[part] += max(0.0, spent_s)

    def latency_example(self, latency_s: float, trace_id: str) -> None:
        """Remember the trace of an object that `objects_delivered` has counted."""
        self._latency.example(latency_s, trace_id)

    def committed(self) -> None:
        self._commits.inc()

    def commit_failed(self) -> None:
        self._commit_failures.inc()

    @property
    def rejections(self) -> Mapping[str, float]:
        """For each error code: how many rows and objects were answered by that error."""
        return self._rejected.totals

    @property
    def spent_s(self) -> Mapping[str, float]:
        """For each part of an object's way: the seconds that all delivered objects together spent
        there.
        """
        return self._spent.totals

    @property
    def batches(self) -> Mapping[str, float]:
        """For each reason to close a batch: how many batches were closed for it."""
        return self._batches.totals

    @property
    def totals(self) -> dict[str, float]:
        """The values of the counters whose rates the status shows."""
        return {
            "records": self._records.value,
            "objects": self._objects.value,
            "rows": self._rows.value,
            "rejected": sum(self._rejected.totals.values()),
            "retries": sum(self._retries.totals.values()),
            "batches": sum(self._batches.totals.values()),
            "commits": self._commits.value,
            "delivered": float(self._latency.count),
            "over_bound": self._over_bound.value,
            "batch_rows": self._batch_rows.sum,
            "tokens": sum(self._tokens.totals.values()),
            "tokens_cost": self._tokens_cost.value,
        }

    def of_models(self, names: Sequence[str]) -> dict[str, CallsTelemetry]:
        if self._models is None:
            self._models = ModelsTelemetry(self, self.registry)
        return {name: ModelTelemetry(self._models, name) for name in names}

    def of_shadow(self) -> ShadowTelemetry:
        if self._shadow is None:
            self._shadow = ShadowTelemetry(self.registry)
        return self._shadow

    def of_rekeying(self) -> RekeyTelemetry:
        self.rekeying = RekeyTelemetry(self.registry)
        return self.rekeying

    def of_traces(self, spans: Spans) -> None:
        reg = self.registry
        TotalOf(
            "penstock_spans_exported",
            "Spans that the receiver of traces took",
            lambda: spans.exported,
            reg,
        )
        TotalOf(
            "penstock_spans_dropped",
            "Spans that it did not take, or that came faster than they could be sent",
            lambda: spans.dropped,
            reg,
        )

    def in_region(self, name: str, region_of: Mapping[str, str]) -> RegionTelemetry:
        """Make the further metrics of a worker in region `name`. `region_of`: for each store's
        name, its region.
        """
        by_store = self.replicas.bytes_by_store
        self.region = RegionTelemetry(name, region_of, by_store, self.registry)
        return self.region
