"""Topics that change under a running worker: partitions added, offsets that are no records."""

import asyncio

import pytest

from penstock.core.progress.line_stop import LineLimits
from penstock.errors import EXIT_USAGE, Fatal
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.partitions import P0
from tests.support.pipelines import World, csv, running, until


@virtual_time
async def test_a_line_that_stops_ends_no_worker_whose_topic_has_grown() -> None:
    world = World(partitions=2).with_settings(input_partitions=1, line=LineLimits(0.0, 2))
    for number in range(5):
        world.announce(f"missing-{number}.csv", partition=0, stream="bad")
    async with running(world) as pipeline:
        await until(lambda: bool(pipeline.stopped))
        for number in range(5):
            world.announce(f"{number}.csv", csv(10), partition=1, stream="good")
        await until(lambda: world.next_offset(1) == 5)


@virtual_time
async def test_the_last_of_them_that_stops_ends_it() -> None:
    world = World(partitions=2).with_settings(input_partitions=1, line=LineLimits(0.0, 2))
    for partition in (0, 1):
        for number in range(5):
            world.announce(f"missing-{number}.csv", partition=partition, stream="bad")
    with pytest.raises(Fatal, match="every line is stopped"):
        await world.pipeline().run()


async def grown(output_partitions: int) -> World:
    """The input topic has two partitions by now; when the worker started, both topics had one."""
    world = World(partitions=2).with_settings(input_partitions=1, output_partitions=1)
    world.sink = type(world.sink)(partitions=output_partitions)
    world.announce("a.csv", csv(3), partition=1)
    async with asyncio.timeout(60.0), running(world):
        await until(lambda: world.next_offset(1) == 1)
    return world


@virtual_time
async def test_an_output_topic_that_did_not_grow_with_the_input_is_told_and_how_to_mend_it() -> (
    None
):
    with pytest.raises(ExceptionGroup) as caught:
        await grown(1)
    (failure,) = leaves(caught.value)
    assert isinstance(failure, Fatal)
    assert failure.exit_code == EXIT_USAGE
    assert "predictions has 1 partitions, refs has 2 or more by now" in str(failure)


@virtual_time
async def test_an_output_topic_that_grew_too_takes_the_answers() -> None:
    world = await grown(2)
    assert world.published(1) == 3


@virtual_time
async def test_offsets_behind_the_last_record_are_nothing_to_wait_for() -> None:
    """As after a producer's transaction, whose end has an offset of its own."""
    world = World()
    world.announce("a.csv", csv(3))
    world.source.gaps[0] = 2
    async with running(world) as pipeline:
        await until(lambda: world.next_offset() == 2)
        ends = await world.source.end_offsets()
        assert pipeline.wiring.lanes[P0].account.committed.next_offset == ends[P0]
        world.source.append(b"{}", offset=2)
        await until(lambda: world.next_offset() == 3)
    assert [record["source"]["offset"] for record in world.records()] == [0, 0, 0, 2]


@virtual_time
async def test_what_is_owed_is_never_passed_over() -> None:
    world = World()
    world.announce("a.csv", csv(3))
    world.source.gaps[0] = 9
    world.sink.hold = True
    async with running(world):
        await until(lambda: bool(world.records()))
        await asyncio.sleep(5.0)
        assert world.next_offset() == 0
        world.sink.deliver()
        await until(lambda: world.next_offset() == 9)


def leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]
