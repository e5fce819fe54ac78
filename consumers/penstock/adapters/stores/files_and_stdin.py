"""Reads local files, standard input and rows in memory beside an object store, for `predict`.

Rule: a reference to a local file has the bucket `file://` and an absolute path as its key; all
other references go to the store. Rows that the caller holds in memory are a file, too, under a name
that begins with `memory:`. Standard input is copied to a temporary file first, because an
object may have to be read again. Owner: `library.predict`; a worker never reads local files by
reference.
"""

import asyncio
import errno
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from glob import glob, has_magic
from pathlib import Path
from threading import Thread
from typing import Final
from urllib.parse import unquote, urlsplit

from penstock.adapters.stores.folder import FolderBody, open_regular, pinned, translated
from penstock.core.routing.store_choice import DEFAULT
from penstock.errors import Poison, usage
from penstock.ports import Body, Listed, Location, Objects, Part

LOCAL: Final = "file://"
STDIN: Final = "-"
MEMORY: Final = "memory:"
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def local_path(url: str) -> str | None:
    """The local path of a `file://` URL or of a plain path; None for a store's URL."""
    if url.startswith(LOCAL):
        return unquote(urlsplit(url).path)
    return None if "://" in url else url


async def local_files(path: str) -> list[str]:
    """The absolute path of one file, or the sorted absolute paths of all files that match a glob.
    `**` also matches slashes. Raises `Fatal` if the path is a folder or a pipe, or if we may not
    look at it.
    """
    if path == STDIN or path.startswith(MEMORY):
        return [path]
    try:
        return await asyncio.to_thread(_files, path)
    except OSError as error:
        said = f"{path}: {error.strerror}; correct the path, or let this user read its folders"
        raise usage(said) from None


def _files(path: str) -> list[str]:
    if not has_magic(path) or Path(path).exists():  # a file may be called `[1].csv`
        _refuse_non_file(path)
        return [_absolute(Path(path))]
    found = (Path(one) for one in glob(path, recursive=True))  # noqa: PTH207 (any path, `**`)
    return sorted(_absolute(one) for one in found if one.is_file())


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
        self._opened: Objects | None = None
        self._stdin: _Stdin | None = None

    @property
    def _store(self) -> Objects:
        if self._opened is None:
            self._opened = self._open_store()
        return self._opened

    async def open(self, location: Location) -> Body:
        if location.bucket != LOCAL:
            return await self._store.open(location)
        return await self._open(location)

    async def _open(self, location: Location) -> FolderBody:
        try:
            path = self._memory.get(location.key, location.key)
            if path == STDIN:
                path = await self._copied()
            body = FolderBody(location, await asyncio.to_thread(open_regular, path, location))
        except (FileNotFoundError, ValueError):  # no file's name has a NUL
            said = (
                f"there is no file {location.key}; correct the path (an object is s3://bucket/key)"
            )
            raise Poison("not_found", said) from None
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
            said = f"standard input cannot be copied ({error.strerror}); {mend}"
            raise Poison("not_found", said) from None

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
