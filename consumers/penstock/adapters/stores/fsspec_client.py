"""Objects of any file system that fsspec knows: `sftp://`, `webdav://`, `hf://`, `ftp://` ...

Rule: keys are taken literally below the bucket's own path, or refused. These systems have no
conditional read, so `info` is asked before the first byte and again after the last: if it differs,
the object is `changed`. A library may raise errors of any kind; an unknown one is `Transient`, so
that only the reads of this store wait.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar
from urllib.parse import quote

import fsspec
from fsspec.asyn import sync

from penstock import config
from penstock.adapters.stores.names import LISTED_AT_ONCE, Glob, is_odd, name, section_of
from penstock.adapters.stores.refusals import NO_SUCH_RANGE, no_answer
from penstock.adapters.stores.transfer import (
    READ_TIMEOUT_S,
    SLOW_CHUNK_BYTES,
    SLOW_SILENCES,
    WHOLE_BYTES,
    check_coding,
    check_part,
    check_rest,
    quoted,
    read_part,
    repeated,
    span_within,
)
from penstock.core.routing.store_choice import DEFAULT
from penstock.errors import PenstockError, Poison, Transient, usage, words_of
from penstock.ports import Listed, Location, Part
from penstock.process.asyncio_additions import in_thread

T = TypeVar("T")

# How many bytes of a file are read at a time. Each piece is a request, for which many libraries
# open and close the file. So the pieces are large.
PIECE_BYTES: Final = 4 << 20
# A bucket may have a port, because for some schemes it is a host.
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}")
# The fields of `info` that tell versions of a file apart, the most certain ones first. A time
# counts only together with the size.
_TAGS: Final = ("ETag", "etag", "e_tag", "generation", "blob_id", "oid", "sha256", "md5")
_TIMES: Final = ("mtime", "LastModified", "last_modified", "modified", "updated", "created")
# In these schemes a key is a part of a URL, so `?`, `#` and `%` in it must be quoted.
_BY_ADDRESS: Final = frozenset({"http", "https"})
_CONTENT_RANGE: Final = re.compile(r"bytes (\d{1,18})-")
_NOTHING: Final = (404, 410)


class FsspecObjects:
    """Implements the port `Objects`."""

    def __init__(
        self,
        settings: config.Store,
        scheme: str,
        *,
        section: str,
    ) -> None:
        self._scheme = scheme
        # One call may make many reads. So a call may take longer than one read may be silent.
        self._call_s = SLOW_SILENCES * READ_TIMEOUT_S
        try:
            self._files: Any = fsspec.filesystem(
                scheme, skip_instance_cache=True, use_listings_cache=False, **settings.options
            )
        except (ImportError, ValueError) as error:
            raise usage(f"{section}.url = {settings.url!r}: {error}") from None
        except Exception as error:
            raise usage(
                f"{section}: {type(error).__name__}: {error}; check {section}.options"
            ) from None

    async def open(self, location: Location) -> "FsspecBody":
        path = self._path(location)
        size, etag = await self.size_and_tag(location, path)
        if location.version_id is not None:
            raise Poison("changed", f"{name(location)}: there are no versions; pin by etag")
        if location.etag is not None and quoted(location.etag) != etag:
            raise Poison("changed", f"{name(location)}: the file has changed since")
        return FsspecBody(self, location, path, size, etag)

    async def part(self, location: Location, start: int, stop: int | None = None) -> Part:
        body = await self.open(location)
        first, last = span_within(location, start, stop, body.size)
        data = await body.piece(first, last) if body.size else b""
        return check_part(Part(data, body.size, body.etag, None), location, start, stop)

    async def list(self, bucket: str, pattern: str, store: str = DEFAULT) -> AsyncIterator[Listed]:
        location = Location(bucket, pattern, store=store)
        glob = Glob.of(pattern)
        folder = glob.prefix.rpartition("/")[0]
        if folder and is_odd(folder):
            return
        root = self._root(location)
        names = self._walk(root, f"{folder}/" if folder else "", glob)
        while page := await self.call(location, lambda: list(islice(names, LISTED_AT_ONCE))):
            for key, info in page:
                yield Listed(Location(bucket, key, None, _etag(info), store), info["size"])

    async def aclose(self) -> None:
        """Does nothing: the library closes its connections when its file system object is freed."""

    def _root(self, location: Location) -> str:
        """The bucket's path. It is found by asking the library for the path of a harmless key in
        the bucket: libraries cut `?` and `#` out of keys.
        """
        if not _BUCKET.fullmatch(location.bucket):
            raise Poison("not_found", f"{name(location)}: no bucket has such a name")
        path: str = self._files._strip_protocol(f"{self._scheme}://{location.bucket}/x")
        return path.removesuffix("x")

    def _path(self, location: Location) -> str:
        root = self._root(location)
        if is_odd(location.key):
            raise Poison("not_found", f"{name(location)}: no file has such a name")
        return root + (quote(location.key) if self._scheme in _BY_ADDRESS else location.key)

    async def size_and_tag(self, location: Location, path: str) -> tuple[int, str | None]:
        """The file's size, and the tag that tells its version."""

        def look() -> dict[str, Any]:
            self._files.invalidate_cache()
            info: dict[str, Any] = self._files.info(path)
            return info

        info = await self.call(location, look)
        if info.get("type") != "file":
            raise Poison("not_found", f"{name(location)}: not a file")
        if info.get("size") is None:
            raise Transient(f"{name(location)}: {self._scheme} does not say how long it is")
        return info["size"], _etag(info)

    def cat(self, location: Location, path: str, span: tuple[int, int], etag: str | None) -> bytes:
        data: bytes
        if self._scheme in _BY_ADDRESS:
            data = sync(self._files.loop, self._over_http, location, path, span, etag)
        else:
            data = self._files.cat_file(path, start=span[0], end=span[1])
        return data

    async def _over_http(
        self, location: Location, url: str, span: tuple[int, int], etag: str | None
    ) -> bytes:
        """The library checks neither which bytes came nor of which version, and reads all of a body
        that is longer than its range.
        """
        start, stop = span
        options = dict(self._files.kwargs)
        asked = {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
        headers = {**options.pop("headers", {}), **asked}
        session = await self._files.set_session()
        async with (
            asyncio.timeout(self._call_s),
            session.get(self._files.encode_url(url), headers=headers, **options) as answer,
        ):
            if answer.status in _NOTHING:
                raise FileNotFoundError(url)
            if answer.status == NO_SUCH_RANGE:
                return b""
            answer.raise_for_status()
            said = _CONTENT_RANGE.match(answer.headers.get("Content-Range", ""))
            is_part = answer.status == 206
            first = int(said[1]) if said and is_part else -1 if is_part else 0
            check_rest(location, span, (first, stop), (etag, _etag(answer.headers)))
            check_coding(location, None, answer.headers.get("Content-Encoding"))
            chunks = aiter(answer.content.iter_chunked(SLOW_CHUNK_BYTES))
            if is_part:
                return await read_part(location, stop - start, chunks, self._call_s)
            data = bytearray()
            async for chunk in chunks:
                data += chunk
                if len(data) >= stop:
                    break
            return bytes(data[:stop])

    async def call(self, location: Location, work: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(self._call_s):
                return await in_thread(work)
        except Exception as error:
            raise translated(error, location) from None

    def _walk(self, root: str, prefix: str, glob: Glob) -> Iterator[tuple[str, dict[str, Any]]]:
        """Files below the prefix, depth first. A folder is sorted by its name with a slash at the
        end, so that all files come in the order of their keys.
        """
        self._files.invalidate_cache()
        folder = (root + prefix).rstrip("/")
        try:
            entries = self._files.ls(folder, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            if not prefix or not self._files.exists(root.rstrip("/")):
                raise
            return
        named = {}
        for info in entries:
            is_folder = info["type"] == "directory"
            last = info["name"].rstrip("/").rpartition("/")[2]
            # If the path is that of a file, some libraries list the file itself.
            if is_folder or info["name"].rstrip("/") != folder:
                named[last + "/" * is_folder] = info
        for entry in sorted(named):
            key = prefix + entry
            if entry.endswith("/"):
                if glob.depth is None or key.count("/") <= glob.depth:
                    yield from self._walk(root, key, glob)
            elif glob.matches(key):
                yield key, named[entry]


class FsspecBody:
    """A file that is read piece by piece, each piece by its offsets. The file is not kept open,
    because libraries share open files between their users.
    """

    version_id = None

    def __init__(
        self, objects: FsspecObjects, location: Location, path: str, size: int, etag: str | None
    ) -> None:
        self.size, self.etag = size, etag
        self._objects = objects
        self._location = location
        self._path = path

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        piece_bytes = WHOLE_BYTES if self.size <= WHOLE_BYTES else PIECE_BYTES
        for start in range(0, self.size, piece_bytes):
            stop = min(start + piece_bytes, self.size)
            data = await repeated(partial(self._cat, start, stop))
            if stop == self.size:
                await self._check()
            yield data

    async def piece(self, start: int, stop: int) -> bytes:
        data = await repeated(partial(self._cat, start, stop))
        await self._check()
        return data

    async def _cat(self, start: int, stop: int) -> bytes:
        work = partial(self._objects.cat, self._location, self._path, (start, stop), self.etag)
        data = await self._objects.call(self._location, work)
        if len(data) != stop - start:
            await self._check()
            raise Transient(
                f"{name(self._location)}: asked for bytes {start} to {stop}, {len(data)} came"
            )
        return data

    async def _check(self) -> None:
        """Raises `Poison` if the file has changed since it was opened."""
        if await self._objects.size_and_tag(self._location, self._path) != (self.size, self.etag):
            raise Poison("changed", f"{name(self._location)}: replaced while it was read")

    async def aclose(self) -> None:
        """Does nothing: no file is open between two pieces."""


def _etag(info: Mapping[str, Any]) -> str | None:
    """The library's own tag; else a digest of time and size; None if neither can be known."""
    for tag in _TAGS:
        if info.get(tag):
            return quoted(str(info[tag]).strip('"'))
    for time in _TIMES:
        if info.get(time):
            moment = info[time]
            # In some libraries the time has one type in a listing and another type for a single
            # file.
            written = moment.timestamp() if isinstance(moment, datetime) else moment
            version = f"{written}/{info['size']}"
            return quoted(hashlib.sha256(version.encode()).hexdigest()[:32])
    return None


def translated(error: Exception, location: Location) -> PenstockError:
    """Our error for a library's error. Only Python's own errors are told apart, because no others
    mean the same in all libraries.
    """
    reason = words_of(error)
    message = f"{name(location)}: {reason}"
    if isinstance(error, PenstockError):
        return error
    if isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError):
        return Poison("not_found", f"{message}; write the file before publishing its reference")
    if isinstance(error, PermissionError):
        return Poison("forbidden", f"{message}; check {section_of(location)}.options")
    if isinstance(error, OSError | TimeoutError | EOFError):
        return no_answer(location, reason)
    return Transient(f"{message} ({type(error).__name__})")
