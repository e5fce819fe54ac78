"""Reads the bytes of a result object, and decodes its rows, whatever its format.

Rule: the object is read once, into a temporary file, and its rows are decoded from the file, in a
thread. Owner: `penstock verify` and `penstock replay`.
"""

import csv
import gzip
import hashlib
from collections.abc import Iterator
from contextlib import aclosing
from typing import IO, Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from penstock.adapters.stores.files_and_stdin import LOCAL, local_path
from penstock.core.routing.store_choice import StoreChoice
from penstock.errors import Poison, Transient
from penstock.messages.prediction import Failure
from penstock.messages.reference import SchemaError
from penstock.messages.urls import split_url
from penstock.ports import Location, Objects

PARQUET_ROWS: Final = 65_536
NULL: Final = b"null"
# The exceptions that a damaged result raises while its rows are read.
UNREADABLE: Final = (msgspec.MsgspecError, OSError, EOFError, ValueError, KeyError)


class ResultRow(NamedTuple):
    """`error`: the error's code, if the row has no prediction. `prediction`: JSON text."""

    row: int
    error: str | None
    prediction: bytes


class Stored(NamedTuple):
    """Size and checksum of a stored result object."""

    nbytes: int
    checksum: str


class _Line(Struct, gc=False):
    row: int
    error: Failure | None = None
    prediction: Raw = Raw(NULL)


async def fetched(objects: Objects, places: StoreChoice, url: str, file: IO[bytes]) -> Stored | str:
    """Write the result's bytes to the file, and rewind the file. If the result cannot be read, for
    example because it is in no configured store, returns a text that says why.
    """
    nbytes, digest = 0, hashlib.sha256()
    try:
        async with aclosing(await objects.open(_location_of(url, places))) as body:
            async for chunk in body:
                digest.update(chunk)
                nbytes += len(chunk)
                file.write(chunk)
    except (Poison, SchemaError, Transient) as error:
        return str(error)
    file.seek(0)
    return Stored(nbytes, f"sha256:{digest.hexdigest()}")


def _location_of(url: str, places: StoreChoice) -> Location:
    if (path := local_path(url)) is not None:
        return Location(LOCAL, path)
    store, bucket, key = split_url(url)
    return Location(bucket, key, store=places.of(store, bucket, key))


def rows_of(url: str, file: IO[bytes], *, predictions: bool) -> Iterator[ResultRow]:
    """The rows in their order. If `predictions` is False, only the row numbers and errors of a
    Parquet result are read, because that is faster. Raises one of `UNREADABLE` if the result is
    damaged.
    """
    if url.endswith(".parquet"):
        return _parquet(file, predictions=predictions)
    if url.endswith(".csv"):
        return _csv(file)
    return _packed(file) if url.endswith(".gz") else _lines(file)


def _lines(file: IO[bytes]) -> Iterator[ResultRow]:
    decode = msgspec.json.Decoder(_Line).decode
    for text in file:
        line = decode(text)
        code = line.error.code if line.error else None
        yield ResultRow(line.row, code, bytes(line.prediction))


def _packed(file: IO[bytes]) -> Iterator[ResultRow]:
    with gzip.open(file) as unpacked:
        yield from _lines(unpacked)  # type: ignore[arg-type]


def _csv(file: IO[bytes]) -> Iterator[ResultRow]:
    csv.field_size_limit(1 << 30)
    for line in csv.DictReader(text.decode() for text in file):
        prediction = line["prediction"].encode() or NULL
        yield ResultRow(int(line["row"]), line["error_code"] or None, prediction)


def _parquet(file: IO[bytes], *, predictions: bool) -> Iterator[ResultRow]:
    from pyarrow import parquet  # noqa: PLC0415 (large, and rarely needed)

    table: Any = parquet.ParquetFile(file)
    columns = ["row", "error_code", *(["prediction"] if predictions else [])]
    for batch in table.iter_batches(PARQUET_ROWS, columns=columns):
        codes = batch.column("error_code").to_pylist()
        said = batch.column("prediction").to_pylist() if predictions else [None] * len(codes)
        for row, code, text in zip(batch.column("row").to_pylist(), codes, said, strict=True):
            yield ResultRow(row, code, text.encode() if text else NULL)
