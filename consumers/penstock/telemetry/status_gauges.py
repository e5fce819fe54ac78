"""Gauges that show figures of the status: the worker's unfinished work, its flow, what limits it,
and its worst streams.

Rule: the worker's page sets these gauges whenever the metrics are read, from figures that were
computed for all pages together. A figure that is not known is not shown. There is one exception:
the gauge of the retention is set only once, when the worker is opened. Owner: the worker's
telemetry.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Gauge

from penstock.telemetry.metric_types import Level, LevelBy
from penstock.telemetry.streams import Told
from penstock.telemetry.top_totals import TopTotals

BOUNDS: Final = ("worker", "model", "store", "kafka", "skew")
PROBLEM: Final = ("level", "kind", "service", "stream")


class StatusGauges:
    """`show` and `show_problems` set most gauges, from parts of the status. The page itself sets
    the gauges that are public attributes.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        reg = registry
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
        self._reads = LevelBy("penstock_store_in_flight", "Reads in flight", ("store",), reg)
        self._read_limit = LevelBy(
            "penstock_store_limit", "How many reads may be in flight", ("store",), reg
        )
        self._problems = LevelBy(
            "penstock_problem",
            "1 for each thing that the page's first lines say is wrong",
            PROBLEM,
            reg,
        )

    def show_problems(self, problems: Iterable[Mapping[str, Any]]) -> None:
        found = (tuple(one[label] or "" for label in PROBLEM) for one in problems)
        self._problems.set(dict.fromkeys(found, 1.0))

    def show_stores(self, stores: Iterable[Mapping[str, Any]]) -> None:
        shown = list(stores)
        self._reads.set({(one["name"],): one["in_flight"] for one in shown})
        self._read_limit.set({(one["name"],): one["limit"] for one in shown})

    def show_costs(self, spent_s: Mapping[str, float]) -> None:
        self._model_seconds.set(spent_s)

    def show(self, flow: Mapping[str, Any], owed: int, told: Told) -> None:
        self._owed.set(owed)
        for key, level in self._of_flow.items():
            level.set(flow[key])
        self._busy.set({(part,): share for part, share in flow["busy"].items()})
        self._bound_by.set({(by,): float(by == flow["bound_by"]) for by in BOUNDS})
        rows = [*told.streams, *([told.others] if told.others is not None else [])]
        self._stream_p99.set(
            {(row["stream"],): row["p99_ms"] / 1000 for row in rows if row["p99_ms"] is not None}
        )
        for key, metric in self._of_streams.items():
            metric.set({(row["stream"],): row[key] for row in rows})
