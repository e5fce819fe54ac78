"""A worker that owes answers and gets nowhere for 300 s ends, and tells who holds what."""

import asyncio
from collections.abc import Sequence

import pytest

from penstock.core.progress.line_stop import LineLimits
from penstock.core.rows.payload import Payload
from penstock.errors import Fatal, Overloaded
from penstock.ports import Answers
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, running, until


async def fails_with(world: World, words: str) -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        async with running(world):
            await until(lambda: False, within_s=400.0)
    assert caught.group_contains(Fatal, match=words)


async def never(*_: object) -> None:
    await asyncio.Event().wait()


async def hangs(_: Sequence[Payload]) -> Answers | None:
    await never()
    return None


@virtual_time
async def test_a_model_call_that_hangs_ends_the_worker_with_3() -> None:
    world = World(partitions=2)
    world.announce("a.csv", csv(3), partition=1)
    world.model.script = hangs
    await fails_with(world, r"refs/1 stands still since 3\d\d s.*: predict holds offset 0")
    assert 300.0 <= world.clock.now() < 400.0


@virtual_time
async def test_a_store_that_hangs_is_told_as_such() -> None:
    world = World()
    world.announce("a.csv", csv(3))
    world.objects.on_open = never
    await fails_with(world, "download holds offset 0")


@virtual_time
async def test_a_delivery_that_hangs_is_told_as_such() -> None:
    world = World()
    world.announce("a.csv", csv(3))
    world.sink.hold = True
    await fails_with(world, "publish holds offset 0")


@virtual_time
async def test_a_commit_that_hangs_is_told_as_such() -> None:
    world = World()
    world.announce("a.csv", csv(3))
    world.source.on_commit = never
    await fails_with(world, "settle holds offset 0")


@virtual_time
async def test_a_worker_without_work_lives_on() -> None:
    world = World()
    async with running(world):
        await asyncio.sleep(700.0)


@virtual_time
async def test_a_server_that_is_overloaded_for_long_is_no_standstill() -> None:
    world = World()
    world.announce("a.csv", csv(3))

    async def overloaded_for_long(_: Sequence[Payload]) -> Answers | None:
        if world.clock.now() < 700.0:
            raise Overloaded("503")
        return None

    world.model.script = overloaded_for_long
    async with running(world):
        await until(lambda: world.next_offset() == 1, within_s=1_000.0)


@virtual_time
async def test_a_stopped_line_is_no_standstill() -> None:
    world = World(partitions=2).with_settings(line=LineLimits(0.0, 3))
    for number in range(10):
        world.announce(f"missing-{number}.csv", stream="bad")
    async with running(world) as pipeline:
        await until(lambda: len(pipeline.stopped) == 1)
        await asyncio.sleep(700.0)
