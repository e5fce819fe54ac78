"""Writes result objects as files. A file is renamed from a temporary name when it is complete.

Rule: a reader of the folder sees complete files only. An unfinished file has a name that begins
with a dot and ends with `.part`; it is removed when the same result is written again. Two workers
that write the same name at once do not disturb each other. Files are touched in threads, never on
the event loop. Owner: the worker.
"""

import asyncio
import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from io import FileIO
from itertools import count
from pathlib import Path

from penstock.errors import PenstockError, Transient, usage
from penstock.ports import Location, Stored

# Inode, size and time of a file. They tell whether the file was replaced or has grown.
_State = tuple[int, int, int]


class FolderResults:
    """Implements the port `Results`. The folders below `root` are the buckets."""

    def __init__(self, root: str) -> None:
        self._root = Path(os.path.realpath(root))
        self._live: set[Path] = set()

    def begin(self, location: Location) -> "FileUpload":
        return FileUpload(self._path(location), self._live)

    async def has(self, location: Location) -> bool:
        return await asyncio.to_thread(self._path(location).is_file)

    async def try_write(self, location: Location) -> str | None:
        """Like `ObstoreResults.try_write`, but in the deepest folder that exists. The folders below
        that one are made with the first result.
        """
        return await asyncio.to_thread(_try_write, self._path(location))

    def _path(self, location: Location) -> Path:
        return self._root / location.bucket / location.key.lstrip("/")

    async def aclose(self) -> None:
        """Does nothing: nothing is held open between calls."""


class FileUpload:
    """Writes one file. The upload takes the first temporary name that is free: the names before it
    belong to a killed worker, or to a worker that writes the same result now. `live`: the temporary
    files that this worker has open.
    """

    def __init__(self, path: Path, live: set[Path]) -> None:
        self._path = path
        self._live = live
        self._part = path
        self._file: FileIO | None = None
        self._others: dict[Path, _State] = {}

    async def write(self, data: bytes) -> None:
        try:
            if self._file is None:
                self._file = await asyncio.to_thread(self._create)
            await asyncio.to_thread(_write, self._file, data)
        except OSError as error:
            raise self._translated(error) from None

    async def complete(self) -> Stored:
        try:
            if self._file is None:
                self._file = await asyncio.to_thread(self._create)
            return Stored(await asyncio.to_thread(partial(self._finish, self._file)))
        except OSError as error:
            raise self._translated(error) from None

    async def abort(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            await asyncio.to_thread(self._discard, file)

    def _create(self) -> FileIO:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        for part in self._parts():
            try:
                file = part.open("xb", buffering=0)
            except FileExistsError:
                with suppress(FileNotFoundError):
                    self._others[part] = _state(part.stat())
                continue
            self._live.add(part)
            self._part = part
            break
        return file

    def _parts(self) -> Iterator[Path]:
        start = f".{hashlib.sha256(self._path.name.encode()).hexdigest()[:32]}"
        for number in count():
            yield self._path.with_name(f"{start}.{number}.part")

    def _finish(self, file: FileIO) -> str:
        """Flush the data to the disk, then rename, so that a power cut leaves no partial result."""
        os.fsync(file.fileno())
        found = os.fstat(file.fileno())
        file.close()
        self._part.replace(self._path)
        self._live.discard(self._part)
        self._file = None
        self._remove_others()
        return f'"{found.st_ino:x}-{found.st_mtime_ns // 1000:x}-{found.st_size:x}"'

    def _remove_others(self) -> None:
        """Remove the other temporary files of this result, if they did not change while ours was
        written.
        """
        for part, before in self._others.items():
            with suppress(OSError):
                if part not in self._live and _state(part.stat()) == before:
                    part.unlink()

    def _discard(self, file: FileIO) -> None:
        with suppress(OSError):
            file.close()
        with suppress(OSError):
            self._part.unlink()
        self._live.discard(self._part)

    def _translated(self, error: OSError) -> PenstockError:
        return _translated(self._path, error)


def _translated(path: Path, error: OSError) -> PenstockError:
    said = f"the result {path}: {error.strerror or error}"
    if isinstance(error, PermissionError | NotADirectoryError | IsADirectoryError):
        return usage(f"{said}; let this user write there")
    return Transient(said)


def _try_write(path: Path) -> str | None:
    folder = next(parent for parent in path.parents if parent.exists())
    file = folder / path.name
    try:
        file.open("xb").close()
    except OSError as error:
        raise _translated(file, error) from None
    try:
        file.unlink()
    except OSError as error:
        return f"{file}: {error.strerror or error}"
    return None


def _write(file: FileIO, data: bytes) -> None:
    """Write all of `data`, without a buffer, because other workers look whether the file grows."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _state(found: os.stat_result) -> _State:
    return found.st_ino, found.st_size, found.st_mtime_ns
