"""Reports a measurement, by tables and a sentence for people, and by JSON; computes no figure."""

import os
import platform
from collections.abc import Callable, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson
from rich.console import Console, RenderableType
from rich.table import Table

from penstock import config
from penstock.tools.bench import crayfish, replay_cost, streams, throughput
from penstock.tools.bench.crayfish import CrayfishReport
from penstock.tools.bench.replay_cost import ReplayCostReport
from penstock.tools.bench.streams import StreamsReport
from penstock.tools.bench.throughput import ThroughputReport
from penstock.tools.bench.verdict import Verdict, ticks_needed

# For each row of the table: its title, the field of the summary that it shows, and the format of
# the figure.
THROUGHPUT_ROWS = (
    ("ratio to the direct client", "ratio_to_direct", "{:.2f}"),
    ("ratio to the seed's method", "ratio_to_seed", "{:.0f}"),
    ("worker: CPU µs per row", "cpu_us_per_row", "{:.2f}"),
    ("worker: CPU ms per object", "cpu_ms_per_object", "{:.2f}"),
    ("worker: peak RSS, MB", "peak_rss_mb", "{:.0f}"),
    ("worker: rows/s", "rows_per_s", "{:,.0f}"),
    ("worker: objects/s", "objects_per_s", "{:,.0f}"),
    ("direct client: rows/s", "direct_rows_per_s", "{:,.0f}"),
    ("direct client: CPU µs per row", "direct_cpu_us_per_row", "{:.2f}"),
    ("seed's method: rows/s", "seed_rows_per_s", "{:,.0f}"),
)
# For each kind of bench, two functions: one that measures, and one that returns the printed parts
# of the report.
BENCHES: Final[Mapping[str, tuple[Any, Callable[[Any], list[RenderableType]]]]] = {
    "throughput": (throughput.measure, lambda report: [throughput_table(report)]),
    "crayfish": (
        crayfish.measure,
        lambda report: [crayfish_table(report), published_table(report)],
    ),
    "streams": (
        streams.measure,
        lambda report: [
            trials_table(report),
            where_table(report.proof or report.trials[-1]),
            lone_tick_line(report),
            result_line(report),
        ],
    ),
    "replay": (
        replay_cost.measure,
        lambda report: [replay_cost_table(report), replay_cost_line(report)],
    ),
}


async def run(
    kind: str, cfg: config.Config, config_path: Path | None, plan: Any, json_path: Path | None
) -> None:
    """Measure by the plan, print the result, and write the whole report to `json_path` if this is
    given.
    """
    measure, shown = BENCHES[kind]
    # Progress goes to standard error, as results go to standard output.
    report = await measure(cfg, config_path, plan, Console(stderr=True, log_path=False).log)
    for table in shown(report):
        Console().print(table, highlight=False)
    if json_path is not None:
        write_json(json_path, kind, report)


def write_json(path: Path, kind: str, report: msgspec.Struct) -> None:
    # These values are enough to compare two reports, and do not identify the machine.
    machine = {"cores": os.cpu_count(), "python": platform.python_version()}
    document = {"bench": kind, "machine": machine, **msgspec.to_builtins(report)}
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")


def throughput_table(report: ThroughputReport) -> Table:
    rounds = len(report.rounds) // len(report.summaries)
    table = Table(
        title="Throughput" if rounds == 1 else f"Throughput, medians of {rounds} rounds",
        caption=f"{report.body or f'{report.columns} columns'}; requests of {report.batch_rows} "
        f"{report.request} rows by {report.protocol}, {report.in_flight} in flight; "
        f"{report.partitions} partitions; {os.cpu_count()} cores"
        f"{f'; {report.distance}' if report.distance else ''}",
    )
    table.add_column("rows per object")
    for entry in report.summaries:
        table.add_column(f"{entry.rows_per_object:,}", justify="right")
    for title, name, form in THROUGHPUT_ROWS:
        if report.body and "seed" in name:
            # The seed's method was not measured, because the seed program takes only numbers.
            continue
        cells = [_cell(form, getattr(entry, name)) for entry in report.summaries]
        table.add_row(title, *cells, style="bold" if name.startswith("ratio") else None)
    return table


def crayfish_table(report: CrayfishReport) -> Table:
    table = Table(title=f"Crayfish: 784 numbers inline, TorchServe; {os.cpu_count()} cores for all")
    names = ("workers of TorchServe", "rows a message", "rows/s", "rows per CPU second of ours")
    for name in (*names, "p50 ms", "p99 ms"):
        table.add_column(name, justify="right")
    for case in report.cases:
        table.add_row(
            str(case.workers),
            str(case.rows_per_message),
            f"{case.rows_per_s:,.0f}",
            _cell("{:,.0f}", case.rows_per_cpu_s),
            f"{case.p50_ms:.0f}",
            f"{case.p99_ms:.0f}",
        )
    return table


def published_table(report: CrayfishReport) -> Table:
    table = Table(title="As published (EDBT 2024), on other machines")
    for name in ("", "rows/s, 1 worker", "32 workers", "ms of 32 rows", "ms of 512 rows"):
        table.add_column(name, justify="right" if name else "left")
    for published in report.published:
        figures = (published.rows_per_s, published.rows_per_s_32, published.ms_32, published.ms_512)
        table.add_row(published.system, *(f"{figure:,.0f}" for figure in figures))
    return table


def replay_cost_table(report: ReplayCostReport) -> Table:
    table = Table(title=f"{report.streams} live streams at {report.hz:g} Hz")
    for name in ("", "ticks", "p50 ms", "p99 ms"):
        table.add_column(name, justify="right" if name else "left")
    for name, side in (("alone", report.alone), ("beside a replay", report.beside)):
        table.add_row(name, f"{side.ticks:,}", f"{side.p50_ms:.0f}", f"{side.p99_ms:.0f}")
    return table


def replay_cost_line(report: ReplayCostReport) -> str:
    """The result in a sentence."""
    whole = "" if report.complete else " (not all: the live ticks were at their end)"
    rate = report.replayed_rows / report.replay_s
    return (
        f"{report.replayed_rows:,} rows{whole} replayed in {report.replay_s:.0f} s, {rate:,.0f} "
        f"rows/s, {report.idle_s:.0f} s of them waiting: p99 beside it {report.ratio:.2f} times "
        "that alone."
    )


def _cell(form: str, figure: float | None) -> str:
    return "too short to tell" if figure is None else form.format(figure)


def result_line(report: StreamsReport) -> str:
    """The result of `bench streams` in a sentence. If the run was too short for a proof, the
    sentence says how long a proof takes.
    """
    body = f" of {report.body}" if report.body else ""
    far = f", {report.distance}" if report.distance else ""
    costs = f", costs {report.costs}" if report.costs else ""
    what = (
        f"at {report.hz:g} Hz, {report.rows} rows{body} a tick{far}{costs}, "
        f"p99 within {report.bound_ms:g} ms, worst stream included"
    )
    last = report.trials[-1]
    if report.streams:
        return f"[bold]{report.streams} streams[/bold] {what}"
    if last.held:
        enough_s = ticks_needed(last.worst_stream_misses) / report.hz
        return f"{last.streams} streams held, not proven, {what}: --seconds {enough_s:.0f} may do"
    return f"{last.streams} streams missed {what}"


def lone_tick_line(report: StreamsReport) -> str:
    calls = {name: f"{count:,.1f}" for name, count in report.lone_tick.items()}
    return (
        "For a tick that comes alone the worker makes {python} calls in Python, {turns} turns of "
        "the event loop, and {sends} sends, {receives} receives, {selects} selects"
    ).format(**calls)


def trials_table(report: StreamsReport) -> Table:
    table = Table(
        title=f"Trials, {report.hz:g} Hz, bound {report.bound_ms:g} ms; latencies in ms",
        caption="worst: p99 of the worst stream; others: cores of unrelated processes, at most",
    )
    for name in ("streams", "ticks", "missed", "p50", "p90", "p99", "worst", "max", "others"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for trial in report.trials:
        latencies = (
            trial.p50_ms, trial.p90_ms, trial.p99_ms, trial.worst_stream_p99_ms, trial.max_ms,
        )  # fmt: skip
        table.add_row(
            str(trial.streams),
            f"{trial.ticks:,}",
            f"{trial.misses:,}",
            *("-" if latency is None else f"{latency:.0f}" for latency in latencies),
            f"{trial.others_cores:.2f}",
            "proven" if trial.proven else "held" if trial.held else "missed",
        )
    return table


def where_table(trial: Verdict) -> Table:
    """The time of a tick in each part of its way, and the CPU time of each process per tick."""
    table = Table(title=f"A tick at {trial.streams} streams: mean time, and CPU by process")
    for name in ("stage", "ms", "process", "CPU ms per tick", "cores", "wake-ups"):
        table.add_column(name, justify="left" if name in ("stage", "process") else "right")
    stages = [(name, f"{mean_ms:.2f}") for name, mean_ms in trial.stages_ms.items()]
    processes = [
        (name, f"{cpu_ms:.2f}", f"{trial.cores[name]:.2f}", _wakeups(trial, name))
        for name, cpu_ms in trial.cpu_ms_per_tick.items()
    ]
    for stage, process in zip_longest(stages, processes):
        table.add_row(*(stage or ("", "")), *(process or ("", "", "", "")))
    return table


def _wakeups(trial: Verdict, name: str) -> str:
    """The wake-ups per tick, as a text. It is empty for the generator and for unrelated processes,
    whose wake-ups are not counted.
    """
    return f"{trial.wakeups_per_tick[name]:.1f}" if name in trial.wakeups_per_tick else ""
