"""A report beside one that was saved: what became of each figure.

Rule: only what was measured in the same way stands side by side, trials of as many streams, objects
of as many rows; of several the last. The saved report is read before anything is measured. Owner:
the report.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from rich.table import Table

from consumers.bench.streams import StreamsReport
from consumers.bench.throughput import ThroughputReport
from consumers.errors import EXIT_USAGE, Fatal

Report = TypeVar("Report", StreamsReport, ThroughputReport)


class _Kind(msgspec.Struct):
    bench: str


def saved(path: Path, kind: str, form: type[Report]) -> Report:
    """A report of this kind. Raises `Fatal` for anything else."""
    try:
        text = path.read_bytes()
        found = msgspec.json.decode(text, type=_Kind).bench
        if found == kind:
            return msgspec.json.decode(text, type=form)
    except (OSError, msgspec.DecodeError) as error:
        raise Fatal(
            f"--against {path}: {error}; name a report that --json wrote", exit_code=EXIT_USAGE
        ) from None
    raise Fatal(
        f"--against {path}: a report of `bench {found}`, not of `bench {kind}`",
        exit_code=EXIT_USAGE,
    )


class _Figure(NamedTuple):
    title: str
    of: Callable[[Any], float | None]
    form: str


_OF_TRIALS = (
    _Figure("p50 ms", lambda one: one.p50_ms, "{:.0f}"),
    _Figure("p99 ms", lambda one: one.p99_ms, "{:.0f}"),
    _Figure("worst ms", lambda one: one.worst_stream_p99_ms, "{:.0f}"),
    _Figure("worker CPU ms", lambda one: one.cpu_ms_per_tick.get("worker"), "{:.3f}"),
    _Figure("wake-ups", lambda one: one.wakeups_per_tick.get("worker"), "{:.1f}"),
)
_OF_SUMMARIES = (
    _Figure("ratio", lambda one: one.ratio_to_direct, "{:.2f}"),
    _Figure("CPU µs per row", lambda one: one.cpu_us_per_row, "{:.2f}"),
    _Figure("rows/s", lambda one: one.rows_per_s, "{:,.0f}"),
)


def streams_table(now: StreamsReport, before: StreamsReport) -> Table:
    return _table("streams", now.trials, before.trials, attrgetter("streams"), _OF_TRIALS)


def throughput_table(now: ThroughputReport, before: ThroughputReport) -> Table:
    size = attrgetter("rows_per_object")
    return _table("rows per object", now.summaries, before.summaries, size, _OF_SUMMARIES)


def _table(
    what: str,
    measured: Iterable[Any],
    saved_ones: Iterable[Any],
    by: Callable[[Any], int],
    figures: Sequence[_Figure],
) -> Table:
    """`by`: what makes two of them comparable."""
    now, before = ({by(one): one for one in some} for some in (measured, saved_ones))
    table = Table(
        title="Against the saved report", caption="before → now; the machine may differ, too"
    )
    table.add_column(what, justify="right")
    for figure in figures:
        table.add_column(figure.title, justify="right")
    for number in sorted(now.keys() & before.keys()):
        table.add_row(
            f"{number:,}",
            *(
                f"{_cell(figure.form, figure.of(before[number]))} → "
                f"{_cell(figure.form, figure.of(now[number]))}"
                for figure in figures
            ),
        )
    return table


def _cell(form: str, figure: float | None) -> str:
    return "-" if figure is None else form.format(figure)
