"""A folder as an object store: its subfolders are the buckets, the files below them the objects.

Rule: a key is a relative path, taken literally; a key that no file can have counts as not found.
Only regular files inside the folder are read; a link that leads out of the folder is refused. Files
are touched in threads, never on the event loop. Owner: the stores.
"""

import asyncio
import errno
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from penstock.adapters.stores.names import LISTED_AT_ONCE, Glob, check_bucket, is_odd, name, quoted
from penstock.adapters.stores.transfer import CHUNK_BYTES, WHOLE_BYTES, check_part, span_within
from penstock.core.routing.store_choice import DEFAULT
from penstock.errors import PenstockError, Poison, Transient
from penstock.ports import Listed, Location, Part
from penstock.process.asyncio_additions import in_thread

_NO_SUCH_FILE = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO}
)
# A folder on the way to a file. Linux needs no right to list it.
_STEP = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_NO_PERMISSION = frozenset({errno.EACCES, errno.EPERM})


class FolderObjects:
    """Implements the port `Objects` over a local folder."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(os.path.realpath(folder))

    async def open(self, location: Location) -> "FolderBody":
        _check_file(location)
        try:
            file = await asyncio.to_thread(_open_inside, self._folder, location)
            body = FolderBody(location, file)
        except OSError as error:
            raise translated(error, location) from None
        return await pinned(body, location)

    async def part(self, location: Location, start: int, stop: int | None = None) -> Part:
        async with aclosing(await self.open(location)) as body:
            return await body.part(start, stop)

    async def list(self, bucket: str, pattern: str, store: str = DEFAULT) -> AsyncIterator[Listed]:
        location = Location(bucket, pattern, store=store)
        check_bucket(location)
        glob = Glob.of(pattern)
        start = glob.prefix[: glob.prefix.rfind("/") + 1]
        if start and is_odd(start.removesuffix("/")):
            return
        found = _walk(self._folder / bucket, start, glob)
        try:
            while page := await asyncio.to_thread(lambda: list(islice(found, LISTED_AT_ONCE))):
                for listed in page:
                    yield listed._replace(location=listed.location._replace(store=store))
        except OSError as error:
            raise translated(error, location) from None

    async def aclose(self) -> None:
        """Does nothing: nothing is held open between calls."""


class FolderBody:
    """An open file. If another file is put at its path meanwhile, the open file is still read
    whole.
    """

    version_id = None

    def __init__(self, location: Location, file: BinaryIO) -> None:
        found = os.fstat(file.fileno())
        self.size = found.st_size
        self.etag = _etag(found)
        self._location = location
        self._file = file

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        chunk_bytes = self.size if self.size <= WHOLE_BYTES else CHUNK_BYTES
        left = self.size
        while left:
            try:
                wanted_bytes = min(left, chunk_bytes)
                chunk = await in_thread(partial(self._file.read, wanted_bytes))
            except OSError as error:
                raise translated(error, self._location) from None
            if not chunk:
                raise Poison("changed", f"{name(self._location)}: cut while it was read")
            left -= len(chunk)
            yield chunk

    async def part(self, start: int, stop: int | None) -> Part:
        first, last = span_within(self._location, start, stop, self.size)
        try:
            data = await in_thread(lambda: os.pread(self._file.fileno(), last - first, first))
        except OSError as error:
            raise translated(error, self._location) from None
        part = Part(data, self.size, self.etag, None)
        return check_part(part, self._location, start, stop)

    async def aclose(self) -> None:
        self._file.close()


async def pinned(body: FolderBody, location: Location) -> FolderBody:
    """Return the body, or raise `Poison` if it is not of the version that the location names."""
    if location.etag is not None and quoted(location.etag) != body.etag:
        await body.aclose()
        raise Poison("changed", f"{name(location)}: the file has changed since")
    return body


def _check_file(location: Location) -> None:
    """Refuse two things: an odd key, because no file can have such a key; and a version, because a
    folder does not keep versions.
    """
    check_bucket(location)
    if is_odd(location.key):
        raise Poison("not_found", f"{name(location)}: no file has such a name")
    if location.version_id is not None:
        raise Poison("changed", f"{name(location)}: a folder keeps no versions; pin by etag")


def _open_inside(folder: Path, location: Location) -> BinaryIO:
    """Open a regular file inside the folder. This never blocks, even if the path is a pipe's."""
    path = os.path.realpath(folder / location.bucket / location.key)
    if os.path.commonpath((folder, path)) != str(folder):
        raise Poison("not_found", f"{name(location)}: a link leads out of the folder")
    # Somebody who may write in the folder could put a link in the place of a folder by now. So each
    # step of the path is opened from the one before, and none of them may be a link.
    *folders, file = Path(path).relative_to(folder).parts or (".",)
    at = os.open(folder, _STEP)
    try:
        for step in folders:
            inner = os.open(step, _STEP | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = inner
        return open_regular(file, location, os.O_NOFOLLOW, at)
    finally:
        os.close(at)


def open_regular(
    path: str, location: Location, flags: int = 0, folder: int | None = None
) -> BinaryIO:
    number = os.open(path, os.O_RDONLY | flags | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise Poison("not_found", f"{name(location)}: not a regular file")
    return os.fdopen(number, "rb")


def _etag(found: os.stat_result) -> str:
    return f'"{found.st_ino:x}-{found.st_mtime_ns // 1000:x}-{found.st_size:x}"'


def _walk(bucket: Path, prefix: str, glob: Glob) -> Iterator[Listed]:
    """Files below the prefix, depth first. A folder is sorted by its name with a slash at the end,
    so that all files come in the order of their keys.
    """
    try:
        with os.scandir(bucket / prefix) as scan:
            entries = {
                entry.name + "/" * entry.is_dir(follow_symlinks=False): entry for entry in scan
            }
    except (FileNotFoundError, NotADirectoryError):
        if bucket.is_dir():
            return
        raise
    for entry_name in sorted(entries):
        key = prefix + entry_name
        if entry_name.endswith("/"):
            if glob.depth is None or key.count("/") <= glob.depth:
                yield from _walk(bucket, key, glob)
        elif glob.matches(key) and entries[entry_name].is_file():
            with suppress(FileNotFoundError):
                found = entries[entry_name].stat()
                yield Listed(Location(bucket.name, key, etag=_etag(found)), found.st_size)


def translated(error: OSError, location: Location) -> PenstockError:
    said = f"{name(location)}: {error.strerror}"
    if error.errno in _NO_SUCH_FILE:
        return Poison("not_found", f"{said}; write the file before publishing its reference")
    if error.errno in _NO_PERMISSION:
        return Poison("forbidden", f"{said}; let this user read the file")
    return Transient(said)
