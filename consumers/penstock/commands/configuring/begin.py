"""`penstock config --init`: a first configuration file, from four questions.

Rule: a file that is there is never written over, and what is written has been checked as `penstock
lint` does. Owner: `penstock config`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from penstock.config.starter import Answers, starter
from penstock.errors import usage

FILE: Final = Path("penstock.toml")

QUESTIONS: Final[Mapping[str, str]] = {
    "kafka": "Kafka: servers and topic of the references, SERVER:PORT/TOPIC",
    "store": "Objects: s3://BUCKET, http://HOST:PORT/BUCKET (MinIO, Ceph), gs://, az://, file:///",
    "model": "Model: its URL, and the protocol where the URL does not tell it",
    "rows": "Rows: format (auto, csv, parquet, image, ...) and request (json, float32, bytes, ...)",
}


def begin(path: Path | None, given: Mapping[str, str | None]) -> None:
    """Write the file. What is not `given` is asked on a terminal; elsewhere it has its default."""
    # Loads every client, which no other command is to wait for.
    from penstock.lint.check import lint

    path = path or FILE
    if path.exists():
        raise usage(f"{path} is there already; name another by --config")
    answers = Answers(**{name: given[name] or _ask(name) for name in QUESTIONS})
    with path.open("x", encoding="utf-8") as file:
        file.write(starter(answers))
    if found := lint(path, {}, ()):
        path.unlink()
        raise usage("\n".join(str(one) for one in found))
    click.echo(f"{path} is written. Next: penstock doctor --config {path}")


def _ask(name: str) -> str:
    default = Answers._field_defaults[name]
    if not sys.stdin.isatty():
        return str(default)
    return str(click.prompt(QUESTIONS[name], default=default))
