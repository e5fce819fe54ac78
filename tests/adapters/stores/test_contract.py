"""The contract of object stores over a folder."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.adapters.stores.local_files import FolderObjects
from penstock.adapters.stores.names import folder_of
from penstock.errors import EXIT_USAGE, Fatal
from penstock.ports import Location, Objects
from tests.adapters.stores.contract import ObjectsContract, code_of, keys_of, read


class FolderShelf(NamedTuple):
    folder: Path
    objects: Objects
    bucket: str = "bucket"

    def put(self, key: str, data: bytes) -> str:
        path = self.folder / self.bucket / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        stat = path.stat()
        return f"{stat.st_ino:x}-{stat.st_mtime_ns // 1000:x}-{stat.st_size:x}"


@pytest.fixture
async def shelf(tmp_path: Path) -> AsyncIterator[FolderShelf]:
    folder = tmp_path / "the store, 100%"
    (folder / "bucket").mkdir(parents=True)
    named = folder_of(folder.as_uri())
    assert named is not None
    objects = FolderObjects(named)
    yield FolderShelf(folder, objects)
    await objects.aclose()


class TestFolder(ObjectsContract):
    """Plus what only a folder has to answer."""

    @pytest.mark.parametrize(
        "key", ["a//b", "trail/", "/lead", "..", "../bucket/file", "./file", "a\0b", "folder"]
    )
    async def test_a_key_that_no_file_can_have_is_not_found(
        self, shelf: FolderShelf, key: str
    ) -> None:
        for name in ("a/b", "trail", "lead", "file", "folder/file"):
            shelf.put(name, b"not this one")
        assert await code_of(shelf.objects, Location("bucket", key)) == "not_found"

    async def test_a_version_is_gone_because_a_folder_keeps_none(self, shelf: FolderShelf) -> None:
        shelf.put("file", b"x")
        location = Location("bucket", "file", version_id="v1")
        assert await code_of(shelf.objects, location) == "changed"

    async def test_a_link_to_nowhere_is_not_listed(self, shelf: FolderShelf) -> None:
        (shelf.folder / "bucket" / "link").symlink_to(shelf.folder / "bucket" / "gone")
        shelf.put("real", b"x")
        assert await keys_of(shelf, "*") == ["real"]

    async def test_a_file_with_an_odd_name_does_not_spoil_the_listing(
        self, shelf: FolderShelf
    ) -> None:
        shelf.put("tab\there", b"x")
        shelf.put("plain", b"x")
        assert "plain" in await keys_of(shelf, "*")

    async def test_a_file_replaced_while_it_is_read_does_not_mix(self, shelf: FolderShelf) -> None:
        shelf.put("file", b"old" * 1000)
        body = await shelf.objects.open(Location("bucket", "file"))
        fresh = shelf.folder / "fresh"
        fresh.write_bytes(b"new" * 1000)
        fresh.rename(shelf.folder / "bucket" / "file")
        assert b"".join([chunk async for chunk in body]) == b"old" * 1000
        await body.aclose()
        assert await read(shelf.objects, Location("bucket", "file")) == b"new" * 1000

    async def test_a_glob_that_means_nothing_is_a_usage_error(self, shelf: FolderShelf) -> None:
        with pytest.raises(Fatal, match=r"a\*\*b") as caught:
            await keys_of(shelf, "a**b")
        assert caught.value.exit_code == EXIT_USAGE
