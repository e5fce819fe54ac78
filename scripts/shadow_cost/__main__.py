"""Measures how much a slow shadow slows down live work: runs the bench with a shadow and without
one, in turn.

Rule: the shadow gives the model's answers, ten times slower, and leaves the CPU to all other
processes (see `server`). Owner: the person who runs `scripts/shadow-cost`.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from penstock import config
from penstock.process import children
from penstock.tools.bench import streams, throughput
from penstock.tools.handlers import rows_model

CONFIG = """
[model.shadow]
model = "slow"
percent = {percent}
tolerance = 1e-3

[[models]]
name = "slow"
url = "{url}"
served_as = "{name}"
request = "float32"
"""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/shadow-cost",
        description="penstock bench with a slow shadow and without, in turn; medians and their "
        "ratio. Needs the stack and its variables.",
    )
    parser.add_argument("measure", choices=["streams", "throughput"])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--delay-ms", type=float, default=100.0, help="of each of its answers")
    parser.add_argument("--percent", type=float, default=10.0, help="of the batches")
    parser.add_argument("--streams", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rows", type=int, default=300_000)
    return parser.parse_args()


@asynccontextmanager
async def slow_server(delay_s: float, folder: Path) -> AsyncIterator[str]:
    """Yields the URL of the shadow's server. The server computes with one thread, to leave CPU to
    other processes.
    """
    environ, log = {**os.environ, "OMP_NUM_THREADS": "1"}, folder / "server.log"
    async with children.running(
        "the slow server",
        "shadow_cost.server",
        log,
        arguments=[str(delay_s)],
        environ=environ,
    ) as server:
        yield await children.address(server, log)
        server.ask_to_end()
        say(f"the shadow was asked for {int(await server.line()):,} rows")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def written(path: Path, percent: float, url: str) -> Path:
    path.write_text(CONFIG.format(percent=percent, url=url, name=rows_model.NAME))
    return path


async def measured(options: argparse.Namespace, path: Path | None) -> float:
    """Rows per second, or the 99th percentile in milliseconds."""
    cfg = config.load(path)
    if options.measure == "throughput":
        plan = throughput.ThroughputPlan(
            sizes=(500,),
            rounds=1,
            rows=options.rows,
            direct_s=0.5,
            seed_s=0.5,
            warm_up_requests=0,
            quiet_wait_s=0,
        )
        report = await throughput.measure(cfg, path, plan, lambda _: None)
        return report.summaries[0].rows_per_s
    fixed = streams.StreamsPlan(
        streams=options.streams, seconds=options.seconds, warm_up_requests=0, quiet_wait_s=0
    )
    trial = (await streams.measure(cfg, path, fixed, lambda _: None)).trials[-1]
    assert trial.p99_ms is not None
    return trial.p99_ms


async def main() -> None:
    options = parse()
    found: dict[str, list[float]] = {"without": [], "with": []}
    with tempfile.TemporaryDirectory() as folder:
        async with slow_server(options.delay_ms / 1000, Path(folder)) as url:
            path = written(Path(folder, "shadow.toml"), options.percent, url)
            for number in range(options.rounds):
                turns = ("without", "with") if number % 2 == 0 else ("with", "without")
                for turn in turns:
                    found[turn].append(await measured(options, path if turn == "with" else None))
                    say(f"round {number + 1}, {turn} a shadow: {found[turn][-1]:,.1f}")
    unit = "rows/s" if options.measure == "throughput" else "ms at p99"
    for turn, values in found.items():
        print(f"{turn:8} {median(values):12,.1f} {unit}")
    print(f"ratio    {median(found['with']) / median(found['without']):12.3f}")


if __name__ == "__main__":
    asyncio.run(main())
