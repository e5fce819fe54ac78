"""`penstock dlq`: lists dead letters, sends their references back, and lets stopped lines go on."""

import functools
import re
from collections.abc import Callable
from typing import Any, Literal, get_args

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
from penstock.errors import EXIT_CHECK_FAILED, ErrorCode, Fatal
from penstock.tools.dlq.letters import Choice, LetterPlace


class At(click.ParamType):
    """The type of an option that names a dead letter by its partition and offset on the topic,
    written as `PARTITION/OFFSET`.
    """

    name = "ID"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> LetterPlace:
        match = re.fullmatch(r"(\d{1,9})/(\d{1,18})", value)
        if not match:
            self.fail(f"{value!r} is not a letter's id; write PARTITION/OFFSET", param, ctx)
        return LetterPlace(int(match[1]), int(match[2]))


def chosen(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that choose letters. The command gets their values as a `Choice`."""

    @functools.wraps(command)
    def with_choice(
        *arguments: Any,
        codes: tuple[str, ...],
        streams: tuple[str, ...],
        since: int | None,
        until: int | None,
        places: tuple[LetterPlace, ...],
        **more: Any,
    ) -> None:
        command(*arguments, choice=Choice(codes, streams, since, until, places), **more)

    options = (
        click.option(
            "--code",
            "codes",
            type=click.Choice(get_args(ErrorCode)),
            metavar="CODE",
            multiple=True,
            help="Error code; may be repeated.",
        ),
        click.option(
            "--stream", "streams", multiple=True, metavar="GLOB", help="Stream; may be repeated."
        ),
        click.option(
            "--since", type=When(), help="Failed then or later: ISO-8601, or an age like 2h."
        ),
        click.option("--until", type=When(), help="Failed before then."),
        click.option(
            "--id", "places", type=At(), multiple=True, help="One letter; may be repeated."
        ),
    )
    return functools.reduce(lambda decorated, option: option(decorated), options, with_choice)


@click.group()
def dlq() -> None:
    """Dead letters: look at them, send them back."""


@dlq.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="All of them, a JSON object per line.")
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="Rows of the table."
)
@chosen
@common
def list_(context: Context, choice: Choice, as_json: bool, limit: int) -> None:
    """Show the newest dead letters, how many there are of each code, and where a line has
    stopped.
    """
    from penstock.tools.dlq.list_and_resume import as_json_line, list_letters

    cfg = context.load(quiet=True)

    async def work() -> None:
        with reading("reading dead letters") as progress:
            listing = await list_letters(
                cfg,
                choice,
                limit=limit,
                on_letter=(lambda filed: say_json(as_json_line(filed))) if as_json else None,
                progress=progress,
            )
        if as_json:
            for line in (listing.seen.sentence(), *listing.stops):
                say(line, err=True)
            return
        wide_console().print(listing.render())

    run_async(work())


def _say(
    context: Context,
    stream: str,
    verb: Literal["resume", "skip"],
    wait_s: float,
    until: str | None = None,
) -> None:
    from penstock.tools.dlq.list_and_resume import go_on

    cfg = context.load(quiet=True)

    async def work() -> None:
        last = None if until is None else -1 if until == "end" else int(until)
        wrong: list[str] = []
        async for outcome in go_on(cfg, stream, verb, wait_s, last):
            if outcome.is_well:
                say(outcome.said)
            else:
                wrong.append(outcome.said)
        if wrong:
            raise Fatal("\n".join(wrong), exit_code=EXIT_CHECK_FAILED)

    run_async(work())


waiting = click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0),
    default=5.0,
    show_default=True,
    help="Seconds until it is said what came of it; 0: do not wait.",
)


@dlq.command()
@click.argument("stream")
@waiting
@common
def resume(context: Context, stream: str, wait_s: float) -> None:
    """Let a stopped line of STREAM go on at the object at which it stopped, without a restart.

    If that object still fails, the line stops there again. Exit code 1: it stopped again at once.
    """
    _say(context, stream, "resume", wait_s)


class Until(click.ParamType):
    """An offset, or `end`."""

    name = "OFFSET|end"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value != "end" and not re.fullmatch(r"\d{1,18}", value):
            self.fail(f"{value!r} is neither an offset nor `end`", param, ctx)
        return str(value)


@dlq.command()
@click.argument("stream")
@click.option(
    "--until",
    type=Until(),
    help="Do so with all that fails up to this offset; `end`: up to the partition's present end.",
)
@waiting
@common
def skip(context: Context, stream: str, until: str | None, wait_s: float) -> None:
    """Like resume, but if the object still fails, answer it by its error, and go on behind it."""
    _say(context, stream, "skip", wait_s, until)


@dlq.command()
@click.option("--dry-run", is_flag=True, help="Only say what would be sent.")
@click.option(
    "--latest", is_flag=True, help="Ask for the objects as they are now: name no version."
)
@click.option(
    "--originals", is_flag=True, help="Send messages without a reference again, unchanged."
)
@click.option(
    "--whole-objects",
    "whole",
    is_flag=True,
    help="Ask for all rows of each object, so that its result is one object again.",
)
@chosen
@common
def redrive(context: Context, choice: Choice, dry_run: bool, **asked: bool) -> None:
    """Send the references of dead letters back to the input topic. They ask for exactly the rows
    that failed, or for whole objects.

    Without options, all letters are taken. The letters stay on their topic, so rows that are sent
    back twice are answered twice.
    """
    from penstock.tools.dlq.redrive import Redriven, fields_of_results
    from penstock.tools.dlq.redrive import redrive as send_back

    cfg = context.load(quiet=True)
    is_dated = asked["whole"] and "date" in fields_of_results(cfg)
    how = Redriven(dry=dry_run, is_dated=is_dated)

    async def work() -> None:
        try:
            with reading("sending letters back") as progress:
                await send_back(cfg, choice, how, **asked, progress=progress)
        finally:
            for line in how.lines(cfg.kafka.input_name):
                say(line)

    run_async(work())
