"""`penstock predict`: answers the rows of objects without Kafka.

Rule: a file of results is complete or not written at all. If no row was read at all, the exit code
is one of a failed start.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Protocol

import click
import msgspec
from msgspec import Struct

from penstock.commands.common_options import (
    MODEL_HELP,
    PROTOCOL_HELP,
    Context,
    common,
    run_async,
    say,
    say_json,
    time_from_key,
    timed,
)
from penstock.errors import EXIT_CHECK_FAILED, EXIT_DONE, EXIT_UNREACHABLE, EXIT_USAGE, usage
from penstock.messages.prediction import Failure, ObjectId, Result
from penstock.tools.verify.findings import counted

# The forms are written out here. To list them from `requests` would load numpy and pyarrow, only
# for a line of help.
REQUEST_HELP = (
    "json, instances, inputs, ndjson, float32, bytes, b64, raw, arrow, or what a package adds."
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
@time_from_key
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
    time_from: str | None,
) -> None:
    """Predict the rows of objects without Kafka: results in order, as JSON lines.

    URL is s3://bucket/key, a glob of keys, a local path or file://, or - for standard input. Exits
    with 1 if anything was answered by an error.
    """
    from penstock.library.model_and_shard import Share, chosen, shard_of
    from penstock.library.without_kafka import predict_lines
    from penstock.terminal_text import predict_bar

    cfg, name = chosen(timed(context.load(quiet=True), time_from), model, protocol, request)
    template = output if output is not None and "://" in output else None
    path = Path(output) if output is not None and template is None else None
    tally = RecordTally(time.monotonic)
    part = shard_of(shard, os.environ) if shard is not None else None
    share = Share(part, skip_existing, tally.skip)

    async def work() -> None:
        with _result_file(path, tally) as file, predict_bar() as bar:
            lists = predict_lines(urls, cfg, name, template, bar.found, share)
            async with aclosing(lists) as ready:
                async for lines in ready:
                    file.write(b"\n".join(lines) + b"\n")
                    for message in tally.take(lines):
                        say(message, err=True)
                    bar.done(tally.rows, tally.objects)

    run_async(work())
    say(tally.sentence(), err=True)
    code = tally.exit_code(allow_errors=allow_errors)
    if code != EXIT_DONE:
        sys.exit(code)


class ResultOutput(Protocol):
    def write(self, lines: bytes, /) -> object: ...


class OnTerminal(ResultOutput):
    """Results that a person reads."""

    def write(self, lines: bytes, /) -> None:
        say_json(lines.removesuffix(b"\n"))


@contextmanager
def _result_file(path: Path | None, tally: "RecordTally") -> Iterator[ResultOutput]:
    """A context whose value is the file that takes the results. Without a `path`, that file is
    standard output. If `path` names a pipe, the results go into the pipe. Otherwise they go into a
    temporary file, which is renamed to `path` when it is complete.
    """
    if path is None:
        try:
            yield OnTerminal() if sys.stdout.isatty() else sys.stdout.buffer
        except asyncio.CancelledError:  # Ctrl-C; a reader like `head` that ends raises another one
            say(f"stopped after {tally.records:,} records", err=True)
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
        say(f"{path} is not written: stopped after {tally.records:,} records", err=True)
        raise


def _mode(path: Path) -> int:
    """The mode of the file that is replaced. If there is none: the mode that a shell's `>` would
    give to a new file.
    """
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


# A mapping from the code of an error to the exit code if no row was read. `EXIT_USAGE` means that
# the user must correct a wrong URL or missing rights.
_CODES: Mapping[str, int] = {
    "bad_reference": EXIT_USAGE,
    "not_allowed": EXIT_USAGE,
    "not_found": EXIT_USAGE,
    "forbidden": EXIT_USAGE,
    "unavailable": EXIT_UNREACHABLE,
}
# All objects without rows are counted, but at most this many are named: the first ones.
SHOWN_EMPTY = 3


class _PrintedRecord(Struct, gc=False):
    row: int | None
    object: ObjectId | None = None
    last: bool = False
    error: Failure | None = None
    result: Result | None = None


_decode = msgspec.json.Decoder(_PrintedRecord).decode


class RecordTally:
    """Counts the records of one command. Call `take` with the records as they come; after that,
    `sentence` and `exit_code`.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.records = 0
        self._now_s = now_s
        self._began_s = now_s()
        self.rows = self.objects = 0
        self._rejected: Counter[str] = Counter()
        self._unread: Counter[str] = Counter()
        self._empty, self._has_error = 0, False
        self._skipped = 0
        self._messages: list[str] = []

    def take(self, lines: Sequence[bytes]) -> list[str]:
        """Count these records. Returns lines that must be printed at once: the very first error,
        and the first objects without rows.
        """
        for line in lines:
            self._add(_decode(line))
        messages, self._messages = self._messages, []
        return messages

    def skip(self) -> None:
        """Count an object that is not read, because its result exists already."""
        self._skipped += 1

    def _add(self, record: _PrintedRecord) -> None:
        self.records += 1
        self.rows += record.row is not None
        self.objects += record.last
        if record.result is not None:
            self.rows += record.result.rows
            if record.result.errors:
                self._rejected["named in the results"] += record.result.errors
        if record.error is None:
            if record.row is None and not (record.result and record.result.rows):
                self._no_rows(record)
            return
        if not self._has_error:
            self._has_error = True
            self._messages.append(f"the first error: {_in_words(record, record.error)}")
        (self._unread if record.row is None else self._rejected)[record.error.code] += 1

    def _no_rows(self, record: _PrintedRecord) -> None:
        self._empty += 1
        if self._empty <= SHOWN_EMPTY:
            self._messages.append(
                f"no rows in {record.object.key if record.object else 'a message'}"
            )

    def exit_code(self, *, allow_errors: bool) -> int:
        if self._unread and not self.rows:
            return max(_CODES.get(code, EXIT_CHECK_FAILED) for code in self._unread)
        errors = self._unread or self._rejected
        return EXIT_CHECK_FAILED if errors and not allow_errors else EXIT_DONE

    def sentence(self) -> str:
        took_s = self._now_s() - self._began_s
        rate = f", {self.rows / took_s:,.0f} rows/s" if took_s > 0 else ""
        message = f"{counted(self.rows, 'row')} of {counted(self.objects, 'object')}"
        text = f"{message} in {took_s:.1f} s{rate}"
        text += f": {self.rows - self._rejected.total():,} predicted"
        if self._rejected:
            text += f", {self._rejected.total():,} rejected ({_by_code(self._rejected)})"
        if self._empty:
            text += f", {counted(self._empty, 'object')} without rows"
        if self._unread:
            text += f", {counted(self._unread.total(), 'object')} not read to the end"
            text += f" ({_by_code(self._unread)})"
        if self._skipped:
            text += f", {counted(self._skipped, 'object')} skipped: their results are there"
        return text


def _in_words(record: _PrintedRecord, error: Failure) -> str:
    key = record.object.key if record.object else "a message"
    name = "" if key in error.message else key  # do not name the object twice
    row = "" if record.row is None else f"row {record.row}"
    where = ", ".join(filter(None, (name, row)))
    return ": ".join(filter(None, (where, error.code, error.message)))


def _by_code(errors: Counter[str]) -> str:
    return ", ".join(f"{code} {number:,}" for code, number in errors.most_common())
