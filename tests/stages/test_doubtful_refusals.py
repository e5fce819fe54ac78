"""Servers that answer 500 and no more: because of a row, or because they are busy."""

import asyncio
from collections.abc import Collection, Sequence
from random import Random

import pytest

from penstock.asking.server_health import LOADING_S
from penstock.core.rows.payload import Payload
from penstock.core.window.window import WindowLimits
from penstock.errors import Doubtful, Fatal
from penstock.ports import Answers
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, run_to_end, running, until
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


WORDS = "http://a answered 500: TypeError: no number"


async def raises(_: Sequence[Payload]) -> Answers | None:
    await asyncio.sleep(0.002)
    raise Doubtful("model_rejected", WORDS)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if "the model server fails" in text]


@virtual_time
async def test_a_server_that_answers_500_while_it_loads_its_model_costs_no_row() -> None:
    world = World()
    script, world.model.script = world.model.script, raises
    for number in range(20):
        world.announce(f"{number}.csv", csv(3))
    async with running(world):
        await asyncio.sleep(LOADING_S - 20.0)
        assert world.next_offset() == 0
        world.model.script = script
        await until(lambda: world.next_offset() == 20, within_s=10.0)
    assert not [record for record in world.records() if "error" in record]


@virtual_time
async def test_rows_that_are_all_refused_cost_the_time_to_load_a_model_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.model.script = raises
    for number in range(20):
        world.announce(f"{number}.csv", csv(1))
    began_s = asyncio.get_running_loop().time()
    async with running(world):
        await until(lambda: bool(told(caplog)), within_s=3.0)
        await until(lambda: world.next_offset() == 20, within_s=LOADING_S + 60.0)
    assert LOADING_S < asyncio.get_running_loop().time() - began_s < LOADING_S + 20.0
    assert WORDS in told(caplog)[0]
    assert {record["error"]["code"] for record in world.records()} == {"model_rejected"}


@virtual_time
async def test_a_call_of_a_person_ends_after_three_rows_of_which_none_was_answered() -> None:
    world = World().with_settings(patience_s=60.0)
    world.model.script = raises
    world.announce("a.csv", csv(200))
    began_s = asyncio.get_running_loop().time()
    with pytest.RaisesGroup(Fatal, flatten_subgroups=True) as caught:
        await run_to_end(world, 1)
    assert caught.group_contains(Fatal, match=f"refuses each row.*{WORDS}")
    assert asyncio.get_running_loop().time() - began_s < 15.0


@virtual_time
async def test_bad_rows_at_the_beginning_do_not_end_a_call() -> None:
    async def server(payloads: Sequence[Payload]) -> Answers | None:
        return await raises(payloads) if min(values_of(payloads)) < 12 else None

    world = World().with_settings(patience_s=60.0)
    world.model.script = server
    world.announce("a.csv", csv(200))
    await run_to_end(world, 1)
    assert [record["row"] for record in world.records() if "error" in record] == list(range(12))


@virtual_time
async def test_a_server_that_worked_and_then_answers_500_to_everything_blames_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.announce("early.csv", csv(64))
    async with running(world):
        await until(lambda: world.next_offset() == 1)
        script, world.model.script = world.model.script, raises
        for number in range(5):
            world.announce(f"{number}.csv", csv(1))
        await until(lambda: bool(told(caplog)), within_s=5.0)
        await asyncio.sleep(120.0)
        assert world.next_offset() == 1
        world.model.script = script
        await until(lambda: world.next_offset() == 6, within_s=10.0)
    assert not [record for record in world.records() if "error" in record]
