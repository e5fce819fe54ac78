"""A worker's figures as metrics: its flow, what limits it, and its streams in most trouble.

Rule: they are set when the metrics are read, from figures that were computed for all pages
together; what is not known is not shown. Owner: the worker's telemetry; the health page sets them.
Only the retention is set once, by the application at the start.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry

from penstock.telemetry.counters import Level, LevelBy, Marks
from penstock.telemetry.streams import Told

BOUNDS: Final = ("worker", "model", "store", "kafka", "skew")
PROBLEM: Final = ("level", "kind", "service", "stream")


class FigureMetrics:
    """`show` what the status says."""

    def __init__(self, registry: CollectorRegistry) -> None:
        reg = registry
        self._owed = Level(
            "penstock_owed_objects", "Objects read from Kafka and not answered yet", reg
        )
        self.input_retention = Level(
            "penstock_input_retention_seconds", "How long the input topic keeps a record", reg
        )
        self._backlog_bytes = Level(
            "penstock_backlog_bytes",
            "Bytes of the owed objects whose references say a size",
            reg,
        )
        self._drain = Level(
            "penstock_drain_seconds", "Until the backlog is worked off, while it shrinks", reg
        )
        self._utilisation = Level(
            "penstock_utilisation", "The busiest of event loop, model calls and buffer, 0 to 1", reg
        )
        self._busy = LevelBy(
            "penstock_busy", "How busy each part was over five seconds, 0 to 1", "part", reg
        )
        self._bound_by = LevelBy("penstock_bound_by", "1 for what limits the worker", "by", reg)
        self._stream_p99 = LevelBy(
            "penstock_stream_p99_seconds", "99th percentile over a minute", "stream", reg
        )
        self._stream_objects = LevelBy(
            "penstock_stream_objects_per_second", "Objects delivered", "stream", reg
        )
        self._stream_rows = LevelBy(
            "penstock_stream_rows_per_second", "Rows delivered", "stream", reg
        )
        self._stream_age = LevelBy(
            "penstock_stream_age_seconds",
            "Age of the oldest object without an answer",
            "stream",
            reg,
        )
        self._stream_rejected = LevelBy(
            "penstock_stream_rejected", "Rows and objects answered by an error", "stream", reg
        )

        self._problems = Marks(
            "penstock_problem",
            "1 for each thing that the page's first lines say is wrong",
            PROBLEM,
            reg,
        )

    def show_problems(self, problems: Iterable[Mapping[str, Any]]) -> None:
        self._problems.set({tuple(one[label] or "" for label in PROBLEM) for one in problems})

    def show(self, flow: Mapping[str, Any], owed: int, told: Told) -> None:
        self._owed.set(owed)
        self._backlog_bytes.set(flow["backlog_bytes"])
        self._drain.set(flow["drain_s"])
        self._utilisation.set(flow["utilisation"])
        self._busy.set(flow["busy"])
        self._bound_by.set({by: float(by == flow["bound_by"]) for by in BOUNDS})
        rows = [*told.streams, *([told.others] if told.others is not None else [])]
        p99s_ms = {row["stream"]: row["p99_ms"] for row in rows}
        self._stream_p99.set({name: ms / 1000 for name, ms in p99s_ms.items() if ms is not None})
        for metric, key in (
            (self._stream_objects, "objects_per_s"),
            (self._stream_rows, "rows_per_s"),
            (self._stream_age, "age_s"),
            (self._stream_rejected, "rejected"),
        ):
            metric.set({row["stream"]: row[key] for row in rows})
