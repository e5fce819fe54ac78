"""A message that names many thousand objects: others have turns of the event loop meanwhile, as
heartbeats and the rows of other streams need them. Counted in turns, not in time.
"""

import asyncio
from collections.abc import Callable

import orjson
import pytest

from penstock.lane.lane import Lane
from penstock.messages.codec import PIECE_OBJECTS
from penstock.pipeline.life import Pipeline
from penstock.ports import Where
from penstock.stages.encode import PIECE_RELEASES
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, running, until

OBJECTS = 5_000
MOST_TURNS = 10 * OBJECTS
P0 = Where("refs", 0)


def announce(world: World) -> None:
    """None of the objects may be read, so all are answered at once."""
    objects = [{"bucket": "b", "key": str(number)} for number in range(OBJECTS)]
    world.source.append(orjson.dumps({"objects": objects}), partition=0)


def world() -> World:
    return World(allow=["b/allowed"]).with_settings(drain_s=0.0, buffer_bytes=256 << 20)


def lane_of(pipeline: Pipeline) -> Lane:
    return pipeline.wiring.lanes[P0]


async def turns_until(condition: Callable[[], object]) -> int:
    for turn in range(MOST_TURNS):
        if condition():
            return turn
        await asyncio.sleep(0)
    raise AssertionError


@virtual_time
async def test_it_is_decoded_and_answered_in_pieces() -> None:
    there = world()
    async with running(there) as pipeline:
        await asyncio.sleep(1)
        lane = lane_of(pipeline)
        announce(there)
        await turns_until(lambda: lane.undecoded_ms is not None)
        assert await turns_until(lambda: lane.ledger.owed) >= 2 * (OBJECTS // PIECE_OBJECTS - 1)
        assert lane.undecoded_ms is None
        published = there.published
        assert await turns_until(lambda: published() == OBJECTS) >= OBJECTS // PIECE_RELEASES // 2
        await until(lambda: there.next_offset() == 1)
        records = there.records()
    assert [record["object"]["key"] for record in records] == [*map(str, range(OBJECTS))]
    assert not pipeline.wiring.budget.spent_bytes


@pytest.mark.parametrize("begun", [False, True])
@virtual_time
async def test_what_is_charged_for_pieces_is_given_back(begun: bool) -> None:
    there = world()
    async with running(there) as pipeline:
        await asyncio.sleep(1)
        lane, budget = lane_of(pipeline), pipeline.wiring.budget
        announce(there)
        there.announce("allowed", csv(1))
        await turns_until(lambda: lane.undecoded_ms is not None)
        charged = budget.messages_bytes
        assert charged > 16 * 50_000
        if begun:
            # The partition goes: what was decoded is dropped, and nothing of it is answered.
            lane.drain()
            lane.close()
            assert not budget.spent_bytes
            await asyncio.sleep(1)
            assert not lane.ledger.owed
            assert not there.published()
        else:
            await until(lambda: there.next_offset() == 2)
            assert not budget.spent_bytes


@virtual_time
async def test_a_lane_that_ends_while_answers_are_encoded_publishes_none_of_them() -> None:
    there = world()
    async with running(there) as pipeline:
        await asyncio.sleep(1)
        lane = lane_of(pipeline)
        announce(there)
        await turns_until(lambda: lane.is_publishing)
        before = there.published()
        lane.close()
        await asyncio.sleep(1)
        assert there.published() == before < OBJECTS
