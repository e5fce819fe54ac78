"""The commands that only show something: `penstock watch` shows answers as they come, `progress`
shows how far a group is, `top` shows the state of a running worker, and `trace` shows everything
that the topics hold about one answer or one scene.
"""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click
import msgspec

from penstock.commands.common_options import Context, When, common, run_async, say
from penstock.errors import Unreachable

if TYPE_CHECKING:
    from penstock import config
    from penstock.messages.command_json import Progress
    from penstock.tools.verify.answers.watch import Answer


# After Ctrl-C a request to Kafka may take this long to end.
LEAVE_S = 10.0


@click.command()
@click.option("--stream", "streams", multiple=True, metavar="GLOB", help="Stream; may be repeated.")
@click.option("--errors", is_flag=True, help="Only answers without a prediction.")
@click.option(
    "--since", type=When(), help="From then on: an age like 10m, ISO-8601; else from now."
)
@click.option("--until-now", is_flag=True, help="With --since: end at the newest answer.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="End after so many.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object per line.")
@common
def watch(
    context: Context,
    streams: tuple[str, ...],
    errors: bool,
    since: int | None,
    until_now: bool,
    limit: int | None,
    as_json: bool,
) -> None:
    """Show answers as they come on the output topic, one a line: the time (UTC), the stream, the
    id, the content, and how long after its message the answer came. No worker notices the watching.
    Ctrl-C ends it.
    """
    from penstock.process.signals import StopSignal
    from penstock.tools.verify.answers.watch import Wanted
    from penstock.tools.verify.answers.watch import watch as follow

    if until_now and since is None:
        raise click.UsageError("--until-now needs --since: from when on?")
    cfg = context.load(quiet=True)
    wanted = Wanted(streams, errors=errors)

    async def work() -> None:
        left = limit
        async with aclosing(follow(cfg, wanted, since, until_now=until_now)) as found:
            async for answers in found:
                shown = answers[:left]
                lines = [
                    answer.json.decode() if as_json else _answer_line(answer) for answer in shown
                ]
                click.echo("\n".join(lines))
                if left is not None and (left := left - len(shown)) == 0:
                    return

    async def until_asked_to_end() -> None:
        with StopSignal(LEAVE_S):
            await work()

    run_async(until_asked_to_end())


def _answer_line(answer: "Answer") -> str:
    return click.style(answer.line, fg="red") if answer.record.error else answer.line


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
        async with aclosing(follow(cfg, every_s=PROGRESS_EVERY_S)) as found:
            async for one in found:
                if as_json:
                    click.echo(msgspec.json.encode(one))
                else:
                    say("\n".join(_progress_lines(one)))
                if not watch:
                    return

    run_async(work())


def _progress_lines(found: "Progress") -> Iterator[str]:
    from penstock.terminal_text import utc

    share = found.answered / found.references if found.references else 1.0
    job = "" if found.begun_ms is None else f" of the job begun {utc(found.begun_ms)} UTC"
    yield (
        f"{found.references:,} references{job}: {found.answered:,} answered "
        f"({100 * share:.1f} %), {found.left:,} left"
    )
    since = "" if found.average is None else f", {found.average:,.0f} since it began"
    if found.left:
        how_long = (
            "nothing moves" if found.left_s is None else f"about {_duration(found.left_s)} left"
        )
        yield f"{found.rate:,.0f} a second now{since}: {how_long}"
    if found.errors is None:
        yield "answered by errors: too many to be counted here; see penstock dlq list"
    elif found.answered_by_errors:
        codes = ", ".join(f"{code} {count:,}" for code, count in found.errors.items())
        yield f"answered by errors: {found.answered_by_errors:,} ({codes})"
    for line in found.stopped:
        yield (
            f"line stopped at {line.topic}/{line.partition}/{line.offset}: see penstock dlq list"
        )


def _duration(seconds: float) -> str:
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {left} s" if minutes else f"{left} s"


TOP_EVERY_S = 1.0


@click.command()
@click.option("--once", is_flag=True, help="One look; also where the output is no terminal.")
@click.option("--cost", is_flag=True, help="What each stream costs the model, in time and money.")
@click.option("--json", "as_json", is_flag=True, help="The worker's status as one JSON object.")
@common
def top(context: Context, once: bool, cost: bool, as_json: bool) -> None:
    """Show what is wrong, how the work flows, and which streams are in most trouble. All this is
    read from the page of the worker at http.host and http.port. Ctrl-C ends it.
    """
    cfg = context.load(quiet=True)
    run_async(_top_printed(cfg.http) if as_json else _top_shown(cfg.http, once=once, cost=cost))


async def _top_printed(http: "config.Http") -> None:
    click.echo(msgspec.json.encode(await status_now(http)))


async def _top_shown(http: "config.Http", *, once: bool, cost: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    from penstock.ops.top_table import render

    console = Console(highlight=False)
    if once or not console.is_terminal:
        console.print(render(await status_now(http), cost=cost))
        return
    with Live(
        render(await status_now(http), cost=cost), console=console, auto_refresh=False
    ) as live:
        while True:
            await asyncio.sleep(TOP_EVERY_S)
            live.update(render(await status_now(http), cost=cost), refresh=True)


async def status_now(http: "config.Http") -> dict[str, Any]:
    from penstock.adapters.http.running_worker import status_of, url_of

    if (found := await status_of(http)) is None:
        raise Unreachable(
            f"no worker answers at {url_of(http)}: start penstock run there, or name its page by "
            "http.host and http.port"
        )
    return found


@click.command()
@click.argument("id")
@click.option("--json", "as_json", is_flag=True, help="Print the records as JSON.")
@common
def trace(context: Context, id: str, as_json: bool) -> None:
    """Show the object, the model, the times and the dead letter of the answer with this ID. If ID
    is that of a scene, show the frames in the scene.
    """
    cfg = context.load(quiet=True)

    async def work() -> None:
        from penstock.tools.verify.answers.answer_lines import as_json as for_programs
        from penstock.tools.verify.answers.answer_lines import in_words
        from penstock.tools.verify.answers.trace import trace as follow

        found = await follow(cfg, id)
        if as_json:
            click.echo(msgspec.json.encode(for_programs(found)))
            return
        for line in in_words(found, cfg.scenes.input_topic):
            say(line)

    run_async(work())
