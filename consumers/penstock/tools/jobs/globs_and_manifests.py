"""Lists the objects of a job, by URLs and globs or by a manifest (a list file, or the
`manifest.json` of an S3 Inventory), each with its place in the listing.

Rule: the order is the same whenever the command runs. A place is the number of a URL or file, and
in it for globs the key, for lists the number of the row: so after a crash the command goes on
behind it, and keys that have come or gone meanwhile change no other's place. A list file is read by
ranges, all of one version, which is the listing's pin. A wrong row ends the command, because
leaving it out would silently lose an object.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from hashlib import blake2b
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from penstock.adapters.inputs.urls import references
from penstock.adapters.stores.local_files import LOCAL, STDIN, local_path
from penstock.core.routing.store_choice import StoreChoice
from penstock.errors import Fatal, Poison, usage
from penstock.formats.source import Need, RangedSource
from penstock.messages.reference import Reference, SchemaError
from penstock.messages.urls import split_url
from penstock.ports import Location, ObjectBody, Objects
from penstock.process.asyncio_additions import in_thread
from penstock.tools.jobs.list_rows import PARQUET, ListColumns, csv_rows, parquet_rows

# The place of an object. Places of one listing can be compared, because the second parts of all
# places in one URL or file are of one type: all keys, or all numbers.
At = tuple[int, int | str]
CHUNK = 1_000


class Listing(Protocol):
    @property
    def pin(self) -> str:
        """The version of the list. It is "" if there is none, as for the listing of a bucket."""
        ...

    def chunks(self, after: At | None) -> AsyncIterator[Sequence[tuple[At, Reference]]]:
        """Yields, in chunks, all references behind this place, each with its place. Raises `Fatal`
        if the listing cannot be read.
        """
        ...


class Globs:
    """The objects of URLs and globs, in the order in which the URLs and globs are given. An object
    that is named without a glob must exist.
    """

    pin = ""

    def __init__(self, objects: Objects, urls: Sequence[str], places: StoreChoice) -> None:
        self._objects = objects
        self._urls = urls
        self._places = places

    async def chunks(self, after: At | None) -> AsyncIterator[Sequence[tuple[At, Reference]]]:
        first = 0 if after is None else after[0]
        for number, url in enumerate(self._urls[first:], first):
            chunk: list[tuple[At, Reference]] = []
            last = ""
            async for reference in references(self._objects, [url], self._places):
                at = (number, reference.key)
                if after is not None and reference.key < last:
                    raise usage(
                        f"the store lists {url} not in the order of its keys ({reference.key} "
                        f"after {last}), so nobody can tell where to go on; announce it from a "
                        "list: --manifest"
                    )
                last = reference.key
                if after is not None and at <= after:
                    continue
                if reference.size is None:
                    await self._look_for(reference)
                chunk.append((at, reference))
                if len(chunk) == CHUNK:
                    yield chunk
                    chunk = []
            yield chunk

    async def _look_for(self, reference: Reference) -> None:
        """Raises `Fatal` if an object that was named without a glob does not exist."""
        bucket, key = reference.bucket, reference.key
        store = self._places.of(reference.store, bucket, key)
        try:
            body = await self._objects.open(Location(bucket, key, store=store))
        except Poison as error:
            inside = f"{key.rstrip('/')}/**"
            is_missing = error.code == "not_found"
            hint = f"; if it is a folder, name what is in it: '.../{inside}'" if is_missing else ""
            raise usage(f"not announced: {error}{hint}") from None
        await body.aclose()


class Lists:
    """The objects of the rows of list files, in the order of the rows. `read`: a function that
    gives the reference of each row of a file, or None for a row that makes no reference.
    """

    def __init__(
        self,
        pin: str,
        files: Sequence[Location],
        read: Callable[[Location], AsyncIterator[Sequence[Reference | None]]],
    ) -> None:
        self.pin = pin
        self._files = files
        self._read = read

    async def chunks(self, after: At | None) -> AsyncIterator[Sequence[tuple[At, Reference]]]:
        first = 0 if after is None else after[0]
        for number, file in enumerate(self._files[first:], first):
            row = 0
            async for batch in self._read(file):
                placed = (((number, row), reference) for row, reference in enumerate(batch, row))
                yield [
                    (at, reference)
                    for at, reference in placed
                    if reference and (after is None or at > after)
                ]
                row += len(batch)


# A manifest may be this large at most. That of a billion objects is far smaller: it names about a
# thousand files, each in 150 bytes.
MOST_MANIFEST_BYTES = 64 << 20


class _File(Struct):
    key: str


class _Manifest(Struct, rename="camel"):
    """The fields of an S3 Inventory's manifest that we need."""

    file_format: str
    files: list[_File]
    file_schema: str = ""
    destination_bucket: str = ""


async def open_manifest(objects: Objects, url: str, places: StoreChoice) -> Lists:
    """Open the manifest, and return its listing. Raises `Fatal` if there is no such manifest, or if
    it cannot be read.
    """
    location = _location(url, places)
    async with aclosing(await _open(objects, location)) as body:
        if not url.lower().endswith(".json"):
            pin = body.version_id or body.etag or ""
            return Lists(pin, [_pinned(location, body)], _Reader(objects).read)
        if body.size > MOST_MANIFEST_BYTES:
            raise _wrong(location, f"{body.size:,} bytes are no manifest.json")
        text = b"".join([chunk async for chunk in body])
    return _inventory(objects, location, text)


def _inventory(objects: Objects, location: Location, text: bytes) -> Lists:
    try:
        manifest = msgspec.json.decode(text, type=_Manifest)
    except (msgspec.MsgspecError, ValueError) as error:
        raise _wrong(location, f"this is no manifest.json of an S3 Inventory: {error}") from None
    names: list[str] | None = None
    match manifest.file_format.lower():
        case "csv":
            names = manifest.file_schema.split(",")
        case "parquet":
            pass
        case other:
            raise _wrong(location, f"an inventory as {other} is not read; ask for CSV or Parquet")
    is_local = location.bucket == LOCAL
    bucket = manifest.destination_bucket.rpartition(":")[2] if is_local else location.bucket
    blank = Location(bucket, "") if is_local else location._replace(version_id=None, etag=None)
    files = [blank._replace(bucket=bucket, key=file.key) for file in manifest.files]
    try:
        columns = None if names is None else ListColumns(names, is_encoded=True)
    except SchemaError as error:
        raise _wrong(location, str(error)) from None
    pin = blake2b(text, digest_size=16).hexdigest()
    return Lists(pin, files, _Reader(objects, columns).read)


class _Reader:
    """Reads list files. `columns`: the columns that all CSV files have; None: the first record of
    each file has the names of its columns.
    """

    def __init__(self, objects: Objects, columns: ListColumns | None = None) -> None:
        self._objects = objects
        self._columns = columns

    async def read(self, location: Location) -> AsyncIterator[Sequence[Reference | None]]:
        row = 0
        try:
            async with aclosing(self._rows(location)) as rows:
                async for columns, values in rows:
                    made: list[Reference | None] = []
                    for record in values:
                        row += 1
                        made.append(columns.reference(record))
                    yield made
        except SchemaError as error:
            raise _wrong(location, f"{error}{f' (row {row:,})' if row else ''}") from None
        except Poison as error:
            raise usage(f"the list cannot be read: {error}") from None

    async def _rows(self, location: Location) -> AsyncGenerator[tuple[ListColumns, Sequence[Any]]]:
        async with aclosing(await _open(self._objects, location)) as body:
            head = await anext(aiter(body), b"")
        pinned, loop = _pinned(location, body), asyncio.get_running_loop()

        def ask(need: Need) -> bytes:
            part = self._objects.part(pinned, need.start, need.stop)
            return asyncio.run_coroutine_threadsafe(part, loop).result().data

        ranges, is_parquet = RangedSource(body.size, b"", ask), head.startswith(PARQUET)
        batches = parquet_rows(ranges) if is_parquet else csv_rows(ranges, self._columns)
        while (batch := await in_thread(lambda: next(batches, None))) is not None:
            yield batch


def _location(url: str, places: StoreChoice) -> Location:
    path = local_path(url)
    if path is not None:
        return Location(LOCAL, path or STDIN)
    try:
        store, bucket, key = split_url(url)
        return Location(bucket, key, store=places.of(store, bucket, key))
    except (SchemaError, Poison) as error:
        raise usage(f"--manifest: {error}") from None


async def _open(objects: Objects, location: Location) -> ObjectBody:
    try:
        return await objects.open(location)
    except Poison as error:
        raise usage(f"the list cannot be read: {error}") from None


def _pinned(location: Location, body: ObjectBody) -> Location:
    return location._replace(version_id=body.version_id, etag=body.etag)


def _wrong(location: Location, reason: str) -> Fatal:
    return usage(f"--manifest {location.bucket}/{location.key}: {reason}")
