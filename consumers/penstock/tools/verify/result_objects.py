"""Checks that result objects hold the rows that records promise, whatever their format.

Rule: an object is read once, into a temporary file, and decoded in a thread. Of each row only its
number is kept, and whether it failed.
"""

import asyncio
import csv
import gzip
import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import IO, Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from penstock.adapters.stores.local_files import LOCAL, local_path
from penstock.core.routing.store_choice import StoreChoice
from penstock.core.rows.origin import Ranges
from penstock.errors import Poison, Transient
from penstock.messages.prediction import Failure, Result
from penstock.messages.reference import SchemaError
from penstock.messages.urls import split_url
from penstock.ports import Location, Objects
from penstock.tools.verify.scope_and_input_topic import ObjectAt, Want

# How many result objects are read in parallel. Each of these reads takes some megabytes and a
# temporary file.
AT_A_TIME: Final = 8
PARQUET_ROWS: Final = 65_536
NULL: Final = b"null"
# While the rows of a damaged result are read, one of these exceptions is raised.
UNREADABLE: Final = (msgspec.MsgspecError, OSError, EOFError, ValueError, KeyError)


class ResultClaim(NamedTuple):
    """What a record says about the result of an object, and where this record is."""

    at: ObjectAt
    about: str
    want: Want
    rows: int
    result: Result
    model: str
    partition: int
    offset: int


class Claims:
    """For each object: the claims about its result, with the newest claim last. Claims about the
    same result count as one.
    """

    def __init__(self) -> None:
        self.by_object: dict[ObjectAt, list[ResultClaim]] = {}

    def add(self, claim: ResultClaim) -> bool:
        """Note a claim. Returns True if it is the first claim about its object. If several claims
        are about the same result, only the newest is kept.
        """
        claims = self.by_object.setdefault(claim.at, [])
        is_first = not claims
        if claims and claims[-1].result.checksum == claim.result.checksum:
            claims.pop()
        claims.append(claim)
        return is_first


@dataclass(slots=True)
class StoredContent:
    """The content of a stored result. `wrong`: the reason why its rows could not be read."""

    nbytes: int = 0
    checksum: str = ""
    rows: int = 0
    seen: Ranges | None = None
    failed: dict[str, Ranges] = field(default_factory=dict)
    wrong: str | None = None


async def look(objects: Objects, places: StoreChoice, url: str) -> StoredContent | str:
    """Read a result object. Returns its content, or a text that says why it cannot be read."""
    with tempfile.TemporaryFile() as file:
        stored = await fetched(objects, places, url, file)
        if isinstance(stored, str):
            return stored
        content = StoredContent(stored.nbytes, stored.checksum)
        await asyncio.to_thread(_count, content, file, url)
        return content


def _count(content: StoredContent, file: IO[bytes], url: str) -> None:
    content.seen = Ranges()
    last = -1
    try:
        for row, code, _, _ in rows_of(url, file, predictions=False):
            if row <= last:
                content.wrong = f"row {row} comes after row {last}"
                return
            last = row
            content.rows += 1
            content.seen.add(row, row + 1)
            if code is not None:
                content.failed.setdefault(code, Ranges()).add(row, row + 1)
    except UNREADABLE as error:
        content.wrong = f"it cannot be read: {error}"


def wrong_with(
    claims: list[ResultClaim], content: StoredContent | str
) -> tuple[str | None, ResultClaim]:
    """Returns two things: a text that says how the stored result differs from the claims (None: it
    does not differ); and the claim of the record to blame. The numbers of a repeated answer may
    differ in their last digits, so it is enough if the stored result matches one of the claims.
    """
    last = claims[-1]
    if isinstance(content, str):
        return f"its result {last.result.url} cannot be read: {content}", last
    same = [claim for claim in claims if claim.result.checksum == content.checksum]
    claim = same[-1] if same else last
    result = claim.result
    if not same:
        return (
            f"its result {result.url} has {content.nbytes} bytes, {content.checksum}; the record "
            f"says {result.bytes}, {result.checksum}"
        ), claim
    if content.wrong is not None:
        return f"its result {result.url}: {content.wrong}", claim
    assert content.seen is not None
    errors = sum(stop - start for rows in content.failed.values() for start, stop in rows)
    if (content.nbytes, content.rows, errors) != (result.bytes, result.rows, result.errors):
        return (
            f"its result {result.url} has {content.nbytes} bytes, {content.rows} rows and {errors} "
            f"errors; the record says {result.bytes}, {result.rows} and {result.errors}"
        ), claim
    if missing := claim.want.rows.within(0, claim.rows).minus(content.seen):
        return f"its result {result.url} lacks row {missing}", claim
    return None, claim


def is_replaced(
    claims: list[ResultClaim], of_url: Iterable[ResultClaim], content: StoredContent | str
) -> bool:
    """True if the stored result is that of another record about the same object and URL: the object
    was answered as a whole again (`dlq redrive --whole-objects`), or there is a new version of it.
    Within a partition only a later record can replace a result.
    """
    if isinstance(content, str):
        return False
    checksum, last = content.checksum, claims[-1]
    return all(claim.result.checksum != checksum for claim in claims) and any(
        other.result.checksum == checksum
        and other.about == last.about
        and (other.partition != last.partition or other.offset > last.offset)
        for other in of_url
    )


class ResultRow(NamedTuple):
    """`error`: if the row has no prediction, the error's code. `prediction`, `columns`: the
    prediction and the kept columns as JSON texts.
    """

    row: int
    error: str | None
    prediction: bytes = NULL
    columns: bytes = NULL


class StoredResult(NamedTuple):
    """Size and checksum of a stored result object."""

    nbytes: int
    checksum: str


class _ResultLine(Struct, gc=False):
    row: int
    error: Failure | None = None
    prediction: Raw = Raw(NULL)
    columns: Raw = Raw(NULL)


async def fetched(
    objects: Objects, places: StoreChoice, url: str, file: IO[bytes]
) -> StoredResult | str:
    """Write the result's bytes to the file, rewind the file, and return size and checksum. If the
    result cannot be read, for example because it is in no configured store, return a text that says
    why.
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
    return StoredResult(nbytes, f"sha256:{digest.hexdigest()}")


def _location_of(url: str, places: StoreChoice) -> Location:
    if (path := local_path(url)) is not None:
        return Location(LOCAL, path)
    store, bucket, key = split_url(url)
    return Location(bucket, key, store=places.of(store, bucket, key))


def rows_of(url: str, file: IO[bytes], *, predictions: bool) -> Iterator[ResultRow]:
    """Yields the rows in their order. If `predictions` is False, only the row numbers and errors of
    a Parquet result are read, because this is faster. Raises one of `UNREADABLE` if the result is
    damaged.
    """
    if url.endswith(".parquet"):
        return _parquet(file, predictions=predictions)
    if url.endswith(".csv"):
        return _csv(file)
    return _packed(file) if url.endswith(".gz") else _lines(file)


def _lines(file: IO[bytes]) -> Iterator[ResultRow]:
    decode = msgspec.json.Decoder(_ResultLine).decode
    for text in file:
        line = decode(text)
        code = line.error.code if line.error else None
        yield ResultRow(line.row, code, bytes(line.prediction), bytes(line.columns))


def _packed(file: IO[bytes]) -> Iterator[ResultRow]:
    with gzip.open(file) as unpacked:
        yield from _lines(unpacked)  # type: ignore[arg-type]


def _csv(file: IO[bytes]) -> Iterator[ResultRow]:
    csv.field_size_limit(1 << 30)
    for line in csv.DictReader(text.decode() for text in file):
        texts = (line[name].encode() or NULL for name in ("prediction", "columns"))
        yield ResultRow(int(line["row"]), line["error_code"] or None, *texts)


def _parquet(file: IO[bytes], *, predictions: bool) -> Iterator[ResultRow]:
    from pyarrow import parquet  # noqa: PLC0415 (large, and rarely needed)

    from penstock.encodings.typed_columns import layout_in, texts_of  # noqa: PLC0415

    table: Any = parquet.ParquetFile(file)
    layout = layout_in(table.schema_arrow)
    names = None if predictions else ["row", "error_code"]
    for batch in table.iter_batches(PARQUET_ROWS, columns=names):
        rows, codes = (batch.column(name).to_pylist() for name in ("row", "error_code"))
        if not predictions:
            yield from map(ResultRow, rows, codes)
            continue
        texts = (texts_of(batch, shape, name) for name, shape in layout._asdict().items())
        for row, code, answer, kept in zip(rows, codes, *texts, strict=True):
            yield ResultRow(row, code, NULL if code is not None else answer, kept)
