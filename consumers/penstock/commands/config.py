"""`penstock config`: the values in force, each with its place; with `--init`, a first file.

Rule: `--init` never overwrites a file, and `lint` finds nothing wrong in what it writes.
"""

import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.commands.common_options import Context, common, say, say_json
from penstock.config import Config, check_files, load
from penstock.config.starter import StarterAnswers, starter
from penstock.errors import Fatal, usage

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


@click.command()
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the configuration instead.")
@click.option("--init", is_flag=True, help="Write a first, commented file instead (penstock.toml).")
@_answering
@common
def config(context: Context, /, schema: bool, init: bool, **given: str | None) -> None:
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
        say_json(orjson.dumps(msgspec.json.schema(Config), option=orjson.OPT_INDENT_2))
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
        say_json(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    # This import loads every client, which takes time. So it stands here, after the configuration
    # was printed.
    from penstock.tools.lint import refused

    check_files(resolved.config, resolved.sources)
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
    is asked for the other answers; without a terminal they are read from standard input, a line
    each, and an empty or missing line stands for the default.
    """
    # This import loads every client. It stands here, so that a command without `--init` need not
    # wait for it.
    from penstock.packages import MissingExtra
    from penstock.tools.lint import lint, refused

    path = path or FILE
    if path.exists():
        raise usage(f"{path} is there already; name another by --config")
    answers = StarterAnswers(**{name: given[name] or _ask(name) for name in QUESTIONS})
    text = starter(answers)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise usage(f"{path}: {error.strerror}; name another file by --config") from None
    findings = lint(path, {}, ())
    lacking: set[str] = set()
    with suppress(Fatal):  # of a value that no key takes; it is among the findings
        errors = refused(load(path, {}))
        lacking = {str(error) for error in errors if isinstance(error, MissingExtra)}
    if wrong := [finding.said for finding in findings if finding.said not in lacking]:
        # No line is named: the file that has it is not left.
        path.unlink()
        raise usage("\n".join(wrong))
    say("\n".join([f"{path} is written. Next: penstock doctor --config {path}", *sorted(lacking)]))


def _ask(name: str) -> str:
    default = StarterAnswers._field_defaults[name]
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip() or str(default)
    return str(click.prompt(QUESTIONS[name], default=default))
