"""A worker that died over a case is started again, and goes on: no case fails two starts in a row.

The first life publishes and dies before anything is acknowledged; the second begins with the same
message, alone, and must move the offset.
"""

import asyncio
from contextlib import suppress

import pytest

from penstock.tools.simulation.virtual_time import virtual_time
from tests.corpus.heavy import Heavy
from tests.corpus.measuring import small, world_of
from tests.support.pipelines import running, until

FIRST_LIFE_S = 2.0
CASES = list(small())


@pytest.mark.parametrize("exactly_once", [False, True], ids=["at least once", "exactly once"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@virtual_time
async def test_the_second_start_moves_the_offset(case: Heavy, exactly_once: bool) -> None:
    world = world_of(case, "well")
    world.exactly_once = exactly_once
    drain_s = world.settings.times.drain_s
    world.with_settings(drain_s=0.0)
    world.sink.hold = True
    with suppress(TimeoutError):
        async with asyncio.timeout(FIRST_LIFE_S), running(world):
            await asyncio.Event().wait()
    world.sink.hold = False
    world.with_settings(drain_s=drain_s)
    async with running(world):
        await until(lambda: world.next_offset() == len(world.source.records[0]), within_s=600)
