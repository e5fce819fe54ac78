"""While every decoder hangs, small objects of text go on at once: they need none.

All on virtual time, of which the decoders take as much as they like: nothing is measured.
"""

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import orjson
import pytest

from penstock.adapters.memory import MemoryObjects
from penstock.decoders.protocol import Decoder, Said, Task
from penstock.decoders.simulated import DecodersAtHand
from penstock.formats.pictures.pixels import PictureOptions, PixelOptions
from penstock.formats.runs import RowOptions
from penstock.ports import Location, ObjectBody
from penstock.process.asyncio_additions import LONG_S, Places
from penstock.tools.simulation.virtual_time import virtual_time
from tests.formats.picture_bodies import png
from tests.support.pipelines import World, csv, running, until

DECODERS = 2
# Known by the name, by the size, by the first bytes.
KINDS = {
    "ranged": ("parquet", b"PAR1" * 200),
    "large": ("csv", csv(50_000)),
    "packed": ("csv", gzip.compress(csv(50_000))),
    "picture": ("png", png(2, 1)),
}
ROWS = 200
LARGE = csv(ROWS)  # for a decoder
_PIXELS = RowOptions(own=(PictureOptions(image=PixelOptions(2, 1)),))
# Of virtual time: for the window and the test's own looking.
MOST_WAIT_S = 0.1


class _Hung:
    async def turn(self, said: Task | bytes) -> Said:
        await asyncio.Event().wait()
        raise AssertionError


class HungDecoders:
    """As many as there are places; none ever answers."""

    def __init__(self) -> None:
        self._places = Places(DECODERS)

    @property
    def is_wanted(self) -> bool:
        return self._places.is_wanted

    @property
    def used(self) -> float:
        return self._places.used

    @asynccontextmanager
    async def lent(
        self,
        stream: str,
        is_head: Callable[[], bool],
        review: Callable[[], object],
        *,
        new: bool = False,
        task: Task | None = None,
    ) -> AsyncIterator[Decoder]:
        async with self._places.one(stream, is_head, review):
            yield _Hung()

    def is_proven(self, stream: str) -> bool:
        return False

    async def aclose(self) -> None:
        return


class HungForStrangers(DecodersAtHand):
    """Only objects of one stream can be read."""

    def __init__(self) -> None:
        super().__init__(DECODERS, is_proven=self.is_proven)

    def is_proven(self, stream: str) -> bool:
        return stream == "proven"

    @asynccontextmanager
    async def lent(
        self,
        stream: str,
        is_head: Callable[[], bool],
        review: Callable[[], object],
        *,
        new: bool = False,
        task: Task | None = None,
    ) -> AsyncIterator[Decoder]:
        async with super().lent(stream, is_head, review, new=new, task=task) as decoder:
            yield decoder if self.is_proven(stream) else _Hung()


@pytest.mark.parametrize("hung", [DECODERS, 60])
@virtual_time
async def test_a_stream_that_was_read_well_goes_on_though_those_of_strangers_hold_all_seats(
    hung: int,
) -> None:
    world = World(partitions=2, decoders=HungForStrangers()).with_settings(drain_s=0.0)
    assert DECODERS < world.settings.objects.fetchers < 60
    for number in range(hung):
        world.announce(f"{number}.csv", LARGE, stream=f"strange {number}")
    async with running(world):
        await asyncio.sleep(1)
        for number in range(1, 21):
            world.announce(f"{number}.csv", LARGE, partition=1, stream="proven")
            await until(partial(_has_rows, world, ROWS * number), within_s=2 * LONG_S)
    assert not world.records(0)


def _has_rows(world: World, rows: int) -> bool:
    return world.published(1) == rows


@pytest.mark.parametrize("hung", [1, DECODERS, 60])
@pytest.mark.parametrize("kind", KINDS)
@virtual_time
async def test_streams_of_small_text_go_on_beside_them(kind: str, hung: int) -> None:
    ending, data = KINDS[kind]
    rows = _PIXELS if kind == "picture" else RowOptions()
    world = World(partitions=2, decoders=HungDecoders()).with_settings(drain_s=0.0, rows=rows)
    for number in range(hung):
        world.announce(f"{number}.{ending}", data)
    async with running(world):
        await asyncio.sleep(1)
        for number in range(1, 21):
            world.announce(f"{number}.csv", csv(3), partition=1)
            value = orjson.dumps({"inline": [[number, number]], "stream": "s"})
            world.source.append(value, partition=1)
            await until(partial(_has_rows, world, 4 * number), within_s=MOST_WAIT_S)
    assert not world.records(0)


class CountingObjects(MemoryObjects):
    """How many transfers were open at most."""

    def __init__(self) -> None:
        super().__init__()
        self.now_open = self.most_open = 0

    async def open(self, location: Location) -> ObjectBody:  # type: ignore[override]
        body = await super().open(location)
        self.now_open += 1
        self.most_open = max(self.most_open, self.now_open)
        return _Counted(self, body)


class _Counted:
    def __init__(self, objects: CountingObjects, body: ObjectBody) -> None:
        self.size, self.etag, self.version_id = body.size, body.etag, body.version_id
        self._objects: CountingObjects | None = objects
        self._body = body

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._body)

    async def aclose(self) -> None:
        if self._objects is not None:
            self._objects.now_open -= 1
            self._objects = None
        await self._body.aclose()


@virtual_time
async def test_those_that_wait_for_them_hold_no_more_transfers_than_there_are_fetchers() -> None:
    objects = CountingObjects()
    world = World(objects=objects, decoders=HungDecoders()).with_settings(drain_s=0.0)
    fetchers = world.settings.objects.fetchers
    data = csv(50_000)
    for number in range(60):
        world.announce(f"{number}.csv", data)
    async with running(world):
        await asyncio.sleep(1)
        assert len(objects.opened) == 60
        assert objects.now_open == fetchers
        assert objects.most_open <= 2 * fetchers
