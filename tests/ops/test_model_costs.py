"""What the pages say of what each stream costs the model."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

from penstock.config import Config
from penstock.core.diagnosis.problem import SETTLED_S
from penstock.core.rows.payload import Matrix, Payload
from penstock.ops.advise import advised
from penstock.ops.service_answers import ServiceAnswers
from penstock.ops.status import Status
from penstock.ports import Answers
from penstock.process.cpu import Cpu
from penstock.telemetry.worker import Telemetry
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, running

STREAMS = 8
EVERY_S = 0.2
ROW_S = 0.001
DEAR = 900


async def by_rows(payloads: Sequence[Payload]) -> Answers | None:
    """A row whose numbers are `DEAR` takes fifty times as long as another one."""
    values = [
        value
        for payload in payloads
        if isinstance(payload, Matrix)
        for value in payload.values[:, 0]
    ]
    await asyncio.sleep(0.002 + sum(ROW_S * (50 if value == DEAR else 1) for value in values))
    return None


@asynccontextmanager
async def load(world: World, dear: Sequence[str]) -> AsyncIterator[Status]:
    """Each stream announces an object of two rows five times a second. No two have quite the same
    period, as cameras have none in common.
    """
    world.model.script = by_rows

    async def announce(camera: int) -> None:
        stream = f"cam-{camera}"
        for number in count():
            await asyncio.sleep(EVERY_S * (1.0 + camera / 50))
            body = b"%d,0\n" % DEAR * 2 if stream in dear else csv(2)
            now_ms, key = world.clock.wall_ms(), f"{number}-{camera}.csv"
            world.announce(key, body, partition=camera, stream=stream, timestamp_ms=now_ms)

    async with running(world) as pipeline, asyncio.TaskGroup() as tasks:
        services = ServiceAnswers(pipeline, world.model)
        # A real processor's work would be held against virtual seconds, which pass at once.
        status = Status(pipeline, world.telemetry, services, cpu=lambda: Cpu(0.0))
        async with services.watching():
            with status.sampling():
                cameras = [tasks.create_task(announce(camera)) for camera in range(STREAMS)]
                yield status
                for camera in cameras:
                    camera.cancel()


def world_of(calls: int = 1, **terms: Any) -> World:
    world = World(partitions=STREAMS, telemetry=Telemetry(0.05))
    return world.with_settings(callers=calls, **terms)


def kinds(document: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(problem["kind"], problem["stream"]) for problem in document["problems"]]


@virtual_time
@pytest.mark.parametrize("calls", [1, 4])
async def test_a_dear_stream_by_which_others_are_late_is_named_within_ten_seconds(
    calls: int,
) -> None:
    dear: list[str] = []
    async with load(world_of(calls), dear) as status:
        await asyncio.sleep(3 * SETTLED_S)
        assert kinds(status.look()) == []
        dear.append("cam-2")
        await asyncio.sleep(10.0)
        document = status.look()
        assert kinds(document) == [("costly", "cam-2")]
        assert document["flow"]["bound_by"] == "model"
        [stream] = [stream for stream in document["streams"] if stream["stream"] == "cam-2"]
        assert stream["row_ms"] == pytest.approx(50 * ROW_S * 1000, rel=0.4)
        assert stream["model_share"] > 0.5


@virtual_time
async def test_the_price_of_the_hardware_is_divided_by_shares_of_the_models_time() -> None:
    world = world_of(cost_per_hour=3.6)
    async with load(world, ["cam-2"]) as status:
        await asyncio.sleep(20.0)
        document = status.look()
        streams = {stream["stream"]: stream for stream in document["streams"]}
        assert sum(stream["cost_per_hour"] for stream in streams.values()) == pytest.approx(
            3.6, rel=0.01
        )
        assert sum(stream["model_share"] for stream in streams.values()) == pytest.approx(
            1.0, rel=0.01
        )
        assert document["costs"]["cost_per_hour"] == 3.6
        ours, other = streams["cam-2"], streams["cam-3"]
        assert ours["cost_per_hour"] > 20 * other["cost_per_hour"]
        assert ours["cost_per_million"] > document["costs"]["cost_per_million"]
        spent_s = status.flow.costs.spent_s
        assert spent_s["cam-2"] == pytest.approx(ours["model_s"], abs=0.001)
        gauges = world.telemetry.status_gauges
        gauges.show_costs(spent_s)
        name = "penstock_stream_model_seconds_total"
        shown = world.telemetry.registry.get_sample_value(name, {"stream": "cam-2"})
        assert shown == spent_s["cam-2"]


@virtual_time
async def test_without_a_price_there_is_no_money_and_before_a_call_nothing_is_known() -> None:
    async with load(world_of(), []) as status:
        assert status.look()["costs"]["call_ms"] is None
        await asyncio.sleep(5.0)
        document = status.look()
        assert document["costs"]["call_ms"] == pytest.approx(2.0, abs=2.0)
        assert all(stream["cost_per_hour"] is None for stream in document["streams"])
        assert all(stream["row_ms"] is not None for stream in document["streams"])


@virtual_time
async def test_the_status_tells_what_is_needed_to_advise() -> None:
    async with load(World(partitions=STREAMS), []) as status:
        await asyncio.sleep(40)
        look = status.look()
    times = look["calls"]["times"]
    assert times["calls"] > 100
    assert times["base_s"] == pytest.approx(0.002, abs=1e-6)
    assert times["row_s"] == pytest.approx(ROW_S, abs=1e-6)
    kinds = {one.kind for one in advised(look, Config()).advice}
    assert {"calls", "hardware", "waste"} <= kinds
