"""What is held at a time has a limit, whatever is slow."""

import asyncio
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import orjson

from penstock.calls.unexpected_errors import Guards
from penstock.core.rows.payload import Payload
from penstock.core.window.window import WindowLimits
from penstock.formats.base.reading import Turn
from penstock.ports import Answers
from penstock.simulation.virtual_time import VirtualClock, virtual_time
from penstock.stages.expand import InlineReading
from penstock.telemetry.worker import Telemetry
from tests.support.pipelines import World, csv, running, until


@virtual_time
async def test_downloads_go_on_while_the_model_is_busy() -> None:
    world = World().with_settings(window=WindowLimits(4, 1 << 20, 0.0), callers=1)
    release = asyncio.Event()

    async def stuck(payloads: Sequence[Payload]) -> Answers | None:
        await release.wait()
        return None

    world.model.script = stuck
    for number in range(10):
        world.announce(f"{number}.csv", csv(4))
    async with running(world):
        await until(lambda: len(world.objects.opened) == 10)
        assert len(world.model.calls) == 1
        release.set()
        await until(lambda: world.next_offset() == 10)


@virtual_time
async def test_the_byte_budget_stops_the_transfer_and_nothing_locks_up() -> None:
    world = World(partitions=2).with_settings(
        buffer_bytes=20_000, window=WindowLimits(16, 1 << 20, 0.0)
    )
    world.objects.chunk_bytes = 512
    release = asyncio.Event()

    async def stuck(payloads: Sequence[Payload]) -> Answers | None:
        await release.wait()
        return None

    world.model.script = stuck
    for number in range(12):
        world.announce(f"{number}.csv", csv(400), partition=number % 2)
    async with running(world) as pipeline:
        await asyncio.sleep(5.0)
        # Both heads may overdraw, one chunk at a time; the others stop.
        assert pipeline.wiring.budget.peak_bytes < 400 * 264 * 2 + 20_000 + 16 * 512 * 17
        release.set()
        await until(lambda: world.next_offset(0) == 6 and world.next_offset(1) == 6)
        assert pipeline.wiring.budget.spent_bytes == 0
    assert len(world.records(0)) == len(world.records(1)) == 6 * 400


@virtual_time
async def test_inline_rows_wait_for_the_byte_budget_too() -> None:
    world = World(partitions=8).with_settings(
        buffer_bytes=20_000, window=WindowLimits(16, 1 << 20, 0.0)
    )
    release = asyncio.Event()

    async def stuck(payloads: Sequence[Payload]) -> Answers | None:
        await release.wait()
        return None

    world.model.script = stuck
    for number in range(8 * 64):
        rows = {"stream": f"s{number}", "inline": [[row, row] for row in range(20)]}
        world.source.append(orjson.dumps(rows), partition=number % 8)
    async with running(world) as pipeline:
        await asyncio.sleep(5.0)
        # Each head may overdraw by its 20 rows of 264 bytes.
        assert pipeline.wiring.budget.peak_bytes < 20_000 + 8 * 20 * 264
        release.set()
        await until(lambda: all(world.next_offset(number) == 64 for number in range(8)))


@virtual_time
async def test_of_a_lane_that_is_over_nothing_more_is_decoded() -> None:
    decoded = 0

    def endless() -> Iterator[Turn]:
        nonlocal decoded
        while True:
            decoded += 1
            yield Turn([], is_last=False)

    lane = SimpleNamespace(alive=True, emit=lambda runs: None)
    rows: Any = lane
    guard = Guards(Telemetry(), VirtualClock(), raises=True).at("decode")

    async def next_step() -> None:
        lane.alive = decoded < 3

    permit: Any = SimpleNamespace(next_step=next_step)
    await InlineReading(endless(), rows, guard).read(permit)
    assert decoded <= 4


@virtual_time
async def test_a_huge_object_behind_a_slow_broker_is_held_by_the_byte_budget_too() -> None:
    world = World().with_settings(buffer_bytes=20_000, window=WindowLimits(16, 1 << 20, 0.0))
    world.objects.chunk_bytes = 512
    world.sink.hold = True
    world.announce("huge.csv", csv(5_000))
    async with running(world) as pipeline:
        await asyncio.sleep(60.0)
        # Above the limit: one chunk of about 30 rows of 264 bytes, and one that is not yet decided.
        assert pipeline.wiring.budget.peak_bytes < 20_000 + 2 * 100 * 264
        world.sink.hold = False
        world.sink.deliver()
        await until(lambda: world.next_offset() == 1)
    assert len(world.records()) == 5_000


@virtual_time
async def test_no_more_objects_of_a_partition_are_begun_than_allowed() -> None:
    world = World().with_settings(max_objects=3)
    world.sink.hold = True
    for number in range(10):
        world.announce(f"{number}.csv", csv(1))
    async with running(world):
        await asyncio.sleep(1.0)
        assert len(world.objects.opened) == 3
        world.sink.hold = False
        world.sink.deliver()
        await until(lambda: world.next_offset() == 10)


@virtual_time
async def test_no_more_rows_of_an_object_are_read_ahead_than_are_soon_needed() -> None:
    world = World().with_settings(buffer_bytes=1 << 30)
    world.objects.chunk_bytes = 4096
    release = asyncio.Event()

    async def stuck(payloads: Sequence[Payload]) -> Answers | None:
        await release.wait()
        return None

    world.model.script = stuck
    world.announce("huge.csv", csv(100_000))
    async with running(world) as pipeline:
        await asyncio.sleep(5.0)
        assert pipeline.wiring.budget.spent_bytes < 10_000 * 264
        release.set()
        await until(lambda: world.next_offset() == 1)
