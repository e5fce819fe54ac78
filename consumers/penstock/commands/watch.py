"""`penstock watch`: answers as they come."""

import asyncio
from contextlib import aclosing

import click

from penstock.commands.common_options import Context, When, common, run_async, say, say_json

# After Ctrl-C a request to Kafka may take this long to end.
LEAVE_S = 10.0
# Then a person wonders whether anything is watched.
SAY_S = 3.0


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
    from penstock.tools.verify.watch import WatchFilter
    from penstock.tools.verify.watch import watch as follow

    if until_now and since is None:
        raise click.UsageError("--until-now needs --since: from when on?")
    cfg = context.load(quiet=True)
    wanted = WatchFilter(streams, errors=errors)

    async def work() -> None:
        left = limit
        none_yet = asyncio.get_running_loop().call_later(SAY_S, say_none_yet)
        async with aclosing(follow(cfg, wanted, since, until_now=until_now)) as following:
            async for answers in following:
                none_yet.cancel()
                shown = answers[:left]
                for answer in shown:
                    if as_json:
                        say_json(answer.json)
                    else:
                        say(answer.line, fg="red" if answer.record.error else None)
                if left is not None and (left := left - len(shown)) == 0:
                    return

    def say_none_yet() -> None:
        wanted_by = "" if since is None else " since then"
        end = "" if until_now else "; Ctrl-C ends it, --until-now with --since shows what is there"
        say(f"no such answer on {cfg.output.topic}{wanted_by}: waiting{end}", err=True)

    async def until_asked_to_end() -> None:
        with StopSignal(LEAVE_S):
            await work()

    run_async(until_asked_to_end())
