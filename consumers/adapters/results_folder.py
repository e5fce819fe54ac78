"""Result objects as files: a temporary name beside the result, renamed when it is complete.

Rule: a reader of the folder sees complete files only; what was begun and not ended has a name that
begins with a dot, ends with `.part` and goes when the same result is begun again. Files are touched
in threads, never on the event loop. Owner: the worker.
"""

import asyncio
import errno
import hashlib
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from consumers.errors import EXIT_USAGE, Fatal, PenstockError, Transient
from consumers.ports import Location, Stored


class FolderResults:
    """The port `Results`: buckets are the folders below `root`."""

    def __init__(self, root: str) -> None:
        self._root = Path(os.path.realpath(root))

    def begin(self, location: Location) -> "FileUpload":
        return FileUpload(self._root / location.bucket / location.key.lstrip("/"))

    async def aclose(self) -> None:
        """Nothing is held between calls."""


class FileUpload:
    """One file. Its temporary name is the same at every try, so a new one replaces what is left."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(f".{hashlib.sha256(path.name.encode()).hexdigest()[:32]}.part")
        self._file: BinaryIO | None = None

    async def write(self, data: bytes) -> None:
        try:
            if self._file is None:
                self._file = await asyncio.to_thread(self._create)
            await asyncio.to_thread(self._file.write, data)
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

    def _create(self) -> BinaryIO:
        """A new file: one that a worker before us still writes to is not ours to share."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._part.unlink(missing_ok=True)
        return self._part.open("xb")

    def _finish(self, file: BinaryIO) -> str:
        """On the disk before its name is: a power cut leaves no result that is cut off."""
        file.flush()
        os.fsync(file.fileno())
        found = os.fstat(file.fileno())
        if not self._is_ours(file):
            raise OSError(errno.ESTALE, "another worker has begun it anew")
        file.close()
        self._part.replace(self._path)
        self._file = None
        return f'"{found.st_ino:x}-{found.st_mtime_ns // 1000:x}-{found.st_size:x}"'

    def _discard(self, file: BinaryIO) -> None:
        with suppress(OSError):
            if self._is_ours(file):
                self._part.unlink()
            file.close()

    def _is_ours(self, file: BinaryIO) -> bool:
        """Is this file still the one under the temporary name? A worker that was frozen must not
        rename, nor delete, what its successor is writing.
        """
        try:
            return self._part.stat().st_ino == os.fstat(file.fileno()).st_ino
        except FileNotFoundError:
            return False

    def _translated(self, error: OSError) -> PenstockError:
        said = f"the result {self._path}: {error.strerror or error}"
        if isinstance(error, PermissionError | NotADirectoryError | IsADirectoryError):
            return Fatal(f"{said}; let this user write there", exit_code=EXIT_USAGE)
        return Transient(said)
