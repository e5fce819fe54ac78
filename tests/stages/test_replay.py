"""A worker with an end and with manners: what a replay is made of."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from penstock.core.routing.model_routes import Routes
from penstock.core.rows.payload import Payload
from penstock.core.window.pace import REST
from penstock.core.window.priorities import ALL_BACKLOG as EVERY_STREAM
from penstock.core.window.priorities import Priorities
from penstock.ports import Commit
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import SETTINGS, World, changed, csv, rows_and_sums, running, until

either_guarantee = pytest.mark.parametrize("exactly_once", [False, True])
ALL_BACKLOG = changed(
    SETTINGS, window=replace(SETTINGS.main.window, priorities=Priorities(EVERY_STREAM))
)


def bounded(begin: int, end: int, *, objects: int = 10, exactly_once: bool = False) -> World:
    """Objects of two rows, of which those from `begin` up to `end` are to be answered."""
    world = World(settings=ALL_BACKLOG, ends={0: end}, exactly_once=exactly_once)
    for number in range(objects):
        world.announce(f"{number}.csv", csv(2, number))
    world.source.committed[0] = Commit(begin)
    return world


def offsets(world: World) -> list[int]:
    return [offset for offset, _, _ in rows_and_sums(world)]


@either_guarantee
@virtual_time
async def test_exactly_the_range_is_answered_and_its_end_is_committed(exactly_once: bool) -> None:
    world = bounded(3, 7, exactly_once=exactly_once)
    async with running(world):
        await until(lambda: world.next_offset() == 7)
        await asyncio.sleep(60.0)
    assert offsets(world) == [3, 3, 4, 4, 5, 5, 6, 6]
    assert world.source.committed[0] == Commit(7)


@either_guarantee
@virtual_time
async def test_an_end_within_a_gap_is_reached(exactly_once: bool) -> None:
    world = bounded(0, 7, objects=3, exactly_once=exactly_once)
    world.source.append(b"{}", offset=12)
    async with running(world):
        await until(lambda: world.next_offset() == 7)
    assert offsets(world) == [0, 0, 1, 1, 2, 2]


@virtual_time
async def test_a_partition_without_an_end_is_not_read() -> None:
    world = World(partitions=2, settings=ALL_BACKLOG, ends={0: 1})
    world.announce("a.csv", csv(1))
    world.announce("b.csv", csv(1), partition=1)
    async with running(world):
        await until(lambda: world.next_offset() == 1)
        await asyncio.sleep(60.0)
    assert (offsets(world), world.records(1), world.next_offset(1)) == ([0], [], 0)


@either_guarantee
@virtual_time
async def test_a_second_start_goes_on_where_the_first_one_stopped(exactly_once: bool) -> None:
    world = bounded(0, 8, exactly_once=exactly_once)
    async with running(world):
        await until(lambda: world.published() > 0)
    first = world.next_offset()
    assert first > 0
    async with running(world):
        await until(lambda: world.next_offset() == 8)
    assert offsets(world) == [offset for offset in range(8) for _ in range(2)]


@virtual_time
async def test_while_it_is_held_nothing_new_is_read() -> None:
    world = bounded(0, 10)
    async with running(world):
        assert world.bounded is not None
        world.bounded.is_held = True
        await asyncio.sleep(600.0)
        assert world.records() == []
        world.bounded.is_held = False
        await until(lambda: world.next_offset() == 10)


@virtual_time
async def test_while_the_neighbour_is_behind_no_row_goes_to_the_model_and_nothing_is_ended() -> (
    None
):
    world = bounded(0, 10)
    async with running(world) as pipeline:
        for _ in range(3_600):  # far beyond the watchdog's patience
            pipeline.wiring.give_way("behind")
            await asyncio.sleep(1.0)
        assert (world.model.calls, world.records()) == ([], [])
        assert pipeline.waiting.rows > 0
        pipeline.wiring.give_way("quiet")
        await until(lambda: world.next_offset() == 10)


@virtual_time
async def test_a_stop_while_the_neighbour_is_behind_finishes_what_was_begun() -> None:
    world = bounded(0, 10)
    async with running(world) as pipeline:
        pipeline.wiring.give_way("behind")
        await until(lambda: pipeline.waiting.rows > 0)
    answered = offsets(world)
    assert answered == [offset for offset in range(world.next_offset()) for _ in range(2)]


@virtual_time
async def test_beside_a_live_neighbour_one_batch_is_called_at_a_time_with_a_rest_after_it() -> None:
    world = World(settings=ALL_BACKLOG, ends={0: 1})
    world.announce("a.csv", csv(640))
    calls: list[tuple[float, float]] = []
    took_s = 0.010

    async def slow(_: Sequence[Payload]) -> None:
        began_s = world.clock.now()
        await asyncio.sleep(took_s)
        calls.append((began_s, world.clock.now()))

    world.model.script = slow
    async with running(world) as pipeline:
        pipeline.wiring.give_way("live")
        await until(lambda: world.next_offset() == 1)
    assert len(calls) == 10
    for (_, ended_s), (began_s, _) in pairwise(calls):
        assert began_s >= ended_s + REST * took_s - 1e-6


@virtual_time
async def test_objects_of_other_streams_are_skipped_and_counted() -> None:
    world = World().with_settings(streams=["site-1/*", "site-2"])
    for number, stream in enumerate(["site-1/a", "site-2", "site-2/b", "site-3", "site-1/c"]):
        world.announce(f"{number}.csv", csv(1, number), stream=stream)
    async with running(world) as pipeline:
        await until(lambda: world.next_offset() == 5)
        assert pipeline.wiring.intake.skipped == 2
    assert offsets(world) == [0, 1, 4]


@virtual_time
async def test_one_model_answers_also_what_names_another_one() -> None:
    world = World().with_settings(routes=Routes(["rows"], (), overrule=True))
    world.announce("a.csv", csv(1), model="of-then")
    async with running(world):
        await until(lambda: world.next_offset() == 1)
    assert [record["model"] for record in world.records()] == ["rows"]
    assert world.records()[0]["prediction"] is not None
