"""What every `Objects` adapter promises, whichever client and whichever kind of store.

Rule: a subclass gives the fixture `shelf`, a bucket that the test fills beside the adapter.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Protocol

import pytest

from penstock.errors import Poison
from penstock.ports import Location, ObjectBody, Objects

LARGE = os.urandom(1 << 20) * 9 + b"the end"
MAX_CHUNK_BYTES = 4 << 20

PLAIN_KEYS = [
    "site 1/cam+3/ü.csv",
    "100%25.csv",
    "a?b#c&d=e",
    "tilde~(1)*'!.csv",
    "a\\b",
    "...",
    "a/.b",
]
# Of ten digits.
PARTS: dict[tuple[int, int | None], bytes] = {
    (0, 3): b"012",
    (4, 6): b"45",
    (7, None): b"789",
    (7, 99): b"789",
    (-3, None): b"789",
    (-99, None): b"0123456789",
}
GLOBS = {
    "*.csv": ["a.csv", "b.csv"],
    "?.csv": ["a.csv", "b.csv"],
    "[!a]*.csv": ["b.csv"],
    "day/*.csv": ["day/1.csv", "day/10.csv", "day/2.csv"],
    "day/?.csv": ["day/1.csv", "day/2.csv"],
    "day/[12].csv": ["day/1.csv", "day/2.csv"],
    "day/1[!x]cam.csv": [],
    "d*/*/*.csv": ["day/1/cam.csv"],
    "**/cam.csv": ["day/1/cam.csv"],
    "day/**": ["day/1.csv", "day/1/cam.csv", "day/10.csv", "day/2.csv"],
    "day-*": ["day-2"],
    "day/2.csv": ["day/2.csv"],
    "nothing/*": [],
    "day/2.csv/*": [],
}


class Shelf(Protocol):
    """A bucket; `put` returns the ETag as an event would name it, without quotes."""

    @property
    def bucket(self) -> str: ...

    @property
    def objects(self) -> Objects: ...

    def put(self, key: str, data: bytes) -> str: ...


async def chunks_of(body: ObjectBody) -> list[bytes]:
    try:
        return [chunk async for chunk in body]
    finally:
        await body.aclose()


async def read(objects: Objects, location: Location) -> bytes:
    return b"".join(await chunks_of(await objects.open(location)))


async def each_version_is_as_it_was(
    objects: Objects, bucket: str, key: str, versions: Mapping[str, bytes]
) -> None:
    for version, data in versions.items():
        body = await objects.open(Location(bucket, key, version_id=version))
        assert body.version_id == version
        assert b"".join([chunk async for chunk in body]) == data
        await body.aclose()


async def code_of(objects: Objects, location: Location) -> str:
    with pytest.raises(Poison) as caught:
        await read(objects, location)
    assert repr(location.key) in str(caught.value)
    assert repr(location.bucket) in str(caught.value)
    return caught.value.code


async def keys_of(shelf: Shelf, pattern: str) -> list[str]:
    return [listed.location.key async for listed in shelf.objects.list(shelf.bucket, pattern)]


class ObjectsContract:
    def fill(self, shelf: Any, keys: list[str]) -> None:
        """With empty objects."""
        for key in keys:
            shelf.put(key, b"")

    async def test_a_small_object_arrives_in_one_chunk(self, shelf: Shelf) -> None:
        shelf.put("small.csv", b"1,2\n" * 1000)
        body = await shelf.objects.open(Location(shelf.bucket, "small.csv"))
        assert body.size == 4000
        assert await chunks_of(body) == [b"1,2\n" * 1000]

    async def test_an_empty_object_has_no_chunks(self, shelf: Shelf) -> None:
        shelf.put("empty", b"")
        body = await shelf.objects.open(Location(shelf.bucket, "empty"))
        assert body.size == 0
        assert await chunks_of(body) == []

    async def test_a_large_object_arrives_in_pieces_and_in_order(self, shelf: Shelf) -> None:
        shelf.put("large", LARGE)
        body = await shelf.objects.open(Location(shelf.bucket, "large"))
        chunks = await chunks_of(body)
        assert body.size == len(LARGE)
        assert b"".join(chunks) == LARGE
        assert all(type(chunk) is bytes and len(chunk) <= MAX_CHUNK_BYTES for chunk in chunks)
        assert len(chunks) > 1

    async def test_keys_are_taken_literally(self, shelf: Shelf) -> None:
        for key in PLAIN_KEYS:
            shelf.put(key, key.encode())
        found = [await read(shelf.objects, Location(shelf.bucket, key)) for key in PLAIN_KEYS]
        assert found == [key.encode() for key in PLAIN_KEYS]

    @pytest.mark.parametrize("form", ["{}", '"{}"'])
    async def test_a_pinned_object_is_read_with_and_without_quotes_around_its_etag(
        self, shelf: Shelf, form: str
    ) -> None:
        etag = shelf.put("pinned", b"first")
        location = Location(shelf.bucket, "pinned", etag=form.format(etag))
        assert await read(shelf.objects, location) == b"first"

    async def test_the_body_tells_the_etag_that_pins_it(self, shelf: Shelf) -> None:
        etag = shelf.put("versioned", b"first")
        body = await shelf.objects.open(Location(shelf.bucket, "versioned"))
        await body.aclose()
        assert body.etag == f'"{etag}"'
        assert (
            await read(shelf.objects, Location(shelf.bucket, "versioned", etag=body.etag))
            == b"first"
        )

    async def test_a_version_is_told_only_if_it_pins(self, shelf: Shelf) -> None:
        """Asked for by its version alone, it is the same after it was replaced, or not at all."""
        shelf.put("versioned", b"first")
        body = await shelf.objects.open(Location(shelf.bucket, "versioned"))
        await body.aclose()
        if body.version_id is not None:
            shelf.put("versioned", b"the second")
            location = Location(shelf.bucket, "versioned", version_id=body.version_id)
            text: bytes | str
            try:
                text = await read(shelf.objects, location)
            except Poison as error:
                text = error.code
            assert text in (b"first", "changed")

    async def test_an_object_replaced_after_its_event_is_changed(self, shelf: Shelf) -> None:
        etag = shelf.put("replaced", b"first")
        shelf.put("replaced", b"the second")
        location = Location(shelf.bucket, "replaced", etag=etag)
        assert await code_of(shelf.objects, location) == "changed"

    @pytest.mark.parametrize("key", ["missing", "file/below-a-file", "a" * 300])
    async def test_a_missing_object_is_not_found(self, shelf: Shelf, key: str) -> None:
        shelf.put("file", b"")
        assert await code_of(shelf.objects, Location(shelf.bucket, key)) == "not_found"

    @pytest.mark.parametrize("bucket", ["no-such-bucket", "", "..", "a/../b", "a b"])
    async def test_a_missing_bucket_is_not_found(self, shelf: Shelf, bucket: str) -> None:
        assert await code_of(shelf.objects, Location(bucket, "key")) == "not_found"

    async def test_an_empty_key_is_not_found(self, shelf: Shelf) -> None:
        assert await code_of(shelf.objects, Location(shelf.bucket, "")) == "not_found"

    async def test_an_unread_body_can_be_closed(self, shelf: Shelf) -> None:
        shelf.put("large", LARGE)
        for _ in range(20):
            body = await shelf.objects.open(Location(shelf.bucket, "large"))
            await body.aclose()
        assert await read(shelf.objects, Location(shelf.bucket, "large")) == LARGE

    async def test_a_read_broken_off_leaves_the_client_usable(self, shelf: Shelf) -> None:
        shelf.put("large", LARGE)
        begun = asyncio.Event()

        async def slow_reader() -> None:
            body = await shelf.objects.open(Location(shelf.bucket, "large"))
            try:
                async for _ in body:
                    begun.set()
                    await asyncio.Event().wait()
            finally:
                await body.aclose()

        for _ in range(20):
            begun.clear()
            task = asyncio.create_task(slow_reader())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await read(shelf.objects, Location(shelf.bucket, "large")) == LARGE

    async def test_many_tasks_read_at_once(self, shelf: Shelf) -> None:
        shelf.put("large", LARGE)
        opened = [await shelf.objects.open(Location(shelf.bucket, "large")) for _ in range(24)]
        whole = await asyncio.gather(*map(chunks_of, reversed(opened)))
        assert all(b"".join(chunks) == LARGE for chunks in whole)

    async def test_a_part_is_exactly_what_was_asked_for(self, shelf: Shelf) -> None:
        etag = shelf.put("digits", b"0123456789")
        location = Location(shelf.bucket, "digits")
        found = {asked: await shelf.objects.part(location, *asked) for asked in PARTS}
        assert {asked: part.data for asked, part in found.items()} == PARTS
        assert {(part.size, part.etag) for part in found.values()} == {(10, f'"{etag}"')}

    async def test_a_large_part_comes_whole(self, shelf: Shelf) -> None:
        shelf.put("large", LARGE)
        part = await shelf.objects.part(Location(shelf.bucket, "large"), 1, len(LARGE) - 1)
        assert part.data == LARGE[1:-1]

    async def test_an_empty_object_has_no_last_bytes(self, shelf: Shelf) -> None:
        shelf.put("empty", b"")
        part = await shelf.objects.part(Location(shelf.bucket, "empty"), -8)
        assert (part.data, part.size) == (b"", 0)

    async def test_parts_are_of_the_pinned_version_or_none(self, shelf: Shelf) -> None:
        shelf.put("replaced", b"the first")
        first = await shelf.objects.part(Location(shelf.bucket, "replaced"), -5)
        pinned = Location(shelf.bucket, "replaced", first.version_id, first.etag)
        assert (await shelf.objects.part(pinned, 0, 3)).data == b"the"
        shelf.put("replaced", b"the second, longer one")
        with pytest.raises(Poison) as caught:
            await shelf.objects.part(pinned, 0, 3)
        assert caught.value.code == "changed"

    async def test_a_part_behind_the_end_is_changed(self, shelf: Shelf) -> None:
        shelf.put("digits", b"0123456789")
        with pytest.raises(Poison) as caught:
            await shelf.objects.part(Location(shelf.bucket, "digits"), 10, 12)
        assert caught.value.code == "changed"

    async def test_a_part_of_a_missing_object_is_not_found(self, shelf: Shelf) -> None:
        with pytest.raises(Poison) as caught:
            await shelf.objects.part(Location(shelf.bucket, "missing"), 0, 3)
        assert caught.value.code == "not_found"

    async def test_a_part_takes_keys_literally(self, shelf: Shelf) -> None:
        for key in PLAIN_KEYS:
            shelf.put(key, key.encode())
        found = [await shelf.objects.part(Location(shelf.bucket, key), -99) for key in PLAIN_KEYS]
        assert [part.data for part in found] == [key.encode() for key in PLAIN_KEYS]

    async def test_a_glob_lists_the_matching_keys_in_order(self, shelf: Shelf) -> None:
        for key in ("a.csv", "b.csv", "day/2.csv", "day/1.csv", "day/10.csv", "day/1/cam.csv"):
            shelf.put(key, b"x")
        shelf.put("day-2", b"x")
        assert {pattern: await keys_of(shelf, pattern) for pattern in GLOBS} == GLOBS

    async def test_a_listing_tells_size_and_pin(self, shelf: Shelf) -> None:
        etag = shelf.put("one/two", b"12345")
        [listed] = [listed async for listed in shelf.objects.list(shelf.bucket, "one/*")]
        assert listed.location == Location(shelf.bucket, "one/two", etag=f'"{etag}"')
        assert listed.size == 5

    async def test_a_listing_longer_than_a_page_comes_whole(self, shelf: Shelf) -> None:
        keys = [f"many/{number:04}" for number in range(1003)]
        self.fill(shelf, keys)
        assert await keys_of(shelf, "many/*") == keys

    async def test_a_listing_can_be_left(self, shelf: Shelf) -> None:
        for number in range(3):
            shelf.put(f"left/{number}", b"")
        listing: Any = shelf.objects.list(shelf.bucket, "left/*")
        async with aclosing(listing):
            assert (await anext(listing)).location.key == "left/0"

    async def test_listing_a_missing_bucket_is_not_found(self, shelf: Shelf) -> None:
        listing: AsyncIterator[Any] = shelf.objects.list("no-such-bucket", "*")
        with pytest.raises(Poison, match="no-such-bucket") as caught:
            await anext(listing)
        assert caught.value.code == "not_found"
