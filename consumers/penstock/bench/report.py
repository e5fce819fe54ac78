"""Reports for people (a table) and for programs (JSON): the same figures in both."""

import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson
from rich.console import Console, RenderableType

from penstock import config
from penstock.bench import crayfish, replay_cost, streams, tables, throughput

# By kind: what measures, and what people are shown of it.
BENCHES: Final[dict[str, tuple[Any, Callable[[Any], list[RenderableType]]]]] = {
    "throughput": (throughput.measure, lambda found: [tables.throughput_table(found)]),
    "crayfish": (
        crayfish.measure,
        lambda found: [tables.crayfish_table(found), tables.published_table(found)],
    ),
    "streams": (
        streams.measure,
        lambda found: [
            tables.trials_table(found),
            tables.where_table(found.proof or found.trials[-1]),
            tables.result_line(found),
        ],
    ),
    "replay": (
        replay_cost.measure,
        lambda found: [tables.beside_table(found), tables.beside_line(found)],
    ),
}


async def run(
    kind: str, cfg: config.Config, config_path: Path | None, plan: Any, json_path: Path | None
) -> None:
    """Measure by the plan of this kind, tell people, and give programs the whole report."""
    measure, shown = BENCHES[kind]
    # Progress goes to standard error, as results go to standard output.
    report = await measure(cfg, config_path, plan, Console(stderr=True, log_path=False).log)
    for one in shown(report):
        Console().print(one, highlight=False)
    if json_path is not None:
        write_json(json_path, kind, report)


def write_json(path: Path, kind: str, report: msgspec.Struct) -> None:
    # What a reader must know to compare two reports, without naming the machine.
    machine = {"cores": os.cpu_count(), "python": platform.python_version()}
    document = {"bench": kind, "machine": machine, **msgspec.to_builtins(report)}
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
