"""A region is cut off and comes back: nothing is lost, order is kept, nobody waits for it long."""

import asyncio
from typing import Any, cast

from penstock.adapters.memory import MemoryObjects
from penstock.adapters.stores.replicas import LOOK_AGAIN_S, PATIENCE_S, Copy, ReplicatedObjects
from penstock.errors import Transient, Unreachable
from penstock.ports import Location
from penstock.tools.simulation.virtual_time import virtual_time
from tests.stages.test_ranged import ROWS, parquet
from tests.support.pipelines import BUCKET, World, csv, rows_and_sums, running, until

OBJECTS = 60


def region_of(world: World) -> tuple[MemoryObjects, MemoryObjects]:
    """What the world has is in another region, too, and is read from there while ours is away."""
    ours, theirs = world.objects, MemoryObjects()
    world.objects = cast(Any, ReplicatedObjects([Copy("eu", ours), Copy("us", theirs)]))
    return ours, theirs


def announced(world: World, ours: MemoryObjects, theirs: MemoryObjects, number: int) -> None:
    data = csv(20, start=number)
    for objects in (ours, theirs):
        objects.put(BUCKET, f"{number}.csv", data)
    world.announce(f"{number}.csv", timestamp_ms=0)


@virtual_time
async def test_a_region_that_is_cut_off_and_comes_back_costs_no_row_and_no_order() -> None:
    world = World()
    ours, theirs = region_of(world)

    async def cut_off(location: Location) -> None:
        now_s = world.clock.now()
        if 1.0 <= now_s < 20.0:
            await asyncio.Event().wait()  # packets are dropped, nobody refuses
        if 20.0 <= now_s < 25.0:
            raise Unreachable("refused")

    ours.on_open = cut_off
    async with running(world):
        for number in range(OBJECTS):
            announced(world, ours, theirs, number)
            offset = number + 1
            began_s = world.clock.now()
            await until(lambda offset=offset: world.next_offset() >= offset)  # type: ignore[misc]
            # A commit comes every 0.5 s; all else is the time until a replica was asked.
            assert world.clock.now() - began_s <= PATIENCE_S + 1.0
            await asyncio.sleep(0.2)
    assert rows_and_sums(world) == [
        (number, row, 2.0 * (number + row)) for number in range(OBJECTS) for row in range(20)
    ]
    assert world.dead_letters() == []
    assert world.clock.now() > 25.0 + LOOK_AGAIN_S
    assert theirs.opened
    assert ours.opened[-1].key == f"{OBJECTS - 1}.csv"


def breaks_and_goes(region: MemoryObjects) -> None:
    """The first transfer of `0.csv` breaks, and after that the region does not answer."""

    async def gone_after_the_first(location: Location) -> None:
        if len(region.opened) > 1:
            raise Unreachable("refused")

    region.on_open = gone_after_the_first
    region.faults[BUCKET, "0.csv"].append(Transient("the transfer broke"))


@virtual_time
async def test_a_transfer_that_breaks_with_its_region_goes_on_in_the_other() -> None:
    world = World()
    ours, theirs = region_of(world)
    ours.chunk_bytes = 50
    announced(world, ours, theirs, 0)
    breaks_and_goes(ours)
    async with running(world):
        await until(lambda: world.next_offset() == 1)
    assert rows_and_sums(world) == [(0, row, 2.0 * row) for row in range(20)]
    assert theirs.opened[-1].etag == '"1"'


@virtual_time
async def test_a_table_whose_region_goes_while_it_is_read_goes_on_in_the_other() -> None:
    """The other region has the same bytes under another version id."""
    world = World()
    ours, theirs = region_of(world)
    ours.versioned, data = True, parquet()
    theirs.put(BUCKET, "0.parquet", data)
    ours.put(BUCKET, "0.parquet", data)
    world.announce("0.parquet", timestamp_ms=0)

    async def gone_after_the_tail(location: Location) -> None:
        if len(ours.opened) > 1:
            raise Unreachable("refused")

    ours.on_open = gone_after_the_tail
    async with running(world):
        await until(lambda: world.next_offset() == 1)
    assert [record["row"] for record in world.records()] == [*range(ROWS)]
    assert len(theirs.opened) > 1


@virtual_time
async def test_other_bytes_in_the_other_region_are_changed() -> None:
    world = World()
    ours, theirs = region_of(world)
    ours.chunk_bytes = 50
    announced(world, ours, theirs, 0)
    theirs.put(BUCKET, "0.csv", csv(20, start=7))
    breaks_and_goes(ours)
    async with running(world):
        await until(lambda: world.next_offset() == 1)
    assert world.records()[-1]["error"]["code"] == "changed"
    rows = rows_and_sums_until_the_marker(world)
    assert rows == [(row, 2.0 * row) for row in range(len(rows))]


def rows_and_sums_until_the_marker(world: World) -> list[tuple[int, float]]:
    return [
        (record["row"], record["prediction"]["sum"])
        for record in world.records()
        if record["row"] is not None
    ]
