"""Opens the store that `output.objects` names, to write result objects there.

Rule: it is chosen as a store that is read. A reader of a folder sees complete files only: an
unfinished one's name begins with a dot and ends with `.part`, and two workers that write one name
do not disturb each other.
"""

import asyncio
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from io import FileIO
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

import obstore
from obstore.exceptions import BaseError

from penstock import config
from penstock.adapters.result_stores.uploads import PATIENCE, Meaning, ObstoreUpload, S3Leftovers
from penstock.adapters.s3.buckets import Buckets, as_profile_says, s3_buckets
from penstock.adapters.s3.obstore_client import KeptStores, cloud_translated, translated
from penstock.adapters.s3.s3fs_client import S3fsObjects
from penstock.adapters.stores.choice import CLOUDS, place_of, places_of_caller, with_clouds
from penstock.adapters.stores.clouds import cloud_buckets
from penstock.adapters.stores.names import folder_of, is_for_botocore
from penstock.adapters.stores.transfer import READ_TIMEOUT_S
from penstock.core.records.result_names import parsed
from penstock.core.routing.store_choice import DEFAULT, StoreChoice
from penstock.errors import PenstockError, Poison, Transient, usage
from penstock.messages.urls import S3
from penstock.ports import Location, Stored
from penstock.process.asyncio_additions import opened_in_thread

if TYPE_CHECKING:
    from obstore.store import RetryConfig

# Inode, size and time of a file. They tell whether the file was replaced or has grown.
_State = tuple[int, int, int]


class FolderResults:
    """Implements the port `ResultStore`. The folders below `root` are the buckets."""

    def __init__(self, root: str) -> None:
        self._root = Path(os.path.realpath(root))
        self._live: dict[Path, FileUpload] = {}

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
    names of this worker. One is taken before its file is made and given back after its file is
    gone, in one step each, because every upload does so in a thread of its own.
    """

    def __init__(self, path: Path, live: "dict[Path, FileUpload]") -> None:
        self._path = path
        self._live = live
        self._part = path
        self._file: FileIO | None = None
        self._others: dict[Path, _State] = {}

    async def write(self, data: bytes) -> None:
        try:
            if self._file is None:
                self._file = await opened_in_thread(self._create, self._discard)
            await asyncio.to_thread(_write, self._file, data)
        except OSError as error:
            raise self._translated(error) from None

    async def complete(self) -> Stored:
        try:
            if self._file is None:
                self._file = await opened_in_thread(self._create, self._discard)
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
            if self._live.setdefault(part, self) is not self:
                continue
            try:
                file = part.open("xb", buffering=0)
            except OSError as error:
                del self._live[part]
                if not isinstance(error, FileExistsError):
                    raise
                with suppress(FileNotFoundError):
                    self._others[part] = _state(part.stat())
                continue
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
        status = os.fstat(file.fileno())
        file.close()
        self._part.replace(self._path)
        self._live.pop(self._part, None)
        self._file = None
        self._remove_others()
        return f'"{status.st_ino:x}-{status.st_mtime_ns // 1000:x}-{status.st_size:x}"'

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
        self._live.pop(self._part, None)

    def _translated(self, error: OSError) -> PenstockError:
        return _translated(self._path, error)


def _translated(path: Path, error: OSError) -> PenstockError:
    message = f"the result {path}: {error.strerror or error}"
    if isinstance(error, PermissionError | NotADirectoryError | IsADirectoryError):
        return usage(f"{message}; let this user write there")
    return Transient(message)


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


def _state(status: os.stat_result) -> _State:
    return status.st_ino, status.st_size, status.st_mtime_ns


# obstore chooses each pause before a retry at random between `FIRST_WAIT` and `LONGEST_WAIT`. The
# number of retries is so high that only `PATIENCE` ends them: twenty retries of a store that
# answered 500 lasted 4-28 s.
FIRST_WAIT: Final = timedelta(seconds=0.1)
LONGEST_WAIT: Final = timedelta(seconds=5)
RETRIES: "Final[RetryConfig]" = {
    "max_retries": PATIENCE // FIRST_WAIT,
    "retry_timeout": PATIENCE,
    "backoff": {"init_backoff": FIRST_WAIT, "max_backoff": LONGEST_WAIT, "base": 2},
}


class ObstoreResults:
    """Implements the port `ResultStore`. `reach`: a function that opens a bucket. `leftovers`:
    removes unfinished uploads; None if the store removes them by itself. `meaning`: a function that
    translates obstore's errors. `name`: the store's name, for error messages.
    """

    def __init__(
        self,
        reach: Buckets,
        leftovers: S3Leftovers | None,
        meaning: Meaning,
        name: str,
    ) -> None:
        self._stores = KeptStores(reach)
        self.leftovers = leftovers
        self._meaning = meaning
        self._name = name

    def begin(self, location: Location) -> "ObstoreUpload":
        store = self._stores.of(location.bucket)
        named = location._replace(store=self._name)
        return ObstoreUpload(store, named, self.leftovers, self._meaning)

    async def has(self, location: Location) -> bool:
        try:
            await obstore.head_async(self._stores.of(location.bucket), location.key)
        except FileNotFoundError:
            return False
        except (BaseError, OSError) as error:
            meant = self._meaning(error, location._replace(store=self._name))
            if isinstance(meant, Poison):
                raise usage(
                    f"it cannot be told if there is a result: {meant}; without the right to list "
                    "the bucket (s3:ListBucket) stores do not say that an object is missing"
                ) from None
            raise meant from None
        return True

    async def try_write(self, location: Location) -> str | None:
        """Write an empty object and remove it again. Returns why it could not be removed; None if
        it was removed. Raises the errors of `Upload.complete`.
        """
        upload = self.begin(location)
        await upload.complete()
        try:
            await obstore.delete_async(self._stores.of(location.bucket), location.key)
        except (BaseError, OSError) as error:
            return str(self._meaning(error, location._replace(store=self._name)))
        return None

    async def aclose(self) -> None:
        if self.leftovers is not None:
            await self.leftovers.aclose()


# Both implement the port `ResultStore`, and have `try_write` for `penstock doctor`.
StoreResults = ObstoreResults | FolderResults


def open_results(cfg: config.Config, template: str) -> StoreResults:
    """The store for results whose names are made by `template`. Raises `Fatal` for settings that
    cannot be right.
    """
    try:
        names = parsed(template)
        if is_for_botocore(names.bucket):
            raise ValueError(
                f"{names.bucket} is no plain bucket; write to the access point's alias, or to a "
                "bucket for general purposes"
            )
        if names.scheme == "file":
            return FolderResults("/")
        cfg = with_clouds(cfg)
        # A bucket name with fields in it never matches a store that is set up for one bucket.
        store = StoreChoice(places_of_caller(cfg)).of(names.scheme, names.bucket, "")
    except (ValueError, Poison) as error:
        raise usage(f"output.objects: {error}") from None
    return _default(cfg.objects) if store == DEFAULT else _named(store, cfg.stores)


def _default(settings: config.Objects) -> StoreResults:
    folder = folder_of(settings.endpoint_url)
    return _s3(settings, DEFAULT, DEFAULT) if folder is None else FolderResults(folder)


def _named(name: str, stores: Mapping[str, config.Store]) -> StoreResults:
    store, section = stores[name], f"stores.{name}"
    scheme = place_of(name, store).scheme
    if scheme == S3:
        return _s3(store, section, name)
    if scheme == "file":
        return FolderResults(folder_of(store.url) or "/")
    if scheme in CLOUDS:
        reach = cloud_buckets(store, scheme, section, READ_TIMEOUT_S, RETRIES)
        return ObstoreResults(reach, None, cloud_translated, name)
    raise usage(f"output.objects: results are written to s3, gs, az and file, not to {scheme}")


def _s3(settings: config.Access, section: str, name: str) -> StoreResults:
    settings = as_profile_says(settings, section)
    exact = S3fsObjects(settings, section=section)
    reach = s3_buckets(settings, section, READ_TIMEOUT_S, RETRIES)
    return ObstoreResults(reach, S3Leftovers(exact), translated, name)


def leftovers_of(cfg: config.Config, template: str) -> S3Leftovers | None:
    """Gives access to the unfinished uploads in the store that results are written to. None if this
    store is not S3, because other stores remove such uploads by themselves.
    """
    results = open_results(cfg, template)
    return results.leftovers if isinstance(results, ObstoreResults) else None
