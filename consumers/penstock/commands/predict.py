"""`penstock predict`: objects in, results out, no Kafka."""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from penstock.commands.common_options import (
    MODEL_HELP,
    PROTOCOL_HELP,
    Context,
    common,
    run_async,
    say,
)
from penstock.commands.summary_of_predict import Tally
from penstock.errors import EXIT_DONE, usage

# The forms are written out here, because to list them from `requests` would load numpy and pyarrow
# for a line of help.
REQUEST_HELP = (
    "json, instances, inputs, ndjson, float32, bytes, raw, arrow, or what a package adds."
)


@click.command()
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option(
    "--output",
    help="File for the results; or a URL, as output.objects, for one object with each one's.",
)
@click.option("--model", metavar="NAME|URL", help=MODEL_HELP)
@click.option("--protocol", metavar="NAME", help=PROTOCOL_HELP)
@click.option("--request", metavar="FORM", help=REQUEST_HELP)
@click.option(
    "--shard",
    metavar="I/N",
    help="Only this part of the objects, I from 0; auto/N, or auto: as the scheduler says.",
)
@click.option(
    "--skip-existing", is_flag=True, help="Not those whose result is at --output URL already."
)
@click.option("--allow-errors", is_flag=True, help="Exit with 0 though rows were rejected.")
@common
def predict(
    context: Context,
    urls: tuple[str, ...],
    output: str | None,
    model: str | None,
    protocol: str | None,
    request: str | None,
    shard: str | None,
    skip_existing: bool,
    allow_errors: bool,
) -> None:
    """Predict the rows of objects without Kafka: results in order, as JSON lines.

    URL is s3://bucket/key, a glob of keys, a local path or file://, or - for standard input. Exits
    with 1 if anything was answered by an error.
    """
    from penstock.library.choosing import chosen
    from penstock.library.predicting import predict_lines
    from penstock.library.progress_bar import predict_bar
    from penstock.library.shards import Share, shard_of

    cfg, name = chosen(context.load(quiet=True), model, protocol, request)
    template = output if output is not None and "://" in output else None
    path = Path(output) if output is not None and template is None else None
    tally = Tally(time.monotonic)
    part = shard_of(shard, os.environ) if shard is not None else None
    share = Share(part, skip_existing, tally.skip)

    async def work() -> None:
        with _result_file(path, tally) as file, predict_bar() as bar:
            lists = predict_lines(urls, cfg, name, template, bar.found, share)
            async with aclosing(lists) as ready:
                async for lines in ready:
                    file.write(b"\n".join(lines) + b"\n")
                    for said in tally.take(lines):
                        say(said, err=True)
                    bar.done(tally.rows, tally.objects)

    run_async(work())
    say(tally.sentence(), err=True)
    code = tally.exit_code(allow_errors=allow_errors)
    if code != EXIT_DONE:
        sys.exit(code)


@contextmanager
def _result_file(path: Path | None, tally: Tally) -> Iterator[BinaryIO]:
    """Standard output if `path` is None; else a temporary file, which is renamed to `path` when it
    is complete. A pipe is written directly.
    """
    if path is None:
        try:
            yield sys.stdout.buffer
        except asyncio.CancelledError:  # Ctrl-C, not a reader such as `head` that stops
            click.echo(f"stopped after {tally.records:,} records", err=True)
            raise
        sys.stdout.buffer.flush()
        return
    if path.is_dir():
        raise usage(f"--output {path}: Is a directory; name a file in it")
    if path.exists() and not path.is_file():  # a pipe, or /dev/null
        with path.open("wb") as file:
            yield file
        return
    try:
        number, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise usage(f"--output {path}: {error.strerror or error}") from None
    try:
        with os.fdopen(number, "wb") as file:
            yield file
        Path(name).chmod(_mode(path))
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        click.echo(f"{path} is not written: stopped after {tally.records:,} records", err=True)
        raise


def _mode(path: Path) -> int:
    """The mode of the file that is replaced; for a new file, the one a shell's `>` would give."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
