"""What Python programs call: `predict` and `predict_sync`; tables of their results.

Rule: `predict_sync` runs `predict` in a thread with an event loop of its own, because the caller's
thread may have a running loop already. If predictions are objects, each field becomes a column
`prediction.NAME`; a kept column has its own name, or `columns.NAME` if that is taken.

A call tells its errors once, at its end. If the first objects all lack a column that `keep` names,
the name is wrong, and the call ends.
"""

import asyncio
import logging
import os
import time
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from penstock import config
from penstock.adapters.stores.local_files import MEMORY
from penstock.errors import PenstockError, usage
from penstock.library.model_and_shard import Settings, chosen, configured
from penstock.library.without_kafka import predict_lines
from penstock.messages.prediction import Prediction
from penstock.packages import missing_extra
from penstock.terminal_text import predict_bar

log = logging.getLogger(__name__)

# A name, a path, several of them, or rows: a table, an array, or a list of rows.
Given = Any
_ROW = (list, tuple, dict, int, float, bool, type(None), np.ndarray, np.generic)


class GivenObjects(NamedTuple):
    """`urls`: everything that was given, in its order. `files`: for the names of rows in memory,
    the files that have these rows.
    """

    urls: Sequence[str]
    files: Mapping[str, str]


@contextmanager
def objects_of(given: Iterable[Given]) -> Iterator[GivenObjects]:
    """Raises `Fatal` if something is neither a name nor rows."""
    urls: list[str] = []
    files: dict[str, str] = {}
    with TemporaryDirectory(prefix="penstock-rows-") as folder:
        for each in given:
            names = _names(each)
            if names is not None:
                urls += names
                continue
            path = _written(each, Path(folder) / f"rows-{len(files)}")
            name = f"{MEMORY}{path.name}"
            files[name] = str(path)
            urls.append(name)
        yield GivenObjects(urls, files)


def _names(given: Given) -> list[str] | None:
    """The names; None: these are rows."""
    if isinstance(given, str | os.PathLike):
        return [os.fspath(given)]
    if _is_table(given) or isinstance(given, np.ndarray | Mapping | bytes | bytearray):
        return None
    if not isinstance(given, Iterable):
        return None
    names = given if isinstance(given, Sequence) else list(given)
    if all(isinstance(name, str | os.PathLike) for name in names):
        return [os.fspath(name) for name in names]
    return None


def _is_table(given: Given) -> bool:
    """A single column, such as a Series, has the interface, too, but no columns. A frame of pandas
    before 2.2 has no interface, and as an iterable it is the names of its columns.
    """
    if not (hasattr(given, "__arrow_c_stream__") or hasattr(given, "iloc")):
        return False
    return hasattr(given, "columns") or hasattr(given, "schema")


def _written(rows: Given, stem: Path) -> Path:
    if _is_table(rows):
        table = _table(rows)
        path = stem.with_suffix(".arrow")
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        return path
    if isinstance(rows, np.ndarray):
        path = stem.with_suffix(".npy")
        try:
            np.save(path, rows, allow_pickle=False)
        except ValueError as error:
            raise usage(f"an array of {rows.dtype} has no numbers: {error}") from None
        return path
    if isinstance(rows, list | tuple) and all(isinstance(row, _ROW) for row in rows):
        path = stem.with_suffix(".json")
        try:
            path.write_bytes(msgspec.json.encode(rows, enc_hook=_plain))
        except (TypeError, ValueError, RecursionError) as error:
            raise usage(f"the rows cannot be written as JSON: {error}") from None
        return path
    raise usage(
        f"{_shown(rows)} is neither the name of an object nor rows; rows are a table (Arrow, "
        "pandas, polars), a numpy array, or a list of rows, each a list or a dict"
        f"{_AS_TABLE.get(type(rows).__name__, '')}"
    )


def _table(rows: Given) -> pa.Table:
    """An index is no column: pyarrow would put it last, also that of a frame whose rows were
    chosen from another.
    """
    try:
        if hasattr(rows, "iloc"):
            return pa.Table.from_pandas(rows, preserve_index=False)
        return pa.table(rows)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise usage(f"the columns of a {type(rows).__name__} cannot be read: {error}") from None


def _plain(value: Any) -> Any:
    """A value of numpy as one of Python."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{_shown(value)} has no form in JSON")


def _shown(value: Any) -> str:
    name = type(value).__name__
    if isinstance(value, list | tuple) and value:
        odd = next(row for row in value if not isinstance(row, _ROW))
        return f"a {name} with {_shown(odd)}"
    return f"a value of the type {name}"


# How a value of pandas or polars that is no table becomes one.
_AS_TABLE: Final = {
    "LazyFrame": ". Give its collect()",
    "Series": ". Give its to_frame()",
}

# If so many objects lack a kept column, the others will, too.
ENOUGH = 3


class PredictSummary:
    def __init__(self, keep: str | Collection[str]) -> None:
        names = [keep] if isinstance(keep, str) else keep
        self._absent = tuple(f'no column "{name}" in ' for name in names)
        self._results = self._errors = self._lacking = 0
        self._first: Prediction | None = None

    def add(self, result: Prediction) -> None:
        """Raises `Fatal` if the objects so far all lack a kept column, and they are enough."""
        self._results += 1
        if result.error is None:
            return
        self._errors += 1
        self._first = self._first or result
        if result.last and any(text in result.error.message for text in self._absent):
            self._lacking += 1
            if self._lacking == ENOUGH:
                self._check_keep()

    def end(self) -> None:
        """Tell the errors. Raises `Fatal` if all objects lack a kept column."""
        self._check_keep()
        if self._errors:
            log.warning("%s", self)

    def _check_keep(self) -> None:
        if self._first is not None and 0 < self._lacking == self._results:
            assert self._first.error is not None
            raise usage(f"keep: {self._first.error.message}")

    def __str__(self) -> str:
        text = f"{_counted(self._results, 'result')}, {_counted(self._errors, 'error')}"
        first = self._first
        if first is None or first.error is None:
            return text
        place = first.object.key if first.object else first.stream
        row = "" if first.row is None else f" row {first.row}"
        return f"{text} (the first: {place}{row}: {first.error.code}: {first.error.message})"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


async def predict(
    *objects: Given,
    model: str | None = None,
    protocol: config.Protocol | None = None,
    request: str | None = None,
    keep: Sequence[str] | None = None,
    config: Settings | None = None,
    progress: bool = False,
) -> AsyncGenerator[Prediction]:
    """Predict every row of these objects; yields the results in order.

    objects: `s3://bucket/key`, `gs://`, `az://`, the URL of any configured store, local paths (text
        or `Path`) and `file://`, globs of all these, and `-` for standard input; or lists of them.
        Or rows in memory: a table of Arrow, pandas or polars, an array of numpy, a list of rows.
    model: the URL of a model, or the name of a configured one. What a URL looks like depends on
        the protocol: TorchServe's is `http://host:port/predictions/NAME[/VERSION]`.
    protocol: what the model server speaks; `http` takes any URL.
    request: the form of a call, as `json`, `float32`, `bytes` or `arrow`.
    keep: columns of the input. Each result has them in `columns`; a table has a column for each.
    config: all other settings (docs/configuration.md), as a TOML file or as a dictionary with the
        tables of such a file. Variables (`PENSTOCK_...`) override it; arguments override both.
    progress: True to show a bar in a notebook, or on standard error if this is a terminal.

    A rejected row has an `error` instead of a `prediction`. If there is something that the caller
    must mend, `PenstockError` is raised, and its text says how. Closing the iterator early stops
    the work.
    """
    decoder = msgspec.json.Decoder(Prediction)
    rows = done = 0
    summary, failure = PredictSummary(keep or ()), ""
    try:
        cfg, name = chosen(configured(config), model, protocol, request, keep)
        with objects_of(objects) as (urls, files), predict_bar(shown=progress) as bar:
            work = predict_lines(urls, cfg, name, on_listed=bar.found, memory=files)
            async with aclosing(work) as results:
                async for lines in results:
                    for line in lines:
                        result = decoder.decode(line)
                        rows += result.row is not None
                        done += result.last
                        summary.add(result)
                        yield result
                    bar.done(rows, done)
        summary.end()
    except PenstockError as error:
        failure = str(error)
    if failure:
        # Raised here, it is the class that programs catch, and has no context: a notebook would
        # show the groups of exceptions in it.
        raise PenstockError(failure) from None


def predict_sync(
    *objects: Given,
    model: str | None = None,
    protocol: config.Protocol | None = None,
    request: str | None = None,
    keep: Sequence[str] | None = None,
    config: Settings | None = None,
    progress: bool = False,
) -> "Predictions":
    """The same as `predict`, with the same arguments, but returns all results at once, as a list
    that has the methods `to_arrow()`, `to_pandas()` and `to_polars()`.

    It runs in a thread of its own, because a notebook's thread has a running event loop already. An
    interrupt (Ctrl-C) stops the work.
    """
    predictions = Predictions()

    async def collect() -> None:
        results = predict(
            *objects,
            model=model,
            protocol=protocol,
            request=request,
            keep=keep,
            config=config,
            progress=progress,
        )
        async with aclosing(results):
            async for result in results:
                predictions.append(result)

    begun_s, failure = time.monotonic(), ""
    try:
        run_in_thread(collect())
    except PenstockError as error:
        failure = str(error)
    if failure:
        raise PenstockError(failure) from None
    predictions.seconds = time.monotonic() - begun_s
    return predictions


def run_in_thread(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end in a thread of its own, and wait. If an exception, such as an
    interrupt, comes during the wait, it is raised only after the coroutine has ended.
    """
    failed: list[BaseException] = []
    running: list[Callable[[], object]] = []
    ended, is_interrupted = Event(), Event()

    async def run() -> None:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        running.append(partial(loop.call_soon_threadsafe, task.cancel))
        # The interrupt may have come when there was no task yet that could be cancelled.
        if is_interrupted.is_set():
            work.close()
            return
        await work

    def work_on() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:  # raised in the caller's thread
            failed.append(error)
        finally:
            ended.set()

    thread = Thread(target=work_on, name="predict_sync", daemon=True)
    try:
        thread.start()
        ended.wait()  # after an interrupt of `join`, Python 3.11 would take the thread for ended
    except BaseException:
        is_interrupted.set()
        with suppress(RuntimeError):  # the work has just ended, and its loop is closed
            for cancel in running:
                cancel()
        if thread.is_alive():
            thread.join()
        raise
    if failed:
        raise failed[0]


class Predictions(list[Prediction]):
    """The list of records that `predict_sync` returns. `seconds`: how long the call took."""

    seconds: float | None = None

    def __repr__(self) -> str:
        """How many there are, and the first error: not the records, which would fill a screen."""
        summary = PredictSummary(())
        for prediction in self:
            summary.add(prediction)
        return str(summary) if self.seconds is None else f"<{summary}, {self.seconds:.1f} s>"

    def to_arrow(self) -> pa.Table:
        return to_arrow(self)

    def to_pandas(self) -> Any:
        return to_pandas(self)

    def to_polars(self) -> Any:
        return to_polars(self)


def to_arrow(results: Iterable[Prediction]) -> pa.Table:
    """Make a table of the results. Its columns are `id`, `stream`, `bucket`, `key`, `member`,
    `row`, `event_time`, `error`, `message`, those of the prediction, and those that `keep` named.
    """
    answers = list(results)
    plain = {
        "id": pa.array([answer.id for answer in answers], pa.string()),
        "stream": pa.array([answer.stream for answer in answers], pa.string()),
        "bucket": pa.array(
            [answer.object and answer.object.bucket for answer in answers], pa.string()
        ),
        "key": pa.array([answer.object and answer.object.key for answer in answers], pa.string()),
        "member": pa.array([answer.member for answer in answers], pa.string()),
        "row": pa.array([answer.row for answer in answers], pa.int64()),
        "event_time": _column([answer.event_time for answer in answers]),
        "error": pa.array([answer.error and answer.error.code for answer in answers], pa.string()),
        "message": pa.array(
            [answer.error and answer.error.message for answer in answers], pa.string()
        ),
    }
    table = plain | _predictions([answer.prediction for answer in answers])
    return pa.table(table | _kept([answer.columns or {} for answer in answers], table.keys()))


def _predictions(values: list[Any]) -> dict[str, pa.Array]:
    given = [value for value in values if value is not None]
    if not given or not all(isinstance(value, dict) for value in given):
        return {"prediction": _column(values)}
    names = dict.fromkeys(name for value in given for name in value)
    return {
        f"prediction.{name}": _column([value and value.get(name) for value in values])
        for name in names
    }


def _kept(rows: list[dict[str, Any]], taken: Collection[str]) -> dict[str, pa.Array]:
    return {
        f"columns.{name}" if name in taken else name: _column([row.get(name) for row in rows])
        for name in dict.fromkeys(name for row in rows for name in row)
    }


def _column(values: list[Any]) -> pa.Array:
    """Make a column of the values. If they have several types, or one is an integer of more than 64
    bits, the column holds their JSON.
    """
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array(
            [None if value is None else msgspec.json.encode(value).decode() for value in values]
        )


def to_pandas(results: Iterable[Prediction]) -> Any:
    """The columns of `to_arrow` as a pandas DataFrame."""
    try:
        import pandas  # noqa: F401, PLC0415 (an extra: pyarrow asks for it)
    except ImportError as error:
        raise missing_extra("to_pandas", "pandas", error) from None
    return to_arrow(results).to_pandas()


def to_polars(results: Iterable[Prediction]) -> Any:
    """The columns of `to_arrow` as a polars DataFrame."""
    try:
        import polars  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise missing_extra("to_polars", "polars", error) from None
    return polars.from_arrow(to_arrow(results))
