"""What limits a worker, seen on whole pipelines in virtual time."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.adapters.memory import MemoryObjects
from penstock.core.rows.payload import Payload
from penstock.ops.service_answers import ServiceAnswers
from penstock.ops.status import Status
from penstock.ports import Answers, Location
from penstock.telemetry.worker import Telemetry
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, running


async def flow_of(world: World, every_s: float, for_s: float = 30.0) -> dict[str, object]:
    """The flow after objects came for a while, each with the time at which it came."""
    async with running(world) as pipeline:
        services = ServiceAnswers(pipeline, world.model)
        status = Status(pipeline, world.telemetry, services)
        async with services.watching():
            for number in range(int(for_s / every_s)):
                world.announce(
                    f"{number}.csv",
                    csv(8),
                    partition=0,
                    stream=f"s{number % 3}",
                    timestamp_ms=world.clock.wall_ms(),
                    size=100,
                )
                await asyncio.sleep(every_s)
                if number % round(1 / every_s) == 0:
                    status.flow.sample()
            look = status.look()
    assert look["streams_known"] == 3
    flow: dict[str, object] = look["flow"]
    return flow


class SlowObjects(MemoryObjects):
    async def open(self, location: Location) -> Any:
        await asyncio.sleep(4.0)
        return await super().open(location)


@virtual_time
async def test_a_worker_that_is_on_time_is_limited_by_nothing() -> None:
    flow = await flow_of(World(), every_s=0.1)
    assert flow["bound_by"] is None
    assert flow["drain_s"] is None
    assert flow["delivered_per_s"] == pytest.approx(10, rel=0.1)
    assert flow["arrived_per_s"] == pytest.approx(10, rel=0.2)


@virtual_time
async def test_a_slow_model_is_the_limit() -> None:
    async def slow(payloads: Sequence[Payload]) -> Answers | None:
        await asyncio.sleep(2.0)
        return None

    world = World()
    world.model.script = slow
    world.with_settings(max_objects=8)
    flow = await flow_of(world, every_s=0.1)
    assert flow["bound_by"] == "model"


@virtual_time
async def test_a_slow_store_is_the_limit() -> None:
    world = World()
    world.objects = SlowObjects()
    flow = await flow_of(world, every_s=0.1)
    assert flow["bound_by"] == "store"
    assert isinstance(flow["backlog_bytes"], int)


@virtual_time
async def test_a_backlog_that_stands_still_is_not_worked_off() -> None:
    world, hangs = World(), asyncio.Event()

    async def slow(payloads: Sequence[Payload]) -> Answers | None:
        await (asyncio.sleep(0.5) if not hangs.is_set() else asyncio.Event().wait())
        return None

    world.model.script = slow
    world.with_settings(max_objects=8)
    for number in range(1_000):
        world.announce(f"{number}.csv", csv(8), partition=0, timestamp_ms=world.clock.wall_ms())
    async with running(world) as pipeline:
        services = ServiceAnswers(pipeline, world.model)
        status = Status(pipeline, world.telemetry, services)
        async with services.watching():
            for second in range(15):
                if second == 12:
                    assert status.look()["flow"]["drain_s"] is not None
                    hangs.set()
                await asyncio.sleep(1.0)
                status.flow.sample()
            assert status.look()["flow"]["delivered_per_s"] > 0.0
            assert status.look()["flow"]["drain_s"] is None


@pytest.mark.parametrize(("stutters", "for_s"), [(1, 0.0), (2, 4.0)])
@virtual_time
async def test_it_is_told_for_how_long_objects_came_late(stutters: int, for_s: float) -> None:
    world = World()
    calls = 0

    async def stutter(payloads: Sequence[Payload]) -> Answers | None:
        nonlocal calls
        calls += 1
        # The last ten seconds have a hundred objects.
        if calls in (240, 280)[:stutters]:
            await asyncio.sleep(0.6)
        return None

    world.model.script = stutter
    world.telemetry = Telemetry(bound_s=0.3)
    flow = await flow_of(world, every_s=0.1)
    assert flow["over_bound_objects"] == pytest.approx(5 * stutters, abs=3 * stutters)
    assert flow["over_bound_for_s"] == pytest.approx(for_s, abs=1.1)


@virtual_time
async def test_what_kafka_does_not_acknowledge_for_two_seconds_is_in_doubt() -> None:
    world = World()
    async with running(world) as pipeline:
        status = Status(pipeline, world.telemetry, ServiceAnswers(pipeline, world.model))
        doubted_s = []
        for second in range(12):
            world.sink.hold = second >= 6
            for number in range(5):
                world.announce(
                    f"{second}-{number}.csv",
                    csv(8),
                    partition=0,
                    timestamp_ms=world.clock.wall_ms(),
                )
                await asyncio.sleep(0.2)
            status.flow.sample()
            doubted_s.append(status.look()["flow"]["doubted_s"])
        world.sink.deliver()
    assert doubted_s[:7] == [0.0] * 7
    assert all(2.0 <= doubt_s <= 7.0 for doubt_s in doubted_s[9:]), doubted_s


@virtual_time
async def test_a_worker_that_gets_partitions_is_judged_anew_after_some_seconds() -> None:
    world = World(partitions=2)
    async with running(world) as pipeline:
        status = Status(pipeline, world.telemetry, ServiceAnswers(pipeline, world.model))
        settled_s = []
        for second in range(40):
            await asyncio.sleep(1.0)
            if second == 20:
                await world.source.revoke([0])
            if second == 30:
                await world.source.assign([0])
            status.flow.sample()
            settled_s.append(status.look()["settled_s"])
    assert settled_s[19] >= 18.0
    assert settled_s[29] >= 28.0, "partitions that leave change nothing"
    assert settled_s[31] <= 2.0
