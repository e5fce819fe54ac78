"""Uploads one result object, by one PUT or by parts as the rows come. Removes left-over uploads.

Rule: of a larger result at most two parts are in memory. An upload that is given up is aborted, and
so are those of killed workers: S3 keeps their parts for ever, invisible but paid for (Azure removes
them after a week, Google by a rule of the bucket).

Another worker may be writing the same name now. So an upload is aborted only if it did not grow
while ours was written, and only after ours is complete: otherwise two workers could abort each
other's for ever. Requests are retried here for `PATIENCE`.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast

import obstore
from obstore.exceptions import BaseError

from penstock.adapters.s3.s3fs_client import CLIENT_ERRORS, S3fsObjects
from penstock.errors import PenstockError, Poison, Transient, usage
from penstock.ports import Location, Stored

if TYPE_CHECKING:
    from obstore import PutResult
    from obstore.store import ObjectStore

# S3 takes 10,000 parts of 5 MiB or more. With this size a result may have up to 80 GB.
PART_BYTES: Final = 8 << 20
# If a store takes nothing for this long, the worker ends. The time is as long as the default of
# `kafka.timeout_ms`.
PATIENCE: Final = timedelta(seconds=120)
ABORT_S: Final = 5.0
# S3's code for an upload that was aborted. MinIO also gives this code for an upload that is
# complete.
NO_SUCH_UPLOAD: Final = "NoSuchUpload"
# How many unfinished uploads are looked at with one result, because each costs two requests or
# more. The other uploads are aborted with later results of the same name.
AT_A_TIME: Final = 100

# For each upload: its id, and the number of parts that it had.
Uploads = Mapping[str, int]
Meaning = Callable[[Exception, Location], PenstockError]


class _End(Enum):
    """Handed over instead of a part, when no part follows."""

    COMPLETE = 0
    GIVEN_UP = 1


class _GivenUp(Exception):
    """Raised instead of yielding the next part: obstore then deletes the parts that were sent."""


class ObstoreUpload:
    """One object. The parts are handed to obstore one at a time (`_next`), so obstore sends one
    part while the next one is filled.
    """

    def __init__(
        self,
        store: "ObjectStore",
        location: Location,
        leftovers: "S3Leftovers | None",
        meaning: Meaning,
    ) -> None:
        self._meaning = meaning
        self._store = store
        self._location = location
        self._leftovers = leftovers
        self._seen: Uploads = {}
        self._first = bytearray()
        self._bytes = self._crc = 0
        self._next: bytes | _End | None = None
        self._changed = asyncio.Event()
        self._sending: asyncio.Future[PutResult] | None = None

    async def write(self, data: bytes) -> None:
        if self._sending is None:
            self._first += data
            if len(self._first) <= PART_BYTES:
                return
            data, self._first = bytes(self._first), bytearray()
            if self._leftovers is not None:
                self._seen = await self._leftovers.seen(self._location)
            self._sending = self._send()
        self._bytes += len(data)
        self._crc = zlib.crc32(data, self._crc)
        await self._hand_over(self._sending, data)

    async def complete(self) -> Stored:
        try:
            if self._sending is None:
                data = bytes(self._first)
                key = self._location.key
                done = await obstore.put_async(self._store, key, data, use_multipart=False)
            else:
                await self._hand_over(self._sending, _End.COMPLETE)
                done = await self._sending
            stored = Stored(done["version"] or done["e_tag"])
        except (BaseError, OSError) as error:
            result = await self._found() if NO_SUCH_UPLOAD in str(error) else None
            if result is None:
                raise self._refusal(error) from None
            stored = result
        if self._leftovers is not None and self._seen:
            await self._leftovers.remove(self._location, self._seen)
        return stored

    async def _found(self) -> Stored | None:
        """Returns the object if the store has exactly what was written, else None. Call this when
        the store does not know the upload any more: perhaps the store completed the upload, and
        only its answer was lost.
        """
        with suppress(BaseError, OSError):
            there = await obstore.get_async(self._store, self._location.key)
            if there.meta["size"] != self._bytes:
                return None
            crc = 0
            async for chunk in there.stream():
                crc = zlib.crc32(chunk, crc)
            if crc == self._crc:
                return Stored(there.meta["version"] or there.meta["e_tag"])
        return None

    async def abort(self) -> None:
        self._first.clear()
        sending, self._sending = self._sending, None
        if sending is None or sending.done():
            return
        # If the transfer were cancelled, its parts would stay in the store. If the source of the
        # parts fails, obstore deletes the parts that were sent. So the source is made to fail.
        self._next = _End.GIVEN_UP
        self._changed.set()
        await asyncio.wait([sending], timeout=ABORT_S)
        if not sending.cancel() and not sending.cancelled():
            sending.exception()

    def _send(self) -> "asyncio.Future[PutResult]":
        """Start the transfer. obstore runs it in its own threads and returns a future (its types
        say coroutine), so no task of ours has to await it.
        """
        sending = cast(
            "asyncio.Future[PutResult]",
            obstore.put_async(
                self._store,
                self._location.key,
                self._handed_over(),
                use_multipart=True,
                chunk_size=PART_BYTES,
                max_concurrency=1,
            ),
        )
        sending.add_done_callback(lambda _: self._changed.set())
        return sending

    async def _handed_over(self) -> AsyncGenerator[bytes]:
        while True:
            while self._next is None:
                self._changed.clear()
                await self._changed.wait()
            part, self._next = self._next, None
            self._changed.set()
            if part is _End.COMPLETE:
                return
            if isinstance(part, _End):
                raise _GivenUp
            yield part

    async def _hand_over(self, sending: "asyncio.Future[PutResult]", part: "bytes | _End") -> None:
        """Wait until obstore has taken the former part, then offer this one. If the transfer has
        ended, raise its error.
        """
        while self._next is not None and not sending.done():
            self._changed.clear()
            await self._changed.wait()
        if not sending.done():
            self._next = part
            self._changed.set()
            return
        try:
            await sending
        except (BaseError, OSError) as error:
            raise self._refusal(error) from None

    def _refusal(self, error: Exception) -> PenstockError:
        """The error for a failed upload. A refusal ends the worker (`Fatal`) instead of rejecting
        the object, because the store would refuse the next result, too.
        """
        if NO_SUCH_UPLOAD in str(error):
            return Transient(
                f"the result {self._location.key}: the store has ended this upload: "
                "another worker wrote the same result, or the upload was aborted by hand"
            )
        meant = self._meaning(error, self._location)
        if isinstance(meant, Poison):
            return usage(
                f"the result cannot be written: {meant}; correct output.objects or the rights there"
            )
        return meant


class S3Leftovers:
    """Lists and aborts the unfinished uploads of a store for S3. `seen` and `remove` raise nothing,
    because results must be written even if the store cannot list its unfinished uploads.
    """

    def __init__(self, store: S3fsObjects) -> None:
        self._store = store

    async def seen(self, location: Location) -> Uploads:
        """The unfinished uploads of this name. Call this before our own upload begins."""
        parts: dict[str, int] = {}
        with suppress(*CLIENT_ERRORS):
            client: Any = await self._store.client()
            bucket, key = location.bucket, location.key
            listed = await client.list_multipart_uploads(Bucket=bucket, Prefix=key)
            ids = [
                begun["UploadId"] for begun in listed.get("Uploads") or () if begun["Key"] == key
            ]
            for upload in ids[:AT_A_TIME]:
                parts[upload] = await self._parts(client, location, upload)
        return parts

    async def remove(self, location: Location, seen: Uploads) -> None:
        """Abort the uploads that have not grown since they were `seen`, because no worker writes
        them now.
        """
        for upload, parts in seen.items():
            with suppress(*CLIENT_ERRORS):
                client: Any = await self._store.client()
                if await self._parts(client, location, upload) == parts:
                    await client.abort_multipart_upload(
                        Bucket=location.bucket, Key=location.key, UploadId=upload
                    )

    async def begun(self, bucket: str) -> Sequence[datetime] | None:
        """Returns the time at which each unfinished upload of the bucket began; a store lists at
        most a thousand uploads. None if the store does not tell.
        """
        try:
            client: Any = await self._store.client()
            listed = await client.list_multipart_uploads(Bucket=bucket)
        except CLIENT_ERRORS:
            return None
        return [upload["Initiated"] for upload in listed.get("Uploads") or ()]

    async def aclose(self) -> None:
        await self._store.aclose()

    async def _parts(self, client: Any, location: Location, upload: str) -> int:
        """How many parts an upload has. The parts of all pages are counted (a page has a thousand),
        because otherwise a large upload of another worker would seem not to grow.
        """
        parts = 0
        pages = client.get_paginator("list_parts")
        named = {"Bucket": location.bucket, "Key": location.key, "UploadId": upload}
        async for page in pages.paginate(**named):
            parts += len(page.get("Parts") or ())
        return parts
