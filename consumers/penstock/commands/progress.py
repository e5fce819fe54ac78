"""`penstock progress`: how far a group is."""

from collections.abc import Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING

import click
import msgspec

from penstock.commands.common_options import Context, common, run_async, say, say_json

if TYPE_CHECKING:
    from penstock.messages.command_json import Progress


# With --watch, the time between two pictures of the progress.
PROGRESS_EVERY_S = 2.0


@click.command()
@click.option("--watch", is_flag=True, help="Again every two seconds, until all is answered.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object per line.")
@common
def progress(context: Context, watch: bool, as_json: bool) -> None:
    """Show how many references are announced, answered and left; how fast they are answered, and
    how long the rest will take; and which errors there were. Asks only the topics and the group.
    Takes five seconds.
    """
    from penstock.tools.jobs.progress import progress as follow

    cfg = context.load(quiet=True)

    async def work() -> None:
        async with aclosing(follow(cfg, every_s=PROGRESS_EVERY_S)) as looks:
            async for look in looks:
                if as_json:
                    say_json(msgspec.json.encode(look))
                else:
                    say("\n".join(progress_lines(look)))
                if not watch:
                    return

    run_async(work())


def progress_lines(look: "Progress") -> Iterator[str]:
    from penstock.terminal_text import utc

    share = look.answered / look.references if look.references else 1.0
    job = "" if look.begun_ms is None else f" of the job begun {utc(look.begun_ms)} UTC"
    yield (
        f"{look.references:,} references{job}: {look.answered:,} answered "
        f"({100 * share:.1f} %), {look.left:,} left"
    )
    since = "" if look.average is None else f", {look.average:,.0f} since it began"
    if look.left:
        if look.workers == 0:
            how_long = f"no worker is in the group {look.group}; start one: penstock run"
        elif look.left_s is None:
            how_long = "nothing moves"
        else:
            how_long = f"about {_duration(look.left_s)} left"
        yield f"{look.rate:,.0f} a second now{since}: {how_long}"
    if look.errors is None:
        yield "answered by errors: too many to be counted here; see penstock dlq list"
    elif look.answered_by_errors:
        codes = ", ".join(f"{code} {count:,}" for code, count in look.errors.items())
        yield f"answered by errors: {look.answered_by_errors:,} ({codes})"
    for line in look.stopped:
        yield (
            f"line stopped at {line.topic}/{line.partition}/{line.offset}: see penstock dlq list"
        )


def _duration(seconds: float) -> str:
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {left} s" if minutes else f"{left} s"
