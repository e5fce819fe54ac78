"""`penstock replay`: what was announced before, answered again beside the live group."""

import os
import sys

import click
import msgspec

from consumers.commands.shared import Context, common, pass_context, replaying, run_async
from consumers.commands.when import Moment, WhenWritten
from consumers.process.leaving import leave_when_asked
from schemas.replay import Replayed

# On one machine with a worker: of two that want a core, the replay gets a tenth of it.
NICE = 10


@click.command()
@click.option("--since", type=WhenWritten(), required=True, help="From then on: an age, ISO-8601.")
@click.option("--until", type=WhenWritten(), help="Up to then; default: the end at the start.")
@click.option("--to", required=True, metavar="TOPIC", help="Where the answers go.")
@click.option("--model", help="[[models]] or server's name, or URL; default: as configured.")
@click.option("--streams", multiple=True, metavar="GLOB", help="Only these; may be repeated.")
@click.option("--name", help="Of this replay, to go on with it; default: the topic of --to.")
@click.option(
    "--behind-s",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="How long the live group may leave a message before it is waited for; 0: never waited.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@common
@pass_context
def replay(
    context: Context,
    since: Moment,
    until: Moment | None,
    to: str,
    model: str | None,
    streams: tuple[str, ...],
    name: str | None,
    behind_s: float | None,
    as_json: bool,
) -> None:
    """Answer again what was announced between two times, to another topic, beside the live group.

    Ends by itself. Ctrl-C drains; the same command goes on where it was.
    """
    from consumers.replay.main import replay as work_on
    from consumers.replay.plan import Options, plan

    leave_when_asked()
    os.nice(NICE)
    cfg = context.load(quiet=sys.stderr.isatty())
    options = Options(
        to,
        since.text,
        since.ms,
        until.text if until else None,
        until.ms if until else None,
        model,
        streams,
        name,
    )
    planned = plan(cfg, options)

    async def work() -> None:
        with replaying() as look:
            done = await work_on(planned, behind_s=behind_s, on_look=look, on_made=_say)
        if done is not None:
            click.echo(msgspec.json.encode(done) if as_json else sentence(done))

    run_async(work())


def _say(line: str) -> None:
    click.echo(line, err=True)


def sentence(done: Replayed) -> str:
    """What it comes to, for people."""
    rejected = sum(done.rejected.values())
    said = f"{done.done:,} of {done.messages:,} messages"
    said += f": {done.rows:,} rows to {done.to} in {done.took_s:.1f} s"
    if rejected:
        codes = ", ".join(f"{code} {number:,}" for code, number in done.rejected.items())
        said += f", {rejected:,} rejected ({codes})"
    if done.skipped:
        said += f", {done.skipped:,} objects of other streams skipped"
    if done.idle_s:
        said += f"; waited {done.idle_s:.0f} s for the live group"
    if not done.complete:
        said += ". Not at the end: the same command goes on there"
    elif not done.messages:
        said += ". There is no message with a time between the two"
    elif not done.rows and not done.skipped:
        said += ". All was answered by earlier starts: another --name begins anew"
    return said + "."
