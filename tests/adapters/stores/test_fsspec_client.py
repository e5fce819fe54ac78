"""The contract of object stores over fsspec, and what only other people's libraries do."""

import uuid
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from penstock import config
from penstock.adapters.stores.fsspec_client import FsspecObjects, _etag, translated
from penstock.errors import EXIT_USAGE, Fatal, PenstockError, Poison, Transient, Unreachable
from penstock.ports import Location, Objects
from tests.adapters.stores.contract import ObjectsContract, code_of, read


class FsspecShelf(NamedTuple):
    files: Any
    bucket: str
    objects: Objects

    def put(self, key: str, data: bytes) -> str:
        path = f"/{self.bucket}/{key}"
        self.files.pipe_file(path, data)
        etag = _etag(self.files.info(path))
        assert etag is not None
        return etag.strip('"')


@pytest.fixture
async def shelf() -> AsyncIterator[FsspecShelf]:
    files = fsspec.filesystem("memory")
    bucket = f"bucket-{uuid.uuid4().hex}"
    files.mkdir(f"/{bucket}")
    objects = FsspecObjects(config.Store(url="memory://"), "memory", section="stores.m")
    yield FsspecShelf(files, bucket, objects)
    files.rm(f"/{bucket}", recursive=True)
    await objects.aclose()


class TestMemory(ObjectsContract):
    """Plus what happens where the store cannot promise a version."""

    @pytest.mark.parametrize("key", ["a//b", "trail/", "/lead", "..", "./file", "a\0b"])
    async def test_a_key_that_no_file_can_have_is_not_found(
        self, shelf: FsspecShelf, key: str
    ) -> None:
        for name in ("a/b", "trail", "lead", "file"):
            shelf.put(name, b"not this one")
        assert await code_of(shelf.objects, Location(shelf.bucket, key)) == "not_found"

    @pytest.mark.parametrize("size", [10, 9 << 20])
    async def test_what_is_replaced_while_it_is_read_is_changed(
        self, shelf: FsspecShelf, size: int
    ) -> None:
        """Its last bytes are never handed on: a reader never sees all of a mixture."""
        shelf.put("file", b"x" * size)
        body = await shelf.objects.open(Location(shelf.bucket, "file"))
        shelf.put("file", b"y" * size)
        seen: list[bytes] = []

        async def take() -> None:
            async for chunk in body:
                seen.append(chunk)  # noqa: PERF401 (what came before the failure counts)

        with pytest.raises(Poison) as caught:
            await take()
        await body.aclose()
        assert caught.value.code == "changed"
        assert sum(map(len, seen)) < size

    async def test_a_version_id_is_none_of_such_a_store(self, shelf: FsspecShelf) -> None:
        shelf.put("file", b"x")
        location = Location(shelf.bucket, "file", version_id="v1")
        assert await code_of(shelf.objects, location) == "changed"

    async def test_a_folder_is_no_object(self, shelf: FsspecShelf) -> None:
        shelf.put("folder/file", b"x")
        assert await code_of(shelf.objects, Location(shelf.bucket, "folder")) == "not_found"


class Strange(Exception):
    """Of a library that nobody knows."""


@pytest.mark.parametrize(
    ("error", "family"),
    [
        (ConnectionRefusedError("refused"), Unreachable),
        (TimeoutError(), Unreachable),
        (EOFError(), Unreachable),
        (PermissionError("no"), Poison),
        (Strange("?"), Transient),
    ],
)
def test_whatever_a_library_raises_is_one_of_our_families(
    error: Exception, family: type[PenstockError]
) -> None:
    meant = translated(error, Location("b", "k", store="m"))
    assert type(meant) is family
    assert "'k'" in str(meant)
    assert "store m" in str(meant)


async def test_an_error_that_a_library_raises_leaves_as_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise Strange("odd")

    monkeypatch.setattr(MemoryFileSystem, "info", fails)
    objects = FsspecObjects(config.Store(url="memory://"), "memory", section="stores.m")
    with pytest.raises(Transient, match="Strange"):
        await read(objects, Location("b", "k"))


@pytest.mark.parametrize("scheme", ["sftp", "nonsense"])
def test_a_package_that_is_missing_is_named(scheme: str) -> None:
    with pytest.raises(Fatal, match=r"stores\.m\.url") as caught:
        FsspecObjects(config.Store(url=f"{scheme}://"), scheme, section="stores.m")
    assert caught.value.exit_code == EXIT_USAGE


MOMENT = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.mark.parametrize(
    "change",
    [
        lambda info: {**info, "mtime": 8},
        lambda info: {**info, "size": 6},
        lambda info: {**info, "ETag": '"1"'},
    ],
)
def test_what_changes_with_the_file_changes_its_tag(
    change: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    info = {"size": 5, "mtime": 7, "created": MOMENT}
    assert _etag(info) != _etag(change(info))
    assert _etag({"size": 5}) is None
