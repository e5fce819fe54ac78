"""Result objects in a store: one PUT, or parts while they come.

Rule: what fits into one part is one request; of more no more than two parts are held. What was
begun is aborted when it is given up, and what a killed worker began when the next upload of the
same name is complete; two workers that write one name at a time do not disturb each other. Requests
are repeated here for `PATIENCE`. Owner: the worker.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol, cast

import obstore
from obstore.exceptions import BaseError

from consumers.errors import EXIT_USAGE, Fatal, PenstockError, Poison, Transient
from consumers.ports import Location, Stored

if TYPE_CHECKING:
    from obstore import PutResult
    from obstore.store import ObjectStore

# S3 takes 10,000 parts of 5 MiB or more: results of up to 80 GB.
PART_BYTES: Final = 8 << 20
# As long as Kafka is waited for (`kafka.timeout_ms`): a store that takes nothing ends the worker.
PATIENCE: Final = timedelta(seconds=120)
ABORT_S: Final = 5.0
# S3's word for an upload that was aborted, and MinIO's for one that is complete.
NO_SUCH_UPLOAD: Final = "NoSuchUpload"
# Each has its own connections, and a template may name buckets by those of the input.
MAX_STORES: Final = 128

Reach = Callable[[str], "ObjectStore"]
Meaning = Callable[[Exception, Location], PenstockError]
# How many parts each upload had, by its id.
Uploads = Mapping[str, int]


class Leftovers(Protocol):
    """What was begun under a name and not ended. Neither raises: a store that cannot say which
    there are is no reason to write none.
    """

    async def seen(self, location: Location) -> Uploads: ...

    async def remove(self, location: Location, seen: Uploads) -> None:
        """Those that are as they were `seen`: nobody goes on with them."""
        ...


class ObstoreResults:
    """The port `Results`. `reach` says how a bucket is reached; `leftovers` is None where the store
    forgets by itself what was not ended. `name` is the store's, for what errors say.
    """

    def __init__(
        self,
        reach: Reach,
        leftovers: Leftovers | None,
        meaning: Meaning,
        name: str,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._store = lru_cache(MAX_STORES)(reach)
        self._leftovers = leftovers
        self._meaning = meaning
        self._name = name
        self._close = close

    def begin(self, location: Location) -> "ObstoreUpload":
        store = self._store(location.bucket)
        named = location._replace(store=self._name)
        return ObstoreUpload(store, named, self._leftovers, self._meaning)

    async def aclose(self) -> None:
        if self._close is not None:
            await self._close()


class _End(Enum):
    """What comes behind the last part."""

    COMPLETE = 0
    GIVEN_UP = 1


class _GivenUp(Exception):
    """Ends the parts of an upload; obstore then takes back those that were sent."""


class ObstoreUpload:
    """One object. Its parts go through a place for one to obstore, which sends them meanwhile."""

    def __init__(
        self,
        store: "ObjectStore",
        location: Location,
        leftovers: Leftovers | None,
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
            found = await self._found() if NO_SUCH_UPLOAD in str(error) else None
            if found is None:
                raise self._blamed(error) from None
            stored = found
        if self._leftovers is not None and self._seen:
            await self._leftovers.remove(self._location, self._seen)
        return stored

    async def _found(self) -> Stored | None:
        """Where the answer to the end of an upload was lost, the next try is told that there is no
        such upload: then the object is there, with what was written.
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
        # A transfer that is cancelled leaves its parts in the store; one whose source fails deletes
        # them, so the source is made to fail.
        self._next = _End.GIVEN_UP
        self._changed.set()
        await asyncio.wait([sending], timeout=ABORT_S)
        if not sending.cancel() and not sending.cancelled():
            sending.exception()

    def _send(self) -> "asyncio.Future[PutResult]":
        """obstore works in threads of its own from here on: what it gives is a future, whatever its
        types say, so that no task of ours waits.
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
        """When the part before is on its way. Raises what became of the transfer, if it ended."""
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
            raise self._blamed(error) from None

    def _blamed(self, error: Exception) -> PenstockError:
        """A store that refuses a result refuses the next one, too: that is no object's fault."""
        if NO_SUCH_UPLOAD in str(error):
            return Transient(
                f"the result {self._location.key}: this upload was ended in the store, by "
                "a worker that wrote the same or by hand"
            )
        meant = self._meaning(error, self._location)
        if isinstance(meant, Poison):
            return Fatal(
                f"the result cannot be written: {meant}; correct output.objects or the rights "
                "there",
                exit_code=EXIT_USAGE,
            )
        return meant
