"""`penstock compare`: does a shadow model give the same answers as the live one?"""

import click

from penstock.commands.common_options import (
    Context,
    When,
    common,
    reading,
    run_async,
    say,
    say_json,
    wide_console,
)
from penstock.errors import EXIT_CHECK_FAILED


@click.command()
@click.option("--since", type=When(), help="Compared then or later: ISO-8601, or an age like 2h.")
@click.option("--stream", "streams", multiple=True, metavar="GLOB", help="May be repeated.")
@click.option(
    "--worst", type=click.IntRange(0), default=10, show_default=True, help="Streams to show."
)
@click.option(
    "--examples", type=click.IntRange(0), default=5, show_default=True, help="Rows to show."
)
@click.option(
    "--at-least",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Exit 1 unless the lower end of the latest comparison's interval is at least this.",
)
@click.option("--json", "as_json", is_flag=True, help="An array of comparisons, the latest last.")
@common
def compare(
    context: Context,
    since: int | None,
    streams: tuple[str, ...],
    worst: int,
    examples: int,
    at_least: float | None,
    as_json: bool,
) -> None:
    """Show how far a shadow agrees with the live model, as the shadow topic tells: the share of
    rows that agree, with its 95 % interval; how long both models took; the streams that agree
    least; and examples.
    """
    import msgspec

    from penstock.ops.compare import compare as read
    from penstock.ops.compare import render

    cfg = context.load(quiet=True)

    async def work() -> None:
        with reading("reading the shadow topic") as progress:
            comparing = await read(
                cfg, since=since, streams=streams, examples=examples, progress=progress
            )
        comparisons = comparing.found()
        if comparing.strange:
            say(f"{comparing.strange:,} records are of another kind", err=True)
        if as_json:
            say_json(msgspec.json.encode([each.as_json(worst) for each in comparisons]))
        else:
            console = wide_console()
            for comparison in comparisons:
                console.print(render(comparison, worst))
            if not comparisons:
                say(f"nothing is compared yet on {cfg.output.shadow_topic}")
        if at_least is not None and not (comparisons and comparisons[-1].surely(at_least / 100)):
            say(f"it is not sure that they agree on {at_least:g} % of the rows", err=True)
            raise SystemExit(EXIT_CHECK_FAILED)

    run_async(work())
