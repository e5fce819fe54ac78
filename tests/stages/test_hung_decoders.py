"""While every decoder hangs, small objects of text go on at once: they need none.

All on virtual time, of which the decoders take as much as they like: nothing is measured.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest

from consumers.decoders.places import Places
from consumers.decoders.task import Decoder, Said, Task
from consumers.testing.virtual_time import virtual_time
from tests.support.pipelines import World, csv, running, until

DECODERS = 2
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

    @asynccontextmanager
    async def lent(
        self, is_head: Callable[[], bool], review: Callable[[], object], *, new: bool = False
    ) -> AsyncIterator[Decoder]:
        async with self._places.one(is_head, review):
            yield _Hung()

    async def aclose(self) -> None:
        return


def _has_rows(world: World, rows: int) -> bool:
    return len(world.records(1)) == rows


@pytest.mark.parametrize("hung", [1, DECODERS, 10])
@virtual_time
async def test_streams_of_small_text_go_on_beside_them(hung: int) -> None:
    world = World(partitions=2, decoders=HungDecoders()).with_settings(drain_s=0.0)
    for number in range(hung):
        world.announce(f"{number}.parquet", b"PAR1" * 200)
    async with running(world):
        await asyncio.sleep(1)
        for number in range(1, 21):
            world.announce(f"{number}.csv", csv(3), partition=1)
            await until(partial(_has_rows, world, 3 * number), within_s=MOST_WAIT_S)
    assert not world.records(0)
