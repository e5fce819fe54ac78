"""Reports for people (a table) and for programs (JSON): the same figures in both."""

import os
import platform
from pathlib import Path
from typing import Any

import msgspec
import orjson
from rich.console import Console
from rich.table import Table

from consumers import config
from consumers.bench import throughput
from consumers.bench.throughput import ThroughputPlan, ThroughputReport


async def run_throughput(
    cfg: config.Config, config_path: Path | None, plan: ThroughputPlan, json_path: Path | None
) -> None:
    tell = Console(stderr=True, log_path=False).log
    report = await throughput.measure(cfg, config_path, plan, tell)
    Console().print(throughput_table(report))
    if json_path is not None:
        write_json(json_path, "throughput", report)


def machine() -> dict[str, Any]:
    """What a reader needs to know to compare, and nothing that names the machine."""
    return {"cores": os.cpu_count(), "python": platform.python_version()}


def write_json(path: Path, kind: str, report: msgspec.Struct) -> None:
    document = {"bench": kind, "machine": machine(), **msgspec.to_builtins(report)}
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")


# Row of the table, field of the summary, format.
THROUGHPUT_ROWS = (
    ("ratio to the direct client", "ratio_to_direct", "{:.2f}"),
    ("ratio to the seed's method", "ratio_to_seed", "{:.0f}"),
    ("worker: CPU µs per row", "cpu_us_per_row", "{:.2f}"),
    ("worker: CPU ms per object", "cpu_ms_per_object", "{:.2f}"),
    ("worker: peak RSS, MB", "peak_rss_mb", "{:.0f}"),
    ("worker: rows/s", "rows_per_s", "{:,.0f}"),
    ("direct client: rows/s", "direct_rows_per_s", "{:,.0f}"),
    ("direct client: CPU µs per row", "direct_cpu_us_per_row", "{:.2f}"),
    ("seed's method: rows/s", "seed_rows_per_s", "{:,.0f}"),
)


def throughput_table(report: ThroughputReport) -> Table:
    rounds = len(report.rounds) // len(report.summaries)
    table = Table(
        title="Throughput" if rounds == 1 else f"Throughput, medians of {rounds} rounds",
        caption=f"{report.columns} columns; requests of {report.batch_rows} float32 rows, "
        f"{report.in_flight} in flight; {report.partitions} partitions; {os.cpu_count()} cores",
    )
    table.add_column("rows per object")
    for entry in report.summaries:
        table.add_column(f"{entry.rows_per_object:,}", justify="right")
    for title, name, form in THROUGHPUT_ROWS:
        cells = [form.format(getattr(entry, name)) for entry in report.summaries]
        table.add_row(title, *cells, style="bold" if name.startswith("ratio") else None)
    return table
