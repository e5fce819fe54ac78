"""Names from a message never become paths, addresses or header lines, whichever client reads."""

import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Event, Thread

import pytest

from penstock import config
from penstock.adapters.s3.direct_get import DirectObjects
from penstock.adapters.s3.obstore_client import ObstoreObjects
from penstock.adapters.s3.s3fs_client import S3fsObjects
from penstock.adapters.stores.local_files import FolderObjects
from penstock.errors import Poison, Transient
from penstock.ports import Location, Objects
from tests.adapters.stores.contract import code_of, read
from tests.adapters.stores.s3_stub import S3Stub

ODD_KEYS = [
    "..", ".", "../other/secret", "a/../../other/secret", "/etc/passwd", "//evil/x", "a//b", "a/",
    "a\0b", "a\r\nHost: evil", "\x7f", "\x1b[2J", "%2e%2e/x", "..%2fx", "..\\x", "k?versionId=1#f",
    "http://evil/x", "@evil/x", " k ", "\u202ek", "\u2028", "a" * 1024, "ü" * 600,
]  # fmt: skip
ETAGS = ['"x"\r\n\r\nDELETE /b/k HTTP/1.1\r\n\r\n"', "a\0b", "a\nb", "\x7f", "ü", "\u2028"]


@pytest.fixture
async def stub() -> AsyncIterator[S3Stub]:
    async with S3Stub({key: key.encode() for key in ODD_KEYS} | {"k": b"1"}) as stub:
        yield stub


@pytest.fixture(params=["direct", "obstore", "s3fs"])
async def objects(request: pytest.FixtureRequest, stub: S3Stub) -> AsyncIterator[Objects]:
    settings = config.Objects(endpoint_url=stub.url, key="k", secret="s", region="us-east-1")
    made: Objects = S3fsObjects(settings) if request.param == "s3fs" else ObstoreObjects(settings)
    if request.param == "direct":
        made = DirectObjects(made, settings)
    yield made
    await made.aclose()


@pytest.mark.parametrize("key", ODD_KEYS)
async def test_a_key_is_a_name_in_its_own_bucket(objects: Objects, key: str) -> None:
    assert await read(objects, Location("b", key)) == key.encode()


@pytest.mark.parametrize("etag", ETAGS)
async def test_an_etag_never_begins_a_second_line(
    objects: Objects, stub: S3Stub, etag: str
) -> None:
    assert await _refused(objects, Location("b", "k", etag=etag)) == "changed"
    assert stub.seen == []


@pytest.mark.parametrize("bucket", ["b@evil", "b:80", "b?x", "b#x", "../b", "b/c", "b\r\n", "b\0"])
async def test_a_bucket_never_becomes_an_address(
    objects: Objects, stub: S3Stub, bucket: str
) -> None:
    assert await code_of(objects, Location(bucket, "k")) == "not_found"
    assert stub.seen == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "store" / "b").mkdir(parents=True)
    (tmp_path / "store" / "b" / "k").write_text("inside")
    return tmp_path / "store"


@pytest.mark.parametrize("key", ["../../secret", "../b/k", "/etc/passwd", "a\0", "a" * 5000, "."])
async def test_a_folder_takes_no_path_for_a_key(folder: Path, key: str) -> None:
    assert await code_of(FolderObjects(str(folder)), Location("b", key)) == "not_found"


async def test_a_link_out_of_the_folder_is_not_followed(folder: Path) -> None:
    (folder / "b" / "file").symlink_to(folder.parent / "secret")
    (folder / "b" / "up").symlink_to(folder.parent)
    (folder / "c").symlink_to("/etc")
    objects = FolderObjects(str(folder))
    for bucket, key in (("b", "file"), ("b", "up/secret"), ("c", "passwd")):
        assert await code_of(objects, Location(bucket, key)) == "not_found"


async def test_a_link_that_is_put_there_meanwhile_is_not_followed(folder: Path) -> None:
    """Seen with one open of ten, while a folder was swapped for a link again and again."""
    inside, outside = folder / "b" / "d", folder.parent / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "k").write_bytes(b"inside")
    (outside / "k").write_bytes(b"secret")
    is_over = Event()

    def swap() -> None:
        while not is_over.is_set():
            inside.rename(folder / "aside")
            inside.symlink_to(outside)
            inside.unlink()
            (folder / "aside").rename(inside)

    swapping = Thread(target=swap)
    swapping.start()
    found: set[bytes | str] = set()
    try:
        for _ in range(2_000):
            try:
                found.add(await read(FolderObjects(str(folder)), Location("b", "d/k")))
            except Poison as poison:
                found.add(poison.code)
            # A link that was a folder again when it was to be read.
            except Transient:
                found.add("tried again")
    finally:
        is_over.set()
        swapping.join()
    assert b"inside" in found
    assert found <= {b"inside", "not_found", "tried again"}


async def test_a_link_within_the_folder_is_followed(folder: Path) -> None:
    (folder / "b" / "link").symlink_to(folder / "b" / "k")
    (folder.parent / "alias").symlink_to(folder)
    for root in (folder, folder.parent / "alias"):
        assert await read(FolderObjects(str(root)), Location("b", "link")) == b"inside"


async def test_what_is_no_regular_file_is_not_opened(folder: Path) -> None:
    os.mkfifo(folder / "b" / "pipe")
    (folder / "b" / "loop").symlink_to("loop")
    (folder / "b" / "folder").mkdir()
    objects = FolderObjects(str(folder))
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "b" / "socket"))
        for key in ("pipe", "loop", "folder", "socket"):
            assert await code_of(objects, Location("b", key)) == "not_found", key


async def _refused(objects: Objects, location: Location) -> str:
    with pytest.raises(Poison) as caught:
        await objects.open(location)
    return caught.value.code
