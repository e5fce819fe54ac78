"""Reports for people (a table) and for programs (JSON): the same figures in both."""

import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import orjson
from rich.console import Console, RenderableType

from penstock import config
from penstock.bench import crayfish, replay_cost, streams, tables, throughput
from penstock.bench.crayfish import CrayfishPlan
from penstock.bench.replay_cost import BesidePlan
from penstock.bench.streams import StreamsPlan
from penstock.bench.throughput import ThroughputPlan


async def run_throughput(
    cfg: config.Config, config_path: Path | None, plan: ThroughputPlan, json_path: Path | None
) -> None:
    report = await throughput.measure(cfg, config_path, plan, _tell())
    _give("throughput", report, json_path, tables.throughput_table(report))


async def run_crayfish(
    cfg: config.Config, config_path: Path | None, plan: CrayfishPlan, json_path: Path | None
) -> None:
    report = await crayfish.measure(cfg, config_path, plan, _tell())
    shown = (tables.crayfish_table(report), tables.published_table(report))
    _give("crayfish", report, json_path, *shown)


async def run_streams(
    cfg: config.Config, config_path: Path | None, plan: StreamsPlan, json_path: Path | None
) -> None:
    report = await streams.measure(cfg, config_path, plan, _tell())
    _give(
        "streams",
        report,
        json_path,
        tables.trials_table(report),
        tables.where_table(report.proof or report.trials[-1]),
        tables.result_line(report),
    )


async def run_beside(
    cfg: config.Config, config_path: Path | None, plan: BesidePlan, json_path: Path | None
) -> None:
    report = await replay_cost.measure(cfg, config_path, plan, _tell())
    _give("replay", report, json_path, tables.beside_table(report), tables.beside_line(report))


def _tell() -> Callable[[str], None]:
    """Print progress to standard error, as results go to standard output."""
    return Console(stderr=True, log_path=False).log


def _give(
    kind: str, report: msgspec.Struct, json_path: Path | None, *shown: RenderableType
) -> None:
    """Give people what is `shown`, and programs the whole report."""
    console = Console()
    for one in shown:
        console.print(one, highlight=False)
    if json_path is not None:
        write_json(json_path, kind, report)


def machine() -> dict[str, Any]:
    """What a reader must know to compare two reports, without naming the machine."""
    return {"cores": os.cpu_count(), "python": platform.python_version()}


def write_json(path: Path, kind: str, report: msgspec.Struct) -> None:
    document = {"bench": kind, "machine": machine(), **msgspec.to_builtins(report)}
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
