"""`penstock bench`: throughput, streams under a latency bound, the cost of a replay, and a case of
others.

Rule: each option is named after the field of the bench's plan that it sets.
"""

from functools import wraps
from pathlib import Path
from typing import Any

import click

from penstock.commands.common_options import Context, common, run_async

_WAIT = click.option(
    "--wait-for-quiet",
    "quiet_wait_s",
    type=click.FloatRange(0, 600),
    default=60,
    show_default=True,
    help="Seconds to wait for unrelated processes; 0 measures at once, and once only.",
)
_MS = click.FloatRange(0, 10_000)


class _Slow(click.ParamType):
    name = "share:ms"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        from penstock.tools.bench.distance import Slow

        share, _, ms = str(value).partition(":")
        try:
            slow = Slow(float(share), float(ms))
        except ValueError:
            self.fail(f"{value} is not SHARE:MS, as 0.002:1000")
        if not (0 <= slow.share <= 1 and 0 <= slow.ms <= 60_000):
            self.fail(f"{value}: a share is from 0 to 1, and a wait at most a minute")
        return slow


_JSON = click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the report here, too.",
)


def measuring(command: Any) -> Any:
    """Adds the options of every bench that compares the worker with the model server."""
    for option in (
        click.option(
            "--warm-up",
            "warm_up_requests",
            type=click.IntRange(0, 100_000),
            default=10_000,
            show_default=True,
            help="Requests to the model server before anything is measured.",
        ),
        _WAIT,
        _JSON,
    ):
        command = option(command)
    return command


def file_as_body(command: Any) -> Any:
    """Adds the option by which the user's file replaces the made-up objects."""
    return click.option(
        "--body",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Every object is this file, asked for as model.request says.",
    )(command)


def at_distance(command: Any) -> Any:
    """Adds the options that put the worker's services far away; the plan's `distance`."""

    @wraps(command)
    def placed(
        *args: Any, store_ms: float, model_ms: float, kafka_ms: float, slow: Any, **given: Any
    ) -> Any:
        from penstock.tools.bench.distance import Distance

        return command(*args, distance=Distance(store_ms, model_ms, kafka_ms, slow), **given)

    for option in (
        click.option(
            "--slow",
            type=_Slow(),
            default="0:0",
            help="A share of the reads waits longer, as 0.002:1000: two in a thousand, a second "
            "each.",
        ),
        click.option(
            "--kafka-ms", type=_MS, default=0, help="How far away it has Kafka: a round trip."
        ),
        click.option("--model-ms", type=_MS, default=0, help="How far away it has its model."),
        click.option(
            "--store-ms",
            type=_MS,
            default=0,
            help="How far away the worker has its store: a GET's median.",
        ),
    ):
        placed = option(placed)
    return placed


@click.group()
def bench() -> None:
    """Measure a worker on real services of this machine. First run scripts/stack up, and take the
    variables of scripts/stack env.
    """


@bench.command()
@click.option(
    "--rows-per-object",
    "sizes",
    type=click.IntRange(1, 100_000),
    multiple=True,
    default=(5_000, 500, 8),
    show_default=True,
    help="May be given several times.",
)
@click.option("--rounds", type=click.IntRange(1, 20), default=3, show_default=True)
@click.option(
    "--rows", type=click.IntRange(1, 5_000_000), default=750_000, show_default=True,
    help="At most, of each size in each round.",
)  # fmt: skip
@at_distance
@file_as_body
@measuring
@common
def throughput(context: Context, json_path: Path | None, **given: Any) -> None:
    """Measure rows per second and CPU per row, and compare them with a client that only posts.
    About a minute a round.
    """
    from penstock.tools.bench.report import run
    from penstock.tools.bench.throughput import ThroughputPlan

    run_async(run("throughput", context.load(), context.path, ThroughputPlan(**given), json_path))


@bench.command()
@click.option("--hz", type=click.FloatRange(0.1, 1_000), default=20, show_default=True)
@click.option("--p99-ms", "bound_ms", type=click.FloatRange(1), default=50, show_default=True)
@click.option("--rows", type=click.IntRange(1, 10_000), default=8, show_default=True)
@click.option(
    "--beside", "beside_rows", type=click.IntRange(0, 10_000_000), default=0, show_default=True,
    help="Rows of each of the objects that are answered at the same time: of huge ones, or of the "
    "small ones of a job.",
)  # fmt: skip
@file_as_body
@click.option(
    "--spread", type=click.Choice(["grid", "even"]), default="grid", show_default=True,
    help="Ticks of a gateway share instants, 2 ms apart; or each stream has its own.",
)  # fmt: skip
@at_distance
@click.option(
    "--costs", type=click.Choice(["equal", "zipf", "one"]),
    help="Ask a model whose time for a row depends on the stream: equal; or the k-th takes "
    "--row-ms / k; or one takes --row-ms, each other a fiftieth.",
)  # fmt: skip
@click.option(
    "--row-ms", type=click.FloatRange(0, 10_000), default=1, show_default=True,
    help="With --costs: what a row of the dearest stream takes.",
)  # fmt: skip
@click.option("--streams", type=click.IntRange(1, 999), help="Do not search: this many.")
@click.option("--max-streams", type=click.IntRange(1, 999), default=100, show_default=True)
@click.option(
    "--seconds", type=click.FloatRange(1, 3_600), default=60, show_default=True,
    help="Of the proof.",
)  # fmt: skip
@click.option(
    "--trial-seconds", "trial_s", type=click.FloatRange(1, 600), default=12, show_default=True,
    help="Of each trial of the search.",
)  # fmt: skip
@measuring
@common
def streams(context: Context, json_path: Path | None, **given: Any) -> None:
    """Measure how many streams one worker can serve within a latency bound. About five minutes."""
    from penstock.tools.bench.report import run
    from penstock.tools.bench.streams import StreamsPlan

    run_async(run("streams", context.load(), context.path, StreamsPlan(**given), json_path))


@bench.command()
@click.option(
    "--workers", type=click.IntRange(1, 32), multiple=True, default=(1, 2), show_default=True,
    help="Of TorchServe. May be given several times.",
)  # fmt: skip
@click.option(
    "--rows-per-message", type=click.IntRange(1, 1_024), multiple=True,
    default=(1, 32, 128, 512), show_default=True, help="May be given several times.",
)  # fmt: skip
@click.option(
    "--rows", type=click.IntRange(1, 1_000_000), default=20_000, show_default=True,
    help="Of each backlog.",
)  # fmt: skip
@_WAIT
@_JSON
@common
def crayfish(context: Context, json_path: Path | None, **given: Any) -> None:
    """Measure the case of the Crayfish benchmark (EDBT 2024), and compare with what its authors
    measured. About three minutes.
    """
    from penstock.tools.bench.crayfish import CrayfishPlan
    from penstock.tools.bench.report import run

    run_async(run("crayfish", context.load(), context.path, CrayfishPlan(**given), json_path))


@bench.command(name="replay")
@click.option(
    "--rows", type=click.IntRange(10_000, 10_000_000), default=1_000_000, show_default=True,
    help="To be replayed, in objects of 5,000.",
)  # fmt: skip
@click.option("--streams", type=click.IntRange(1, 1_000), default=20, show_default=True)
@click.option("--hz", type=click.FloatRange(1, 1_000), default=20, show_default=True)
@click.option(
    "--seconds", type=click.FloatRange(20, 3_600), default=150, show_default=True,
    help="Of live ticks; the replay begins after 40 of them, or a third.",
)  # fmt: skip
@_JSON
@common
def replay(context: Context, seconds: float, json_path: Path | None, **given: Any) -> None:
    """Measure by how much penstock replay raises the latency of live streams. About three
    minutes.
    """
    from penstock.tools.bench.replay_cost import ReplayCostPlan
    from penstock.tools.bench.report import run

    plan = ReplayCostPlan(seconds=seconds, alone_s=min(40.0, seconds / 3), **given)
    run_async(run("replay", context.load(), context.path, plan, json_path))
