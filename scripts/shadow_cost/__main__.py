"""What a slow shadow costs live work: the bench with one and without, in turn.

Rule: the shadow answers what the model does, so late that it is ten times slower; it computes next
to nothing, because what a second model takes of the machine is no cost of ours. Owner: the person
who asks what `[model.shadow]` costs.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from statistics import median

from aiohttp import web

from consumers import config
from consumers.bench import streams, throughput
from consumers.embedded.model_server import EmbeddedModelServer
from consumers.handlers import rows_model

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


class SlowServer(EmbeddedModelServer):
    """Answers each request so late."""

    def __init__(self, delay_s: float) -> None:
        super().__init__()
        self._delay_s = delay_s

    async def _predictions(self, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(self._delay_s)
        return await super()._predictions(request)


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
        async with SlowServer(options.delay_ms / 1000) as server:
            path = written(Path(folder, "shadow.toml"), options.percent, server.url)
            for number in range(options.rounds):
                turns = ("without", "with") if number % 2 == 0 else ("with", "without")
                for turn in turns:
                    found[turn].append(await measured(options, path if turn == "with" else None))
                    say(f"round {number + 1}, {turn} a shadow: {found[turn][-1]:,.1f}")
            say(f"the shadow was asked for {sum(server.batch_rows):,} rows")
    unit = "rows/s" if options.measure == "throughput" else "ms at p99"
    for turn, values in found.items():
        print(f"{turn:8} {median(values):12,.1f} {unit}")
    print(f"ratio    {median(found['with']) / median(found['without']):12.3f}")


if __name__ == "__main__":
    asyncio.run(main())
