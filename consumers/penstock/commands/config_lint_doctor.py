"""The commands about the configuration. `penstock config` shows the values in force and where each
comes from; with `--init` it writes a first file. `lint` checks the file without any service;
`doctor` also asks all services. `route` tells which model answers which stream.

Rule: `config --init` never overwrites a file, and `lint` must find nothing wrong in the file that
it writes. Owner: the command line.
"""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock import config, logs
from penstock.commands.common_options import Context, common, run_async, say
from penstock.config.starter import Answers, starter
from penstock.errors import EXIT_CHECK_FAILED, Fatal, usage

DEFAULT = "default"
# The file that `--init` writes, unless --config names another one.
FILE: Final = Path("penstock.toml")
QUESTIONS: Final[Mapping[str, str]] = {
    "kafka": "Kafka: servers and topic of the references, SERVER:PORT/TOPIC",
    "store": "Objects: s3://BUCKET, http://HOST:PORT/BUCKET (MinIO, Ceph), gs://, az://, file:///",
    "model": "Model: its URL, and the protocol where the URL does not tell it",
    "rows": "Rows: format (auto, csv, parquet, ...), or of cameras: pictures, films, or both; and "
    "request (json, float32, bytes, b64, ...)",
}


def _answering(command: Any) -> Any:
    for name, question in reversed(list(QUESTIONS.items())):
        command = click.option(f"--{name}", metavar="ANSWER", help=f"With --init. {question}")(
            command
        )
    return command


@click.command(name="config")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the configuration instead.")
@click.option("--init", is_flag=True, help="Write a first, commented file instead (penstock.toml).")
@_answering
@common
def show_config(context: Context, /, schema: bool, init: bool, **given: str | None) -> None:
    """Print the resolved configuration, with secrets masked, and where each value comes from. On a
    terminal this is a table, elsewhere JSON with the places under "sources". If a worker would
    refuse the values, the worker's error follows them, and the exit code is 2.
    """
    if init:
        begin(context.path, given)
        return
    if any(given.values()):
        raise click.UsageError(f"--{next(filter(given.get, given))} is for --init")
    if schema:
        click.echo(orjson.dumps(msgspec.json.schema(config.Config), option=orjson.OPT_INDENT_2))
        return
    resolved = context.resolve()
    sections = resolved.config.sections()
    sources = {
        _name(section, key): resolved.sources.get(f"{section}.{key}", DEFAULT)
        for section, keys in sections.items()
        for key in keys
    }
    console = Console()
    if console.is_terminal:
        console.print(_table(sections, sources))
    else:
        document = {**resolved.config.masked(), "sources": sources}
        click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    # This import loads every client, which takes time. So it stands here, after the configuration
    # was printed.
    from penstock.tools.lint.check import refused

    config.check_files(resolved.config, resolved.sources)
    for error in refused(resolved.config):
        raise error


def _table(shown: dict[str, dict[str, object]], sources: dict[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("key", "value", "from"):
        table.add_column(name, overflow="fold")
    for section, keys in shown.items():
        for key, value in keys.items():
            source = sources[_name(section, key)]
            style = "dim" if source == DEFAULT else ""
            table.add_row(_name(section, key), Text(_text(value), style), Text(source, style))
    return table


def _name(section: str, key: str) -> str:
    """The full name of a key. The key `region` belongs to no section, so its section is empty."""
    return f"{section}.{key}" if section else key


def _text(value: object) -> str:
    return "none" if value is None else orjson.dumps(value).decode()


def begin(path: Path | None, given: Mapping[str, str | None]) -> None:
    """Write the first configuration file. `given`: the answers from options. On a terminal the user
    is asked for the other answers; without a terminal their defaults are taken.
    """
    # This import loads every client. It stands here, so that a command without `--init` need not
    # wait for it.
    from penstock.tools.lint.check import lint

    path = path or FILE
    if path.exists():
        raise usage(f"{path} is there already; name another by --config")
    answers = Answers(**{name: given[name] or _ask(name) for name in QUESTIONS})
    text = starter(answers)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise usage(f"{path}: {error.strerror}; name another file by --config") from None
    if found := lint(path, {}, ()):
        path.unlink()
        raise usage("\n".join(str(one) for one in found))
    click.echo(f"{path} is written. Next: penstock doctor --config {path}")


def _ask(name: str) -> str:
    default = Answers._field_defaults[name]
    if not sys.stdin.isatty():
        return str(default)
    return str(click.prompt(QUESTIONS[name], default=default))


@click.command()
@click.option(
    "--streams",
    multiple=True,
    metavar="FILE|NAME",
    help="Streams that there are: a file with one a line, or a name or glob; may be repeated.",
)
@click.option("--ignore", multiple=True, metavar="KEY", help="Say nothing of this key.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as a JSON array.")
@common
def lint(
    context: Context, streams: tuple[str, ...], ignore: tuple[str, ...], as_json: bool
) -> None:
    """Check a configuration without any service: are its keys and values right, and do any of them
    contradict each other? One run prints everything that is wrong, with its line. The exit code is
    1 if anything is wrong.
    """
    from penstock.tools.lint.check import lint as check

    found = check(context.path, os.environ, [name for one in streams for name in _named(one)])
    found = [one for one in found if one.key not in ignore]
    if as_json:
        click.echo(msgspec.json.encode([one._asdict() for one in found]))
    else:
        name = context.path or "the environment"
        click.echo("\n".join(map(str, found)) or f"{name}: nothing is wrong")
    if found:
        raise SystemExit(EXIT_CHECK_FAILED)


def _named(text: str) -> list[str]:
    file = Path(text)
    try:
        return file.read_text(encoding="utf-8").splitlines() if file.is_file() else [text]
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"--streams {file}: {error}; name a file of text, a name or a glob") from None


@click.command()
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("--fix", is_flag=True, help="Create topics that are missing; nothing else.")
@common
def doctor(context: Context, urls: tuple[str, ...], fix: bool) -> None:
    """Check the configuration, the machine, the topics, the store and the model, and say how to
    correct what is wrong. With URL..., also check that these objects can be read. The exit code is
    1 if anything is wrong. A line "mind" is about something that works, but may cost something.
    """
    from penstock.tools.doctor.examine import examine

    resolved = context.resolve(quiet=True)
    configured = _configured(context, resolved)

    async def work() -> None:
        is_well = configured
        async for found in examine(resolved.config, urls, fix=fix):
            say(logs.redacted(f"{found.level:<5}  {found.what}: {found.said}"))
            is_well = is_well and found.is_well
        if not is_well:
            raise SystemExit(EXIT_CHECK_FAILED)

    run_async(work())


def _configured(context: Context, resolved: config.Resolved) -> bool:
    """Print the errors that `penstock lint` or a worker's start would report. Returns True if there
    are none. The doctor's other checks run in any case.
    """
    from penstock.tools.lint.check import lint

    wrong = [str(one).removeprefix("configuration: ") for one in lint(context.path, os.environ, ())]
    if not wrong:
        try:
            config.check_files(resolved.config, resolved.sources)
        except Fatal as error:
            wrong.append(str(error))
    for said in wrong:
        say(logs.redacted(f"wrong  configuration: {said}"))
    if not wrong:
        keys = len(resolved.sources)
        click.echo(f"ok     configuration: {keys} keys set, the others are defaults")
    return not wrong


@click.command()
@click.argument("streams", nargs=-1)
@click.option("--bucket", help="Of the object; without it, as for inline rows.")
@click.option("--key", help="Of the object; without it, as for inline rows.")
@click.option(
    "--reload",
    "pid",
    type=click.IntRange(2),
    help="Have this process take the routes of its configuration file now, as SIGHUP does.",
)
@common
def route(
    context: Context, streams: tuple[str, ...], bucket: str | None, key: str | None, pid: int | None
) -> None:
    """Show which model answers each of these streams; without streams, show all routes. With
    --reload, a configuration that a worker would refuse is refused here, before the worker gets its
    signal.
    """
    from penstock.settings.routes import routes_of

    routes = routes_of(context.load(quiet=True))
    if not streams:
        click.echo(str(routes))
    for stream in streams:
        say(f"{stream}\t{' '.join(routes.of(stream, bucket, key))}")
    if pid is not None:
        try:
            os.kill(pid, signal.SIGHUP)
        except OSError as error:
            raise click.ClickException(f"process {pid}: {error.strerror}") from None
