"""Streams share the model's calls: a batch is of all that wait, and a huge object leaves room."""

import asyncio
from collections.abc import Sequence

from penstock.core.rows.payload import Payload
from penstock.core.window.priorities import Priorities, StreamPriority
from penstock.core.window.window import WindowLimits
from penstock.ports import Answers, Location
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, run_to_end, running, until


@virtual_time
async def test_rows_of_several_partitions_and_streams_share_a_model_call() -> None:
    world = World(partitions=4)
    for number in range(8):
        world.announce(f"{number}.csv", csv(2), partition=number % 4)
    async with running(world):
        await until(lambda: all(world.next_offset(number) == 2 for number in range(4)))
    assert [sum(payload.rows for payload in call) for call in world.model.calls] == [16]


@virtual_time
async def test_a_lone_row_is_sent_within_the_wait() -> None:
    world = World().with_settings(window=WindowLimits(512, 1 << 20, 0.010))
    async with running(world):
        await asyncio.sleep(1.0)
        world.announce("a.csv", csv(1))
        began_s = world.clock.now()
        await until(lambda: len(world.model.calls) == 1)
        assert world.clock.now() - began_s <= 0.012


@virtual_time
async def test_never_more_calls_than_allowed_are_in_flight() -> None:
    world = World().with_settings(window=WindowLimits(4, 1 << 20, 0.0), callers=3)
    for number in range(10):
        world.announce(f"{number}.csv", csv(20))

    async def slow(payloads: Sequence[Payload]) -> Answers | None:
        await asyncio.sleep(0.1)
        return None

    world.model.script = slow
    await run_to_end(world, 10)
    assert world.model.most_in_flight == 3


@virtual_time
async def test_partitions_take_turns_to_fetch_by_the_weights_of_the_streams_that_are_next() -> None:
    priorities = Priorities([("urgent", StreamPriority(weight=3))])
    world = World(partitions=3).with_settings(
        fetchers=1, window=WindowLimits(64, 1 << 20, 0.01, priorities=priorities)
    )

    async def takes_10_ms(_: Location) -> None:
        await asyncio.sleep(0.01)

    world.objects.on_open = takes_10_ms
    for number in range(12):
        for partition, stream in enumerate(("urgent", "a", "b")):
            world.announce(f"{stream}-{number}.csv", csv(1), stream=stream, partition=partition)
    async with running(world):
        await until(lambda: all(world.next_offset(number) == 12 for number in range(3)))
    keys = [location.key.split("-")[0] for location in world.objects.opened]
    assert [keys[:15].count(stream) for stream in ("urgent", "a", "b")] == [9, 3, 3]
    assert keys[20:] == 8 * ["a", "b"]


@virtual_time
async def test_a_huge_object_keeps_no_small_one_from_being_answered() -> None:
    world = World(partitions=2).with_settings(buffer_bytes=1 << 26)
    world.announce("huge.csv", csv(100_000), partition=0)

    async def slow(payloads: Sequence[Payload]) -> Answers | None:
        await asyncio.sleep(0.010)
        return None

    world.model.script = slow
    async with running(world):
        await until(lambda: len(world.model.calls) > 100)
        began_s = world.clock.now()
        for number in range(50):
            world.announce(f"{number}.csv", csv(8), partition=1)
        await until(lambda: world.published(1) == 400)
        assert world.clock.now() - began_s < 0.3
        await until(lambda: world.next_offset(0) == 1)


@virtual_time
async def test_a_huge_object_lets_live_small_ones_pass_and_gets_its_share() -> None:
    world = World(partitions=2)
    world.objects.chunk_bytes = 4096

    async def takes_5_ms(_: Sequence[Payload]) -> None:
        await asyncio.sleep(0.005)

    world.model.script = takes_5_ms
    async with running(world):
        for number in range(100):
            world.announce(f"{number}.csv", csv(8), timestamp_ms=world.clock.wall_ms())
            if number == 10:
                world.announce("huge.csv", csv(60_000), partition=1)
            await asyncio.sleep(0.05)
        # Batches of 64 rows, one in 20 ms: 5 ms of call and a rest of 15; alone it would be done.
        assert 8_192 + 10_000 < world.published(1) < 8_192 + 20_000
        await until(lambda: world.next_offset(1) == 1, within_s=5.0)
    assert world.published(0) == 800
