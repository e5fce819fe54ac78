"""What commands share: options and the types of their values, loading, progress, running
asynchronous work.

Rule: `penstock --help` imports this file, so it loads no more than `click`. Progress is shown only
on a terminal, and on standard error, because standard output is for results.
"""

import re
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from penstock.errors import first_cause
from penstock.terminal_text import bar, escaped, escaped_json

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.config import Config, Resolved

WIDE_COLUMNS = 200
MODEL_HELP = (
    "A configured model's name; or a URL: TorchServe's is http://host:port/predictions/NAME."
)
PROTOCOL_HELP = (
    "What the model server speaks: torchserve, oip, oip-grpc, http (any URL), openai-embeddings, "
    "openai-chat."
)


class Context:
    """The values of the common options. Reads the configuration when a command asks for it."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self.debug = False

    def load(self, *, quiet: bool = False) -> "Config":
        """The configuration as the worker uses it: if there is a rekeyer, the worker reads the
        rekeyer's output. `quiet`: log only warnings and errors, because other lines would disturb
        the command's output.
        """
        return self.resolve(quiet=quiet).config.after_rekey()

    def resolve(self, *, quiet: bool = False) -> "Resolved":
        """The configuration as it was written, before `after_rekey`, with the place where each
        value comes from.
        """
        from penstock import config, logs

        resolved = config.resolve(self.path)
        cfg = resolved.config
        level = "warning" if quiet and cfg.log.level == "info" else cfg.log.level
        logs.set_up(level, cfg.log.format)
        logs.hide(cfg.secrets())
        return resolved


def _store(name: str) -> Any:
    def keep(ctx: click.Context, _: click.Parameter, value: Any) -> Any:
        if value:
            setattr(ctx.ensure_object(Context), name, value)
        return value

    return keep


def common(command: Any) -> Any:
    """Adds the options that every command has. The command gets them as its first argument, a
    `Context`.
    """
    command = click.option(
        "--config",
        type=click.Path(dir_okay=False, path_type=Path),
        expose_value=False,
        callback=_store("path"),
        help="TOML file; PENSTOCK_SECTION__KEY variables override it.",
    )(click.make_pass_decorator(Context, ensure=True)(command))
    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        callback=_store("debug"),
        help="Show tracebacks.",
    )(command)


time_from_key = click.option(
    "--time-from",
    metavar="REGEX",
    help="A pattern on the keys with (?P<time>...): when each object was captured; as "
    "kafka.time_from.",
)


def timed(cfg: "Config", pattern: str | None) -> "Config":
    """The configuration with the pattern of `--time-from`, if there is one."""
    from msgspec.structs import replace

    from penstock.settings.inputs import time_from

    if pattern is not None:
        cfg = replace(cfg, kafka=replace(cfg.kafka, time_from=pattern))
    time_from(cfg.kafka.time_from)
    return cfg


@contextmanager
def reading(what: str) -> Iterator[Callable[[int, int], None]]:
    """Shows a progress bar during the block. The block gets a function, and calls it with two
    numbers: how much is done, and the total.
    """
    with bar() as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def wide_console() -> "Console":
    """A console for tables. If the output is not a terminal, the console is wide enough for long
    names.
    """
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=WIDE_COLUMNS)


def say(text: str, *, err: bool = False, fg: str | None = None) -> None:
    """Print a text for people. It is escaped, because it may quote names and messages that others
    wrote. `fg`: its colour on a terminal.
    """
    click.echo(click.style(escaped(text), fg=fg), err=err)


def say_json(document: bytes | str) -> None:
    click.echo(escaped_json(document))


def run_async(work: Coroutine[Any, Any, None]) -> None:
    """Run the work to its end. If it raises an exception group, raise only the failure that caused
    the others.
    """
    import asyncio

    try:
        asyncio.run(work)
    except BaseExceptionGroup as group:
        raise first_cause(group) from group


UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Moment(NamedTuple):
    """A point in time, and the text that the user wrote for it."""

    text: str
    ms: int


class When(click.ParamType):
    """The type of an option that takes a time: ISO-8601 (UTC by default), or an age like `90s`,
    `15m`, `2h`, `7d`. The value is converted to epoch milliseconds.
    """

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return epoch_ms(value)
        except ValueError:
            self.fail(f"{value!r} is neither ISO-8601 nor an age like 15m, 2h or 7d", param, ctx)


class WhenWritten(When):
    """Like `When`, but the value is a `Moment`, which also keeps the text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return Moment(value, super().convert(value, param, ctx))


def epoch_ms(text: str) -> int:
    """Convert a time to epoch milliseconds. Raises `ValueError` if the text is neither ISO-8601 nor
    an age.
    """
    if match := re.fullmatch(r"(\d{1,9})([smhd])", text):
        return int((time.time() - int(match[1]) * UNITS_S[match[2]]) * 1000)
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
