"""A partition that is handed back is let go of: no producer, task or batch of it is left over."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from penstock.errors import Transient
from penstock.pipeline.life import Pipeline
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.memory import MemoryPassage, MemoryProducers
from tests.support.pipelines import World, csv, running, until

# As long as a real outlet takes while Kafka is in trouble: 3 s to take back, 2 s to stop.
CLOSE_S = (3.0, 2.0)
BEFORE = 40


class SlowPassage:
    """Closes as a real one does while the broker is silent."""

    def __init__(self, passage: MemoryPassage) -> None:
        self.publish = passage.publish
        self._close = passage.close

    async def close(self) -> None:
        try:
            await asyncio.sleep(CLOSE_S[0])
        finally:
            await asyncio.sleep(CLOSE_S[1])
            await self._close()


class SlowProducers(MemoryProducers):
    async def open(self, number: int) -> SlowPassage:  # type: ignore[override]
        return SlowPassage(await super().open(number))


@asynccontextmanager
async def troubled() -> AsyncIterator[tuple[World, Pipeline, asyncio.Task[None]]]:
    """Two partitions exactly once. The transaction of one has failed and its producer closes; that
    of the other will fail meanwhile.
    """
    broken: list[int] = []

    world = World(partitions=2, exactly_once=True)
    world.producers = SlowProducers(world.source, world.sink)
    for number in range(BEFORE):
        for partition in (0, 1):
            world.announce(f"{partition}-{number}.csv", csv(10), partition=partition)
    pipeline = world.pipeline()
    task = asyncio.create_task(pipeline.run())
    await until(lambda: all(world.next_offset(partition) == BEFORE for partition in (0, 1)))

    async def stumble(partition: int) -> None:
        await asyncio.sleep(float(partition))
        broken.append(partition)
        raise Transient("Kafka stumbles")

    world.producers.before_commit = stumble
    for partition in (0, 1):
        world.announce(f"{partition}-last.csv", csv(10), partition=partition)
        await asyncio.sleep(0.25)
    assert broken == [0]
    yield world, pipeline, task


@virtual_time
async def test_a_partition_that_fails_while_another_closes_is_handed_back_too() -> None:
    async with troubled() as (world, pipeline, task):
        await world.source.revoke([0, 1])
        world.producers.before_commit = None
        begun = world.producers.begun
        await asyncio.sleep(600)
        assert world.producers.begun == begun, "it publishes beside the new owner"
        await world.source.assign([0, 1])
        await until(lambda: all(world.next_offset(number) == BEFORE + 1 for number in (0, 1)))
        pipeline.stop()
        await task


@virtual_time
async def test_a_stop_ends_whatever_fails_meanwhile() -> None:
    async with troubled() as (_, pipeline, task):
        pipeline.stop()
        async with asyncio.timeout(60):
            await task
        assert not pipeline.wiring.lanes


async def until_the_drain_is_out_of_time(
    end: Callable[[World, Pipeline], Awaitable[None]],
) -> World:
    """The broker accepts a batch, and acknowledges nothing."""
    world = World().with_settings(drain_s=1.0)
    world.sink.hold = True
    world.announce("late.csv", csv(10))
    async with running(world) as pipeline:
        await until(lambda: bool(world.records()))
        await end(world, pipeline)
    return world


@virtual_time
async def test_a_batch_nobody_acknowledged_is_not_sent_after_the_partition_was_handed_back() -> (
    None
):
    async def end(world: World, pipeline: Pipeline) -> None:
        await world.source.revoke([0])
        assert world.sink.forgotten == 1

    world = await until_the_drain_is_out_of_time(end)
    assert world.next_offset() == 0


@virtual_time
async def test_a_batch_nobody_acknowledged_is_not_sent_after_a_stop() -> None:
    async def end(world: World, pipeline: Pipeline) -> None:
        pipeline.stop()

    world = await until_the_drain_is_out_of_time(end)
    assert world.sink.forgotten == 1


@virtual_time
async def test_a_partition_that_begins_again_alone_leaves_the_others_their_batches() -> None:
    world = World(partitions=2).with_settings(drain_s=1.0)
    world.sink.hold = True
    for partition in (0, 1):
        world.announce(f"{partition}.csv", csv(10), partition=partition)
    async with running(world):
        await until(lambda: bool(world.records(0) and world.records(1)))
        await world.source.revoke([0])
        assert world.sink.forgotten == 0
        world.sink.deliver()
        await until(lambda: world.next_offset(1) == 1)
