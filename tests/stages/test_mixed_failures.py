"""Rows and servers that fail in more than one way, or at some of the requests."""

import asyncio
from collections.abc import Sequence
from itertools import cycle
from random import Random

import pytest

from penstock.core.rows.payload import Payload
from penstock.errors import Doubtful, HungUp, Rejected, WorkerDied
from penstock.ports import Answers
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, running, until
from tests.support.sick_models import row, values_of

HANGS_UP = HungUp("reset")
DOUBTS = Doubtful("model_rejected", "500")
DIES = WorkerDied("Worker died.")


def errors(world: World) -> list[float]:
    """The rows that were rejected; each object has four."""
    rejected = [record for record in world.records() if "error" in record]
    return [4.0 * record["source"]["offset"] + record["row"] for record in rejected]


def announce(world: World, begin: int, end: int) -> None:
    for number in range(begin, end):
        world.announce(f"{number}.csv", csv(4, start=4 * number))


@pytest.mark.parametrize(
    "ways", [(HANGS_UP, DOUBTS), (HANGS_UP, DIES), (DIES, DOUBTS), (HANGS_UP, DOUBTS, DIES)]
)
def test_a_row_at_which_the_server_fails_in_one_way_and_then_in_another_is_found(
    ways: Sequence[Exception],
) -> None:
    way, failures = cycle(ways), 0

    async def fails(payloads: Sequence[Payload]) -> Answers | None:
        nonlocal failures
        await asyncio.sleep(0.01)
        if 402.0 in values_of(payloads):
            failures += 1
            raise next(way)
        return None

    @virtual_time
    async def scenario() -> None:
        world = World()
        world.model.script = fails
        announce(world, 0, 100)
        async with running(world):
            await until(lambda: world.next_offset() == 100)
            announce(world, 100, 105)
            await until(lambda: world.next_offset() == 105, within_s=120.0)
        assert errors(world) == [402.0]

    scenario()
    assert failures < 25


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_a_server_whose_worker_dies_at_any_request_blames_no_row(share: float) -> None:
    random = Random(5)

    async def dies(_: Sequence[Payload]) -> Answers | None:
        await asyncio.sleep(0.01)
        if random.random() < share:
            raise DIES
        return None

    @virtual_time
    async def scenario() -> None:
        world = World()
        announce(world, 0, 100)
        async with running(world):
            await until(lambda: world.next_offset() == 100)
            world.model.script = dies
            for number in range(100, 700):
                announce(world, number, number + 1)
                await asyncio.sleep(2.0)
            await until(lambda: world.next_offset() == 700, within_s=600.0)
        assert errors(world) == []

    scenario()


@pytest.mark.parametrize("begun_s", [0.01 * number for number in range(10)])
def test_when_a_server_that_refused_the_canary_too_is_well_again_no_row_is_blamed(
    begun_s: float,
) -> None:
    is_broken = True

    async def refuses(_: Sequence[Payload]) -> Answers | None:
        await asyncio.sleep(0.02)
        if is_broken:
            raise Rejected("model_rejected", "Prediction failed")
        return None

    @virtual_time
    async def scenario() -> None:
        nonlocal is_broken
        world = World().with_settings(canary=row(-1.0))
        world.model.script = refuses
        announce(world, 0, 1)
        async with running(world):
            await asyncio.sleep(100.0 + begun_s)
            is_broken = False
            await until(lambda: world.next_offset() == 1)
        assert errors(world) == []

    scenario()
