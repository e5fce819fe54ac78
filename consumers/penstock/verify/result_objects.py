"""Checks result objects against what their records say.

Rule: a result object is read once into a temporary file, and its rows are decoded from there in a
thread. Only a row's number is kept, and whether it failed. Owner: `penstock verify`.
"""

import asyncio
import csv
import gzip
import hashlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from penstock.core.progress.ranges import Ranges
from penstock.errors import Poison, Transient
from penstock.messages.prediction import Failure, Result
from penstock.ports import Location, Objects
from penstock.verify.input_topic import Want
from penstock.verify.repeats import ObjectAt

# How many are read in parallel: each takes some megabytes and a temporary file.
AT_A_TIME: Final = 8
PARQUET_ROWS: Final = 65_536

# A row's number, and the code of the error that it has instead of a prediction.
Row = tuple[int, str | None]


class Claim(NamedTuple):
    """What a record says about a result: the object, its rows; and the record's own place."""

    at: ObjectAt
    about: str
    want: Want
    rows: int
    result: Result
    model: str
    partition: int
    offset: int


@dataclass(slots=True)
class Found:
    """What is stored under a result's name. `wrong`: why its rows could not be read."""

    nbytes: int = 0
    checksum: str = ""
    rows: int = 0
    seen: Ranges | None = None
    failed: dict[str, Ranges] = field(default_factory=dict)
    wrong: str | None = None


class _Line(Struct, gc=False):
    row: int
    error: Failure | None = None


async def look(objects: Objects, location: Location, url: str) -> Found | str:
    """Read a result object. Returns what was found, or a text that says why it cannot be read."""
    with tempfile.TemporaryFile() as file:
        found, digest = Found(), hashlib.sha256()
        try:
            body = await objects.open(location)
            try:
                async for chunk in body:
                    digest.update(chunk)
                    found.nbytes += len(chunk)
                    file.write(chunk)
            finally:
                await body.aclose()
        except (Poison, Transient) as error:
            return str(error)
        found.checksum = f"sha256:{digest.hexdigest()}"
        file.seek(0)
        await asyncio.to_thread(_count, found, file, url)
        return found


def _count(found: Found, file: IO[bytes], url: str) -> None:
    found.seen = Ranges()
    last = -1
    try:
        for row, code in _reader_of(url)(file):
            if row <= last:
                found.wrong = f"row {row} comes after row {last}"
                return
            last = row
            found.rows += 1
            found.seen.add(row, row + 1)
            if code is not None:
                found.failed.setdefault(code, Ranges()).add(row, row + 1)
    except (msgspec.MsgspecError, OSError, EOFError, ValueError, KeyError) as error:
        found.wrong = f"it cannot be read: {error}"


def _reader_of(url: str) -> Callable[[IO[bytes]], Iterator[Row]]:
    if url.endswith(".parquet"):
        return _parquet
    if url.endswith(".csv"):
        return _csv
    return _packed if url.endswith(".gz") else _lines


def _lines(file: IO[bytes]) -> Iterator[Row]:
    decode = msgspec.json.Decoder(_Line).decode
    for text in file:
        line = decode(text)
        yield line.row, line.error.code if line.error else None


def _packed(file: IO[bytes]) -> Iterator[Row]:
    with gzip.open(file) as unpacked:
        yield from _lines(unpacked)  # type: ignore[arg-type]


def _csv(file: IO[bytes]) -> Iterator[Row]:
    csv.field_size_limit(1 << 30)
    for line in csv.DictReader(text.decode() for text in file):
        yield int(line["row"]), line["error_code"] or None


def _parquet(file: IO[bytes]) -> Iterator[Row]:
    from pyarrow import parquet  # noqa: PLC0415 (large, and rarely needed)

    table: Any = parquet.ParquetFile(file)
    for batch in table.iter_batches(PARQUET_ROWS, columns=["row", "error_code"]):
        codes = batch.column("error_code").to_pylist()
        yield from zip(batch.column("row").to_pylist(), codes, strict=True)


def wrong_with(claims: list[Claim], found: Found | str) -> tuple[str | None, Claim]:
    """How a result differs from the records of its object (None: it does not), and the record to
    blame. A repeated answer may have other digits, so matching one of the records is enough.
    """
    last = claims[-1]
    if isinstance(found, str):
        return f"its result {last.result.url} cannot be read: {found}", last
    same = [claim for claim in claims if claim.result.checksum == found.checksum]
    claim = same[-1] if same else last
    said = claim.result
    if not same:
        return (
            f"its result {said.url} has {found.nbytes} bytes, {found.checksum}; the record says "
            f"{said.bytes}, {said.checksum}"
        ), claim
    if found.wrong is not None:
        return f"its result {said.url}: {found.wrong}", claim
    assert found.seen is not None
    errors = sum(stop - start for rows in found.failed.values() for start, stop in rows)
    if (found.nbytes, found.rows, errors) != (said.bytes, said.rows, said.errors):
        return (
            f"its result {said.url} has {found.nbytes} bytes, {found.rows} rows and {errors} "
            f"errors; the record says {said.bytes}, {said.rows} and {said.errors}"
        ), claim
    if missing := claim.want.rows.within(0, claim.rows).minus(found.seen):
        return f"its result {said.url} lacks row {missing}", claim
    return None, claim
