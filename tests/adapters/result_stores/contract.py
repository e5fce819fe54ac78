"""What every store of result objects keeps; a subclass brings a `shelf`."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

from penstock.errors import Transient
from penstock.ports import Location, ResultStore

# More than one part of any adapter.
LONG = 20 << 20
CHUNK = b"0123456789abcdef" * 65_536  # 1 MiB

WEIRD = "day=1/ü +&?#*/100%25 of it/x.jsonl"


class Shelf(NamedTuple):
    """The results of this worker and those `of_another`. `read` what is under a name, None if
    nothing is; `begun`: what is there of uploads that were not ended.
    """

    results: ResultStore
    of_another: ResultStore
    bucket: str
    read: Callable[[str], Awaitable[bytes | None]]
    begun: Callable[[str], Awaitable[int]]

    def at(self, key: str) -> Location:
        return Location(self.bucket, key)


class ResultsContract:
    async def test_nothing_is_seen_before_it_is_complete(self, shelf: Shelf) -> None:
        upload = shelf.results.begin(shelf.at("a/b.jsonl"))
        await upload.write(b"one\n")
        await upload.write(b"two\n")
        assert await shelf.read("a/b.jsonl") is None
        stored = await upload.complete()
        assert stored.version
        assert await shelf.read("a/b.jsonl") == b"one\ntwo\n"
        assert await shelf.begun("a/b.jsonl") == 0

    async def test_one_is_there_once_it_is_complete(self, shelf: Shelf) -> None:
        for key in ("there", WEIRD):
            upload = shelf.results.begin(shelf.at(key))
            await upload.write(b"x")
            assert not await shelf.results.has(shelf.at(key))
            await upload.complete()
            assert await shelf.results.has(shelf.at(key))
            assert not await shelf.results.has(shelf.at(f"{key}.not"))

    async def test_an_object_without_bytes_is_one(self, shelf: Shelf) -> None:
        await shelf.results.begin(shelf.at("empty")).complete()
        assert await shelf.read("empty") == b""

    async def test_a_long_one_is_whole_and_in_order(self, shelf: Shelf) -> None:
        upload = shelf.results.begin(shelf.at("long"))
        for number in range(LONG // len(CHUNK)):
            await upload.write(b"%d" % (number % 10) + CHUNK[1:])
        assert await shelf.read("long") is None
        await upload.complete()
        data = await shelf.read("long")
        assert data is not None
        starts = data[:: len(CHUNK)]
        assert (len(data), starts) == (LONG, b"01234567890123456789")

    async def test_a_repeat_takes_the_place_of_what_was_there(self, shelf: Shelf) -> None:
        for text in (b"before", b"after"):
            upload = shelf.results.begin(shelf.at("same"))
            await upload.write(text)
            await upload.complete()
        assert await shelf.read("same") == b"after"

    async def test_what_is_given_up_leaves_what_was_there(self, shelf: Shelf) -> None:
        before = shelf.results.begin(shelf.at("same"))
        await before.write(b"before")
        await before.complete()
        for chunks in (1, LONG // len(CHUNK)):
            upload = shelf.results.begin(shelf.at("same"))
            for _ in range(chunks):
                await upload.write(CHUNK)
            await upload.abort()
            await upload.abort()
        assert await shelf.read("same") == b"before"
        assert await shelf.begun("same") == 0

    async def test_what_a_killed_worker_began_goes_with_the_next_try(self, shelf: Shelf) -> None:
        killed = shelf.of_another.begin(shelf.at("killed"))
        for _ in range(LONG // len(CHUNK)):
            await killed.write(CHUNK)
        upload = shelf.results.begin(shelf.at("killed"))
        for _ in range(LONG // len(CHUNK)):
            await upload.write(CHUNK)
        await upload.complete()
        data = await shelf.read("killed")
        assert data is not None
        assert len(data) == LONG
        assert await shelf.begun("killed") == 0
        await killed.abort()

    async def test_a_frozen_worker_does_not_spoil_what_its_successor_writes(
        self, shelf: Shelf
    ) -> None:
        frozen = shelf.of_another.begin(shelf.at("frozen"))
        for _ in range(LONG // len(CHUNK)):
            await frozen.write(CHUNK)
        upload = shelf.results.begin(shelf.at("frozen"))
        for _ in range(LONG // len(CHUNK) - 1):
            await upload.write(CHUNK)
        with suppress(Transient):
            await frozen.complete()
        data = await shelf.read("frozen")
        assert data is None or len(data) == LONG
        await upload.complete()
        data = await shelf.read("frozen")
        assert data is not None
        assert len(data) == LONG - len(CHUNK)
        await frozen.abort()

    async def test_two_that_write_one_name_do_not_disturb_each_other(self, shelf: Shelf) -> None:
        """As where an object is announced in two partitions."""
        first, second = (shelf.results.begin(shelf.at("twice")) for _ in range(2))
        for upload in (first, second):
            for _ in range(LONG // len(CHUNK)):
                await upload.write(CHUNK)
        for _ in range(LONG // len(CHUNK)):
            await first.write(CHUNK)
        await second.complete()
        await first.complete()
        data = await shelf.read("twice")
        assert data is not None
        assert len(data) == 2 * LONG
        assert await shelf.begun("twice") == 0

    async def test_many_that_end_at_once_are_one(self, shelf: Shelf) -> None:
        """As where one message names an object several times."""

        async def write() -> None:
            upload = shelf.results.begin(shelf.at("many"))
            await upload.write(b"same")
            await upload.complete()

        await asyncio.gather(*(write() for _ in range(16)))
        assert await shelf.read("many") == b"same"
        assert await shelf.begun("many") == 0

    async def test_a_name_is_taken_as_it_is(self, shelf: Shelf) -> None:
        upload = shelf.results.begin(shelf.at(WEIRD))
        await upload.write(b"x")
        await upload.complete()
        assert await shelf.read(WEIRD) == b"x"
