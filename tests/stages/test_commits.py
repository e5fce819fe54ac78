"""Nothing is committed that is not delivered."""

import asyncio

import orjson

from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, run_to_end, running, until


@virtual_time
async def test_nothing_is_committed_while_a_delivery_report_is_missing() -> None:
    world = World()
    world.sink.hold = True
    world.announce("a.csv", csv(3))
    world.announce("b.csv", csv(3))
    async with running(world):
        await until(lambda: world.published() == 6)
        await asyncio.sleep(30.0)
        assert world.source.commits == []
        world.sink.hold = False
        world.sink.deliver()
        await until(lambda: world.next_offset() == 2)


@virtual_time
async def test_a_dead_letter_without_a_report_holds_the_commit_too() -> None:
    world = World()
    world.announce("missing.csv")
    world.sink.hold = True
    async with running(world):
        await until(lambda: len(world.dead_letters()) == 1)
        await asyncio.sleep(30.0)
        assert world.source.commits == []
        world.sink.hold = False
        assert world.sink.deliver() == 2
        await until(lambda: world.next_offset() == 1)


@virtual_time
async def test_gaps_between_offsets_do_not_stop_the_commits() -> None:
    world = World()
    world.announce("a.csv", csv(1))
    world.source.append(orjson.dumps({"bucket": "b", "key": "a.csv"}), offset=17)
    await run_to_end(world, 18)
    assert world.published() == 2
