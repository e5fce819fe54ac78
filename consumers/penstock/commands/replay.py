"""`penstock replay`: answers earlier messages again beside the live group."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
import msgspec
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from penstock.commands.common_options import (
    MODEL_HELP,
    PROTOCOL_HELP,
    Context,
    Moment,
    WhenWritten,
    common,
    run_async,
    say,
    say_json,
    wide_console,
)
from penstock.terminal_text import bar

# The replay's priority. If a live worker on this machine wants the same core, the replay gets a
# tenth of the core's time.
NICE = 10


@click.command()
@click.option("--since", type=WhenWritten(), required=True, help="From then on: an age, ISO-8601.")
@click.option("--until", type=WhenWritten(), help="Up to then; default: the end at the start.")
@click.option("--to", required=True, metavar="TOPIC", help="Where the answers go.")
@click.option("--model", metavar="NAME|URL", help=MODEL_HELP)
@click.option("--protocol", metavar="NAME", help=PROTOCOL_HELP)
@click.option("--streams", multiple=True, metavar="GLOB", help="Only these; may be repeated.")
@click.option("--name", help="Of this replay, to go on with it; default: the topic of --to.")
@click.option(
    "--behind-s",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="How long the live group may leave a message before it is waited for; 0: never waited.",
)
@click.option("--diff", "compare", is_flag=True, help="Compare with what was answered then.")
@click.option(
    "--tolerance",
    type=click.FloatRange(0),
    default=1e-6,
    show_default=True,
    help="With --diff: how far two numbers may be apart.",
)
@click.option(
    "--pointer", "pointers", multiple=True, help="With --diff: what of the answers counts."
)
@click.option("--against", metavar="MODEL", help="With --diff: whose answers of then.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@common
def replay(
    context: Context,
    since: Moment,
    until: Moment | None,
    behind_s: float | None,
    compare: bool,
    tolerance: float,
    pointers: tuple[str, ...],
    as_json: bool,
    **given: Any,
) -> None:
    """Answer again the messages of a span of time. The answers go to another topic, and the live
    group goes on with its work.

    Ends by itself. After Ctrl-C it drains and stops; the same command, started again, goes on from
    there.
    """
    # The imports take a second of CPU, which live workers may need. So the priority is lowered
    # before them.
    os.nice(NICE)

    from penstock.tools.replay.diff import Compares
    from penstock.tools.replay.run_replay import render
    from penstock.tools.replay.run_replay import replay as work_on
    from penstock.tools.replay.worker_settings import ReplayOptions, plan

    cfg = context.load(quiet=sys.stderr.isatty())
    if until is not None:
        given |= {"until": until.text, "until_ms": until.ms}
    options = ReplayOptions(since=since.text, since_ms=since.ms, **given)
    planned = plan(cfg, options)

    async def work() -> None:
        with replaying() as tell:
            compares = Compares(
                tolerance, pointers, lambda done, total: tell(done, total, "comparing with then")
            )
            done = await work_on(
                planned,
                behind_s=behind_s,
                on_look=lambda seen: tell(seen.done, seen.total, seen.sentence),
                on_made=_say,
                compares=compares if compare else None,
            )
        if as_json and done is not None:
            say_json(msgspec.json.encode(done))
        elif done is not None:
            wide_console().print(render(done), crop=False)

    run_async(work())


@contextmanager
def replaying() -> Iterator[Callable[[int, int, str], None]]:
    """Shows a progress bar with a text beside it. The block gets a function, and calls it with how
    much is done, the total, and the text.
    """
    columns = (
        BarColumn(),
        TextColumn("{task.fields[said]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with bar(*columns) as progress:
        task = progress.add_task("", total=None, said="looking at the range")
        yield lambda done, total, text: progress.update(
            task, completed=done, total=total, said=text
        )


def _say(line: str) -> None:
    say(line, err=True)
