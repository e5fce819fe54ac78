"""Reads local files, standard input and rows in memory beside an object store, for `predict`.

Rule: a local file has the bucket `file://` and an absolute path as key; rows in memory have a name
that begins with `memory:`. Standard input is copied to a temporary file first, because an object
may have to be read again.
"""

import asyncio
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from glob import glob, has_magic
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import Final
from urllib.parse import unquote, urlsplit

from penstock.adapters.stores.names import LISTED_AT_ONCE, Glob, check_bucket, is_odd, name
from penstock.adapters.stores.transfer import (
    CHUNK_BYTES,
    WHOLE_BYTES,
    check_part,
    quoted,
    span_within,
)
from penstock.core.routing.store_choice import DEFAULT
from penstock.errors import PenstockError, Poison, Transient, usage
from penstock.ports import Listed, Location, ObjectBody, Objects, Part
from penstock.process.asyncio_additions import OpenedInThreads, in_thread

_NO_SUCH_FILE = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO}
)
# A folder on the way to a file. Linux needs no right to list it.
_STEP = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_SMALL_BYTES: Final = 256 << 10
_NO_PERMISSION = frozenset({errno.EACCES, errno.EPERM})


class FolderObjects:
    """Implements the port `Objects` over a local folder."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(os.path.realpath(folder))
        self._bodies = OpenedInThreads(FolderBody.close)

    async def open(self, location: Location) -> "FolderBody":
        _check_file(location)
        try:
            inside = partial(_open_inside, self._folder, location)
            body = await self._bodies.opened(lambda: _body(location, inside()))
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
        paths = _walk(self._folder / bucket, start, glob)
        try:
            while page := await asyncio.to_thread(lambda: list(islice(paths, LISTED_AT_ONCE))):
                for listed in page:
                    yield listed._replace(location=listed.location._replace(store=store))
        except OSError as error:
            raise translated(error, location) from None

    async def aclose(self) -> None:
        """Does nothing: nothing is held open between calls."""


class FolderBody:
    """An open file. If another file is put at its path meanwhile, the open file is still read
    whole. A small file is read and closed as it is opened: each turn of a thread takes as long as
    its bytes. Python's own files make 20 calls of the system for it, not 4, and behind each the
    thread waits for the event loop, or the loop for the thread.
    """

    version_id = None

    def __init__(self, location: Location, number: int) -> None:
        """`number`: the file's descriptor."""
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            raise Poison("not_found", f"{name(location)}: not a regular file")
        self.size = status.st_size
        self.etag = _etag(status)
        self._location = location
        self._number = number
        self._whole = b""
        if self.size <= _SMALL_BYTES:
            self._whole = _read(number, self.size)
            self.close()

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        chunk_bytes = self.size if self.size <= WHOLE_BYTES else CHUNK_BYTES
        left = self.size - len(self._whole)
        if self._whole:
            yield self._whole
        while left:
            try:
                wanted_bytes = min(left, chunk_bytes)
                is_open = self._number >= 0
                read = partial(_read, self._number, wanted_bytes)
                chunk = await in_thread(read) if is_open else b""
            except OSError as error:
                raise translated(error, self._location) from None
            if not chunk:
                raise Poison("changed", f"{name(self._location)}: cut while it was read")
            left -= len(chunk)
            yield chunk

    async def part(self, start: int, stop: int | None) -> Part:
        first, last = span_within(self._location, start, stop, self.size)
        try:
            if self._number < 0:
                data = self._whole[first:last]
            else:
                data = await in_thread(lambda: os.pread(self._number, last - first, first))
        except OSError as error:
            raise translated(error, self._location) from None
        part = Part(data, self.size, self.etag, None)
        return check_part(part, self._location, start, stop)

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)


def _body(location: Location, number: int) -> FolderBody:
    try:
        return FolderBody(location, number)
    except BaseException:
        os.close(number)
        raise


def _read(number: int, nbytes: int) -> bytes:
    """Fewer bytes only at the end of the file."""
    data = os.read(number, nbytes)
    while len(data) < nbytes and (more := os.read(number, nbytes - len(data))):
        data += more
    return data


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


def _open_inside(folder: Path, location: Location) -> int:
    """Open a file inside the folder. This never blocks, even if the path is a pipe's."""
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
        return _open(file, os.O_NOFOLLOW, at)
    finally:
        os.close(at)


def _open(path: str, flags: int = 0, folder: int | None = None) -> int:
    return os.open(path, os.O_RDONLY | flags | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)


def _etag(status: os.stat_result) -> str:
    return f'"{status.st_ino:x}-{status.st_mtime_ns // 1000:x}-{status.st_size:x}"'


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
                status = entries[entry_name].stat()
                yield Listed(Location(bucket.name, key, etag=_etag(status)), status.st_size)


def translated(error: OSError, location: Location) -> PenstockError:
    message = f"{name(location)}: {error.strerror}"
    if error.errno in _NO_SUCH_FILE:
        return Poison("not_found", f"{message}; write the file before publishing its reference")
    if error.errno in _NO_PERMISSION:
        return Poison("forbidden", f"{message}; let this user read the file")
    return Transient(message)


LOCAL: Final = "file://"
STDIN: Final = "-"
MEMORY: Final = "memory:"
_LOOKED_AT_ONCE: Final = 100
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def local_path(url: str) -> str | None:
    """The local path of a `file://` URL or of a plain path; None for a store's URL."""
    if url.startswith(LOCAL):
        return unquote(urlsplit(url).path)
    return None if "://" in url else url


async def local_files(paths: Sequence[str]) -> AsyncIterator[list[str]]:
    """For each path, the absolute path of one file, or the sorted absolute paths of all files that
    match a glob. `**` also matches slashes. Raises `Fatal` if a path is a folder or a pipe, or if
    we may not look at it.
    """
    left = iter(paths)
    while found := await asyncio.to_thread(_look, left):
        for files in found:
            if isinstance(files, PenstockError):
                raise files
            yield files


def _look(paths: Iterator[str]) -> list[list[str] | PenstockError]:
    """The files of the next paths. A thread looks at many, because to call it takes longer than to
    look at one.
    """
    found: list[list[str] | PenstockError] = []
    names = 0
    while names < _LOOKED_AT_ONCE and (path := next(paths, None)) is not None:
        files = _files(path)
        found.append(files)
        names += 1 if isinstance(files, PenstockError) else max(1, len(files))
    return found


def _files(path: str) -> list[str] | PenstockError:
    if path == STDIN or path.startswith(MEMORY):
        return [path]
    try:
        return _found(path)
    except PenstockError as error:
        return error
    except OSError as error:
        return usage(
            f"{path}: {error.strerror}; correct the path, or let this user read its folders"
        )


def _found(path: str) -> list[str]:
    if not has_magic(path) or Path(path).exists():  # a file may be called `[1].csv`
        _refuse_non_file(path)
        return [_absolute(Path(path))]
    paths = (Path(text) for text in glob(path, recursive=True))  # noqa: PTH207 (any path, `**`)
    return sorted(_absolute(path) for path in paths if path.is_file())


def _absolute(path: Path) -> str:
    """The absolute path. It names the stream, so `a/../b` becomes `b`, unless `a` is a link to
    another place.
    """
    short = os.path.abspath(path)  # noqa: PTH100 (the shorter name, without following links)
    is_same = ".." not in path.parts or (Path(short).exists() and path.samefile(short))
    return short if is_same else str(path.absolute())


def _refuse_non_file(path: str) -> None:
    if Path(path).is_dir():
        inside = path.rstrip("/")
        raise usage(
            f"{path} is a folder; name its files: '{inside}/*', or '{inside}/**' with all below"
        )
    if Path(path).is_fifo():
        raise usage(f"{path} is a pipe; give it as standard input: - < {path}")


class LocalObjects:
    """Implements the port `Objects` over local files and a store. The store is opened when it is
    first needed, because reading local files must work without credentials. `memory`: for each name
    of rows in memory, the file that has them.
    """

    def __init__(self, open_store: Callable[[], Objects], memory: Mapping[str, str] = {}) -> None:
        self._open_store = open_store
        self._memory = memory
        self._bodies = OpenedInThreads(FolderBody.close)
        self._opened: Objects | None = None
        self._stdin: _Stdin | None = None

    @property
    def _store(self) -> Objects:
        if self._opened is None:
            self._opened = self._open_store()
        return self._opened

    async def open(self, location: Location) -> ObjectBody:
        if location.bucket != LOCAL:
            return await self._store.open(location)
        return await self._open(location)

    async def _open(self, location: Location) -> FolderBody:
        try:
            path = self._memory.get(location.key, location.key)
            if path == STDIN:
                path = await self._copied()
            body = await self._bodies.opened(lambda: _body(location, _open(path)))
        except (FileNotFoundError, ValueError):  # no file's name has a NUL
            message = (
                f"there is no file {location.key}; correct the path (an object is s3://bucket/key)"
            )
            raise Poison("not_found", message) from None
        except OSError as error:
            raise translated(error, location) from None
        return await pinned(body, location)

    async def _copied(self) -> str:
        """Returns the path of the file with all of the standard input. A failed copy is not tried
        again, because the input that was read for it is gone.
        """
        self._stdin = self._stdin or _Stdin()
        try:
            return await asyncio.shield(self._stdin.copied)
        except OSError as error:
            mend = "make room in $TMPDIR" if error.errno in _FULL else "pipe the object into it"
            message = f"standard input cannot be copied ({error.strerror}); {mend}"
            raise Poison("not_found", message) from None

    async def part(self, location: Location, start: int, stop: int | None = None) -> Part:
        if location.bucket != LOCAL:
            return await self._store.part(location, start, stop)
        async with aclosing(await self._open(location)) as body:
            return await body.part(start, stop)

    def list(self, bucket: str, pattern: str, store: str = DEFAULT) -> AsyncIterator[Listed]:
        return self._store.list(bucket, pattern, store)

    async def aclose(self) -> None:
        if self._stdin is not None:
            self._stdin.close()
        if self._opened is not None:
            await self._opened.aclose()


class _Stdin:
    """A file that gets a copy of standard input, and is complete when the input has ended. A daemon
    thread copies, so that the process can end although a terminal's input may never end.
    """

    def __init__(self) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix="penstock-stdin-")  # noqa: SIM115
        self._loop = asyncio.get_running_loop()
        self.copied: asyncio.Future[str] = self._loop.create_future()
        Thread(target=self._copy, name="stdin", daemon=True).start()

    def _copy(self) -> None:
        try:
            # Not `sys.stdin`: the interpreter would wait for the lock of `sys.stdin` when the
            # process ends.
            with open(0, "rb", buffering=0, closefd=False) as stdin:
                shutil.copyfileobj(stdin, self._file)
            self._file.flush()
        except (OSError, ValueError) as error:
            self._tell(error)
        else:
            self._tell(None)

    def _tell(self, error: Exception | None) -> None:
        with suppress(RuntimeError):  # the event loop is closed already
            self._loop.call_soon_threadsafe(self._done, error)

    def _done(self, error: Exception | None) -> None:
        if self.copied.cancelled():
            return
        if error is None:
            self.copied.set_result(self._file.name)
        else:
            self.copied.set_exception(error)

    def close(self) -> None:
        """Close the file. This also deletes it. `tempfile` would warn if only the file's name were
        deleted.
        """
        self.copied.cancel()
        with suppress(FileNotFoundError):
            self._file.close()
