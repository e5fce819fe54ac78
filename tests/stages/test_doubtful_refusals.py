"""Servers that answer 500 and no more: because of a row, or because they are busy."""

import asyncio
from collections.abc import Collection, Sequence
from random import Random

import pytest

from penstock.core.rows.payload import Payload
from penstock.core.window.window import WindowLimits
from penstock.errors import Doubtful
from penstock.ports import Answers
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, run_to_end
from tests.support.sick_models import row, values_of


def errors(busy: float, bad: Collection[float], seed: int, *, has_canary: bool) -> list[int]:
    random = Random(seed)

    async def server(payloads: Sequence[Payload]) -> Answers | None:
        await asyncio.sleep(0.002)
        if random.random() < busy or any(value in bad for value in values_of(payloads)):
            raise Doubtful("model_rejected", "500: Internal Server Error")
        return None

    @virtual_time
    async def scenario() -> list[int]:
        world = World().with_settings(
            window=WindowLimits(20, 1 << 20, 0.010),
            canary=row(-1.0) if has_canary else None,
            callers=2,
        )
        world.model.script = server
        world.announce("a.csv", csv(200))
        await run_to_end(world, 1)
        return [record["row"] for record in world.records() if "error" in record]

    return scenario()


@pytest.mark.parametrize("has_canary", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_a_busy_server_blames_nobody(seed: int, *, has_canary: bool) -> None:
    assert errors((0.1, 0.3, 0.5)[seed % 3], (), seed, has_canary=has_canary) == []


@pytest.mark.parametrize("has_canary", [True, False])
@pytest.mark.parametrize("busy", [0.0, 0.2])
def test_the_rows_at_which_the_model_raises_are_found(busy: float, *, has_canary: bool) -> None:
    assert errors(busy, {3.0, 77.0, 78.0}, 1, has_canary=has_canary) == [3, 77, 78]
