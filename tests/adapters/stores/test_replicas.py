"""A store and its replicas: the contract, and who is asked when."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock import config
from penstock.adapters.memory import MemoryObjects
from penstock.adapters.stores.choice import open_objects
from penstock.adapters.stores.local_files import FolderObjects
from penstock.adapters.stores.replicas import LOOK_AGAIN_S, PATIENCE_S, Copy, ReplicatedObjects
from penstock.errors import EXIT_USAGE, Fatal, Poison, Unreachable
from penstock.ports import Location, Objects
from penstock.tools.simulation.virtual_time import virtual_time
from tests.adapters.stores.contract import ObjectsContract, read
from tests.adapters.stores.test_contract import FolderShelf

KEY = Location("b", "k")


class Heard:
    def __init__(self) -> None:
        self.read: list[tuple[str, int]] = []
        self.away: list[str] = []

    def store_read(self, store: str, nbytes: int) -> None:
        self.read.append((store, nbytes))

    def store_failed_over(self, store: str) -> None:
        self.away.append(store)


async def refused(_: Location) -> None:
    raise Unreachable("refused")


async def silent(_: Location) -> None:
    await asyncio.Event().wait()


def pair(**data: bytes) -> tuple[ReplicatedObjects, MemoryObjects, MemoryObjects, Heard]:
    """The store and its replica, each with `data`."""
    own, replica, heard = MemoryObjects(), MemoryObjects(), Heard()
    for objects in (own, replica):
        for key, one in data.items():
            objects.put("b", key, one)
    return ReplicatedObjects([Copy("eu", own), Copy("us", replica)], heard), own, replica, heard


@pytest.fixture
def shelf(tmp_path: Path) -> FolderShelf:
    (tmp_path / "bucket").mkdir()
    copies = [Copy("eu", FolderObjects(str(tmp_path))), Copy("us", MemoryObjects())]
    return FolderShelf(tmp_path, ReplicatedObjects(copies))


class TestReplicated(ObjectsContract):
    """With a replica that is never needed the promises are the store's."""


async def test_while_the_store_answers_nobody_else_is_asked() -> None:
    objects, _, replica, heard = pair(k=b"abc")
    assert await read(objects, KEY) == b"abc"
    assert replica.opened == []
    assert (heard.read, heard.away) == ([("eu", 3)], [])


@pytest.mark.parametrize("trouble", [refused, silent])
def test_a_replica_answers_within_five_seconds(
    trouble: Callable[[Location], Awaitable[None]],
) -> None:
    @virtual_time
    async def scenario() -> None:
        objects, own, _, heard = pair(k=b"abc")
        own.on_open = trouble
        assert await read(objects, KEY) == b"abc"
        assert asyncio.get_running_loop().time() <= PATIENCE_S < 5.0
        assert (heard.read, heard.away) == ([("us", 3)], ["eu"])

    scenario()


@virtual_time
async def test_the_store_is_used_again_once_it_is_back() -> None:
    objects, own, _, heard = pair(k=b"abc")
    own.on_open = refused
    for _ in range(3):
        await read(objects, KEY)
    assert len(own.opened) == 1
    own.on_open = None
    await asyncio.sleep(LOOK_AGAIN_S)
    await read(objects, KEY)
    assert [store for store, _ in heard.read] == ["us", "us", "us", "eu"]
    assert heard.away == ["eu"]


async def test_other_bytes_are_changed_and_never_taken_for_the_same() -> None:
    objects, own, replica, _ = pair(k=b"old")
    body = await objects.open(KEY)
    replica.put("b", "k", b"new")
    own.on_open = refused
    with pytest.raises(Poison) as caught:
        await read(objects, KEY._replace(version_id=body.version_id, etag=body.etag))
    assert caught.value.code == "changed"


async def test_version_ids_are_each_stores_own() -> None:
    own, replica = MemoryObjects(), MemoryObjects()
    own.versioned = replica.versioned = True
    own.put("b", "other", b"x")
    for objects in (own, replica):
        objects.put("b", "k", b"abc")
    both = ReplicatedObjects([Copy("eu", own), Copy("us", replica)])
    first = await both.open(KEY)
    assert first.version_id == "v1"
    own.on_open = refused
    pinned = KEY._replace(version_id=first.version_id, etag=first.etag)
    again = await both.open(pinned)
    assert (again.version_id, again.etag) == (None, first.etag)
    assert replica.opened == [Location("b", "k", None, first.etag, "us")]


async def test_what_a_replica_does_not_have_yet_is_waited_for() -> None:
    objects, own, replica, _ = pair(k=b"abc")
    replica.delete("b", "k")
    own.on_open = refused
    with pytest.raises(Unreachable):
        await read(objects, KEY)
    with pytest.raises(Unreachable, match="eu is unavailable"):
        await read(objects, KEY)


async def test_what_the_store_itself_does_not_have_is_not_found() -> None:
    objects, own, replica, _ = pair(k=b"abc")
    own.delete("b", "k")
    with pytest.raises(Poison) as caught:
        await read(objects, KEY)
    assert caught.value.code == "not_found"
    assert replica.opened == []


async def test_when_nobody_is_there_all_are_asked_again() -> None:
    objects, own, replica, _ = pair(k=b"abc")
    own.on_open = replica.on_open = refused
    with pytest.raises(Unreachable):
        await read(objects, KEY)
    own.on_open = None
    assert await read(objects, KEY) == b"abc"


async def test_parts_come_from_a_replica_too() -> None:
    objects, own, _, heard = pair(k=b"0123456789")
    own.on_open = refused
    part = await objects.part(KEY, 2, 5)
    assert (part.data, part.version_id) == (b"234", None)
    assert heard.read == [("us", 3)]


@pytest.mark.parametrize("replicas", [["nobody"], ["objects"]])
def test_a_replica_that_is_no_other_store_is_a_setting_to_mend(replicas: list[str]) -> None:
    cfg = config.Config(objects=config.Objects(endpoint_url="file:///tmp", replicas=replicas))
    with pytest.raises(Fatal, match=r"objects\.replicas") as caught:
        open_objects(cfg)
    assert caught.value.exit_code == EXIT_USAGE


async def test_the_configuration_makes_them(tmp_path: Path) -> None:
    for store in ("eu", "us"):
        (tmp_path / store / "b").mkdir(parents=True)
    (tmp_path / "us" / "b" / "k").write_bytes(b"abc")
    objects: Objects = open_objects(
        config.Config(
            objects=config.Objects(
                endpoint_url="http://127.0.0.1:1", key="k", secret="s", replicas=["us"]
            ),
            stores={"us": config.Store(url=(tmp_path / "us").as_uri())},
        )
    )
    assert await read(objects, KEY) == b"abc"
    await objects.aclose()
