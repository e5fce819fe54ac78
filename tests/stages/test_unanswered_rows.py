"""Rows that the server never answers, and rows it hangs up on: the line goes on, and a server that
is away blames nobody.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from penstock.core.rows.payload import Payload
from penstock.core.window.window import WindowLimits
from penstock.errors import NoAnswer
from penstock.ports import Answers
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, run_to_end, running, until
from tests.support.sick_models import row, values_of

TIMEOUT_S = 30.0


@dataclass
class Silent:
    """Leaves requests with these rows without an answer. With `hangs_s` it has one process only,
    which hangs for so long; else others are answered meanwhile.
    """

    rows: frozenset[float] = frozenset()
    hangs_s: float | None = None
    call_s: float = 0.010
    unanswered: int = 0
    free_s: float = 0.0
    asked: list[list[float]] = field(default_factory=list)

    async def __call__(self, payloads: Sequence[Payload]) -> Answers | None:
        values = values_of(payloads)
        self.asked.append(values)
        now_s = asyncio.get_running_loop().time()
        begins_s = max(now_s, self.free_s) if self.hangs_s is not None else now_s
        if begins_s - now_s > TIMEOUT_S:
            await self._silence()
        if self.rows.intersection(values):
            if self.hangs_s is not None:
                self.free_s = begins_s + self.hangs_s
            await self._silence()
        await asyncio.sleep(begins_s - now_s + self.call_s)
        return None

    async def _silence(self) -> None:
        await asyncio.sleep(TIMEOUT_S)
        self.unanswered += 1
        raise NoAnswer("no answer within 30 s (model.timeout_ms)")


def errors(world: World, partition: int = 0) -> list[tuple[int, str]]:
    return [
        (record["row"], record["error"]["code"])
        for record in world.records(partition)
        if "error" in record
    ]


@pytest.mark.parametrize("has_canary", [True, False])
@pytest.mark.parametrize("hangs_s", [None, 45.0, 120.0])
def test_a_row_that_is_never_answered_is_rejected_alone(
    hangs_s: float | None, *, has_canary: bool
) -> None:
    @virtual_time
    async def scenario() -> None:
        world = World(partitions=2).with_settings(
            window=WindowLimits(64, 1 << 20, 0.010), canary=row(1.0) if has_canary else None
        )
        world.model.script = server = Silent(frozenset({70.0}), hangs_s)
        world.announce("early.csv", csv(10, start=500), partition=1)
        async with running(world):
            await until(lambda: world.next_offset(1) == 1)
            world.announce("a.csv", csv(128))
            await asyncio.sleep(5.0)
            world.announce("other.csv", csv(10, start=500), partition=1)
            await until(lambda: world.next_offset(0) == 1, within_s=7_200.0)
            await until(lambda: world.next_offset(1) == 2, within_s=600.0)
        assert [record["row"] for record in world.records()] == list(range(128))
        assert errors(world) == [(70, "unavailable")]
        assert errors(world, 1) == []
        (letter,) = world.dead_letters()
        assert "3 times" in letter["message"]
        alone = [values for values in server.asked if values == [70.0]]
        assert len(alone) == 3

    scenario()


@virtual_time
async def test_the_only_row_there_is_that_is_never_answered_is_given_up_after_20_trials() -> None:
    world = World()
    world.model.script = server = Silent(frozenset({0.0}))
    world.announce("a.csv", csv(1))
    async with running(world):
        await until(lambda: world.next_offset() == 1, within_s=7_200.0)
    assert errors(world) == [(0, "unavailable")]
    assert server.unanswered == 20


@pytest.mark.parametrize("has_canary", [True, False])
def test_a_server_that_leaves_everything_unanswered_for_an_hour_blames_nobody(
    *, has_canary: bool
) -> None:
    @virtual_time
    async def scenario() -> None:
        world = World().with_settings(canary=row(1.0) if has_canary else None)
        world.announce("early.csv", csv(64))
        async with running(world):
            await until(lambda: world.next_offset() == 1)

            async def away(_: Sequence[Payload]) -> Answers | None:
                await asyncio.sleep(TIMEOUT_S)
                raise NoAnswer("no answer within 30 s (model.timeout_ms)")

            world.model.script = away
            for number in range(5):
                world.announce(f"{number}.csv", csv(100))
            await asyncio.sleep(3_600.0)
            assert world.next_offset() == 1
            world.model.script = None
            await until(lambda: world.next_offset() == 6, within_s=120.0)
        assert errors(world) == []

    scenario()


@pytest.mark.parametrize("seed", range(5))
def test_a_server_that_hangs_now_and_then_blames_nobody(seed: int) -> None:
    @virtual_time
    async def scenario() -> None:
        world = World().with_settings(window=WindowLimits(8, 1 << 20, 0.0))

        async def flapping(_: Sequence[Payload]) -> Answers | None:
            # 40 s in 100, whatever it is asked.
            if (world.clock.now() + 20.0 * seed) % 100.0 > 60.0:
                await asyncio.sleep(TIMEOUT_S)
                raise NoAnswer("no answer within 30 s (model.timeout_ms)")
            await asyncio.sleep(0.5)
            return None

        world.model.script = flapping
        world.announce("a.csv", csv(2_000))
        async with running(world):
            await until(lambda: world.next_offset() == 1, within_s=40_000.0)
        assert errors(world) == []

    scenario()


def hanging_up(times: int) -> tuple[list[int], object]:
    heard: list[int] = []

    async def script(payloads: Sequence[Payload]) -> Answers | None:
        if values_of(payloads) == [0.0] and len(heard) < times:
            heard.append(1)
            raise NoAnswer("ServerDisconnectedError", is_oversize=True)
        return None

    return heard, script


@virtual_time
async def test_a_row_above_the_limit_is_not_blamed_for_one_broken_connection() -> None:
    world = World()
    _, world.model.script = hanging_up(1)  # type: ignore[assignment]
    world.announce("a.csv", csv(1))
    await run_to_end(world, 1)
    assert errors(world) == []


@virtual_time
async def test_a_row_above_the_limit_under_which_a_well_server_hangs_up_is_too_large() -> None:
    world = World()
    heard, world.model.script = hanging_up(99)  # type: ignore[assignment]
    world.announce("a.csv", csv(1))
    await run_to_end(world, 1)
    assert errors(world) == [(0, "too_large")]
    assert len(heard) == 2


@virtual_time
async def test_a_row_above_the_limit_is_not_blamed_while_the_server_is_away() -> None:
    world = World().with_settings(canary=row(1.0))

    async def dead(_: Sequence[Payload]) -> Answers | None:
        if world.clock.now() < 300.0:
            raise NoAnswer("ClientOSError: connection reset", is_oversize=True)
        return None

    world.model.script = dead
    world.announce("a.csv", csv(1))
    await run_to_end(world, 1)
    assert errors(world) == []
