"""Holds what Penstock reads against what a foreign tool wrote.

A `Cell` is one way of one tool to write known content. `hold` lets the tool write, reads the file
in each way in which a worker may read it, for each form of request, and compares with the content
that the tool was given, never with another reader. Tools are installed by `scripts/writers`.
"""

import gzip
import io
import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from math import isnan
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import pytest

from penstock.config import Config, Model
from penstock.config.sections import Limits, Rows
from penstock.core.rows.payload import BytesRows, Columns, JsonRows, Matrix
from penstock.errors import Poison, Unforeseen
from penstock.formats.reading import decoded, open_inline
from penstock.formats.registry import claim_of
from penstock.formats.runs import Notices, RowOptions, Run
from penstock.settings.inputs import row_options

INSTALLED = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "writers"
)
IS_LONG = bool(os.environ.get("EVERY_WRITER"))
MUST_HAVE = bool(os.environ.get("REQUIRE_WRITERS"))

Request = Literal["json", "float32", "bytes", "arrow"]
# How an object may come: read by the worker itself if it is small enough; by a decoder, in chunks
# that end anywhere; packed; as a member of an archive.
Way = Literal["plain", "decoder", "gzip", "tar", "zip"]
WAYS: tuple[Way, ...] = ("plain", "decoder", "gzip", "tar", "zip")
_INLINE_BYTES = Limits().inline_bytes
_CHUNK_BYTES = 4_093


@dataclass(frozen=True)
class Bad:
    """A row that is answered by an error with this text in it."""

    text: str


@dataclass(frozen=True)
class Refused:
    """The object ends with an error that has this text in it, after these rows."""

    text: str
    after: Sequence[object] = ()


@dataclass(frozen=True)
class Near:
    """A row of numbers that differ from these by at most `mean` on average, as a lossy writer's."""

    numbers: Sequence[float]
    mean: float

    def is_near(self, row: object) -> bool:
        if not isinstance(row, list) or len(row) != len(self.numbers):
            return False
        return float(np.abs(np.subtract(row, self.numbers)).mean()) <= self.mean


# What is right for a request: the rows (a number or text as JSON has it; floats as float32; bytes),
# `Bad` among them, or `Refused`.
Right = Sequence[object] | Refused


@dataclass(frozen=True)
class File:
    """What a tool wrote. `key`: the name under which it is announced. `notice`: a text that the log
    must have.
    """

    key: str
    data: bytes
    right: Mapping[Request, Right]
    notice: str | None = None


@dataclass(frozen=True)
class Cell:
    """`tools`: the commands (`mlr`) and Python modules (`module:duckdb`) that write it. `rows`: the
    section `rows` of the configuration. `is_long`: left to `scripts/test long`.
    """

    writer: str
    option: str
    write: Callable[[Path], File | Iterable[File]]
    tools: Sequence[str] = ()
    rows: Mapping[str, Any] = field(default_factory=dict)
    ways: Sequence[Way] = WAYS
    is_long: bool = False

    def __str__(self) -> str:
        return f"{self.writer}: {self.option}"


class Read(NamedTuple):
    """`rows`: values of good rows and `Bad`; `failure`: why the object ended early."""

    rows: list[object]
    failure: str | None
    notices: list[str]


def named(cells: Sequence[Cell]) -> list[Any]:
    """The cells as parameters of a test."""
    assert len(set(map(str, cells))) == len(cells), "two cells have one name"
    return [pytest.param(cell, id=str(cell).replace("::", ":")) for cell in cells]


def hold(cell: Cell, folder: Path) -> None:
    """Fail if a row differs from what was written, or if a refusal does not say why."""
    for file in files(cell, folder):
        for request, right in file.right.items():
            for way in cell.ways:
                seen = read(way, file.key, file.data, request, cell.rows)
                where = f"{cell}, {file.key}, {request}, {way}"
                compare(seen, right, where)
                if file.notice is not None:
                    assert any(file.notice in text for text in seen.notices), (where, seen.notices)


def files(cell: Cell, folder: Path) -> list[File]:
    """What the tool writes; the test is skipped without it."""
    if cell.is_long and not IS_LONG:
        pytest.skip("EVERY_WRITER is not set")
    for name in cell.tools:
        tool(name)
    written = cell.write(folder)
    return [written] if isinstance(written, File) else list(written)


def compare(seen: Read, right: Right, where: str) -> None:
    rows = right.after if isinstance(right, Refused) else right
    for index, (row, wanted) in enumerate(zip(seen.rows, rows, strict=False)):
        if isinstance(wanted, Bad) and isinstance(row, Bad):
            assert wanted.text in row.text, f"{where}: row {index}: {row.text}"
        else:
            assert _same(row, wanted), f"{where}: row {index} is {row!r}, written was {wanted!r}"
    assert len(seen.rows) == len(rows), f"{where}: {len(seen.rows)} rows, not {len(rows)}: {seen}"
    if isinstance(right, Refused):
        assert seen.failure is not None, f"{where}: not refused"
        assert right.text in seen.failure, f"{where}: {seen.failure}"
    else:
        assert seen.failure is None, f"{where}: {seen.failure}"


def _same(row: object, wanted: object) -> bool:
    """True if both are equal, and of one type. NaN equals itself; -0.0 is not 0.0 in JSON."""
    if isinstance(wanted, Near):
        return wanted.is_near(row)
    if isinstance(row, float) and isinstance(wanted, float) and isnan(row) and isnan(wanted):
        return True
    if isinstance(row, list) and isinstance(wanted, list | tuple):
        return len(row) == len(wanted) and all(map(_same, row, wanted))
    if isinstance(row, dict) and isinstance(wanted, dict):
        return list(row) == list(wanted) and all(map(_same, row.values(), wanted.values()))
    if isinstance(row, float) and isinstance(wanted, float):
        return repr(row) == repr(wanted)
    return type(row) is type(wanted) and row == wanted


def read(
    way: Way, key: str, data: bytes, request: Request, rows: Mapping[str, Any] | None = None
) -> Read:
    """What the model would get of the object that comes in this way."""
    options = options_of(request, rows or {})
    notices: list[str] = []
    options = replace(options, notices=Notices(notices.append))
    key, data = wrapped(way, key, data)
    runs: list[Run] = []
    failure: str | None = None
    try:
        inline = (
            None if way == "decoder" else open_inline(options, data, _INLINE_BYTES, claim_of(key))
        )
        if inline is not None:
            for turn in inline:
                runs += turn.runs
        else:
            for piece in decoded(options, data, _CHUNK_BYTES, claim_of(key)):
                runs += piece
    except Unforeseen:
        raise
    except Poison as poison:
        failure = str(poison)
    return Read([row for run in runs for row in _rows(run)], failure, notices)


def options_of(request: Request, rows: Mapping[str, Any]) -> RowOptions:
    section = msgspec.convert(dict(rows), Rows)
    return row_options(Config(rows=section, model=Model(request=request)))


def wrapped(way: Way, key: str, data: bytes) -> tuple[str, bytes]:
    if way == "gzip":
        return f"{key}.gz", gzip.compress(data)
    out = io.BytesIO()
    if way == "tar":
        with tarfile.open(fileobj=out, mode="w") as archive:
            member = tarfile.TarInfo(key)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        return "archive.tar", out.getvalue()
    if way == "zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr(key, data)
        return "archive.zip", out.getvalue()
    return key, data


def _rows(run: Run) -> list[object]:
    if run.payload is None:
        assert run.error is not None
        return [Bad(run.error)] * run.rows
    if isinstance(run.payload, Matrix):
        return list(run.payload.values.tolist())
    if isinstance(run.payload, BytesRows):
        return [bytes(run.payload.row(row)) for row in range(run.rows)]
    if isinstance(run.payload, Columns):
        return list(run.payload.batch.to_pylist())
    assert isinstance(run.payload, JsonRows)
    return list(json.loads(b"".join((b"[", run.payload.body, b"]"))))


def float32(rows: Iterable[Sequence[float]]) -> list[object]:
    """Rows of numbers as a float32 request carries them."""
    return [np.asarray(row, np.float32).tolist() for row in rows]


def tool(name: str) -> str:
    """The path of a command, or the name of a Python module; the test is skipped without it."""
    kind, _, module = name.partition(":")
    if kind == "module":
        if find_spec(module) is not None:
            return module
    else:
        path = shutil.which(name, path=f"{INSTALLED / 'bin'}:{os.environ['PATH']}")
        if path is not None:
            return path
    if MUST_HAVE and not IS_LONG:
        pytest.fail(f"{name} is not installed; scripts/writers installs it")
    pytest.skip(f"{name} is not installed (scripts/writers)")


def module(name: str) -> Any:
    """A Python library that writes; the test is skipped without it."""
    return import_module(tool(f"module:{name}"))


def run(*command: str | Path, stdin: bytes = b"", cwd: Path | None = None) -> bytes:
    """What a tool writes to its standard output."""
    done = subprocess.run(
        [tool(str(command[0])), *map(str, command[1:])],
        input=stdin, capture_output=True, timeout=200, cwd=cwd, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}: {done.stderr.decode(errors='replace')[-2000:]}"
    return done.stdout
