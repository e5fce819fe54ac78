"""Servers that hang up: on certain rows, which are found as refused ones are, or on anything, which
blames nobody.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from random import Random

import pytest

from penstock.core.rows.payload import Payload
from penstock.core.window.window import WindowLimits
from penstock.errors import Fatal, HungUp, Rejected, Transient, Unreachable
from penstock.ports import Answers
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, run_to_end, running, until
from tests.support.sick_models import row, values_of

CALL_S = 0.002


@dataclass
class Touchy:
    """Fails on these rows, and on requests that `breaks` says by their number."""

    rows: Collection[float] = ()
    error: Callable[[], Exception] = lambda: HungUp("ConnectionResetError: the server hung up")
    breaks: Callable[[int], bool] = lambda _: False
    requests: int = 0
    ended_s: float = 0.0

    async def __call__(self, payloads: Sequence[Payload]) -> Answers | None:
        self.requests += 1
        number = self.requests
        await asyncio.sleep(CALL_S)
        self.ended_s = asyncio.get_running_loop().time()
        if self.breaks(number):
            raise HungUp("ConnectionResetError: the server hung up")
        if any(value in self.rows for value in values_of(payloads)):
            raise self.error()
        return None


def refused() -> Exception:
    return Rejected("model_rejected", "400")


def errors(world: World) -> dict[int, str]:
    return {
        record["row"]: record["error"]["code"] for record in world.records() if "error" in record
    }


def known_server(
    server: Touchy, rows: int, batch: int, *, callers: int = 4, has_canary: bool = False
) -> tuple[float, World]:
    """In how many seconds so many rows are answered by a server that has answered others before."""

    @virtual_time
    async def scenario() -> tuple[float, World]:
        world = World().with_settings(
            window=WindowLimits(batch, 1 << 20, 0.010),
            canary=row(-1.0) if has_canary else None,
            callers=callers,
        )
        world.announce("early.csv", csv(100 * batch, start=100_000))
        async with running(world):
            await until(lambda: world.next_offset() == 1)
            world.model.script = server
            began_s = world.clock.now()
            world.announce("a.csv", csv(rows))
            await until(lambda: world.next_offset() == 2, within_s=600.0)
            assert not is_open(world)
        return server.ended_s - began_s, world

    return scenario()


@virtual_time
async def new_server(server: Touchy, rows: int, batch: int, callers: int) -> tuple[float, World]:
    """The same of one that nothing is known of yet."""
    world = World().with_settings(window=WindowLimits(batch, 1 << 20, 0.010), callers=callers)
    world.model.script = server
    world.announce("a.csv", csv(rows))
    await run_to_end(world, 1)
    return server.ended_s, world


def is_open(world: World) -> bool:
    name = "penstock_model_breaker_open"
    return bool(world.telemetry.registry.get_sample_value(name, {}))


BAD = [
    (40, {float(number) for number in range(7, 600, 64)}),
    (200, {float(number) for number in range(3, 600, 30)}),
    (8, {77.0}),
]


@pytest.mark.parametrize("has_canary", [True, False])
@pytest.mark.parametrize(("batch", "bad"), BAD)
def test_rows_that_are_hung_up_on_cost_at_most_twice_what_refused_ones_do(
    batch: int, bad: set[float], *, has_canary: bool
) -> None:
    plain, touchy = Touchy(bad, refused), Touchy(bad)
    usual_s, _ = known_server(plain, 600, batch, has_canary=has_canary)
    took_s, world = known_server(touchy, 600, batch, has_canary=has_canary)
    assert errors(world) == dict.fromkeys(sorted(map(int, bad)), "unavailable")
    assert touchy.requests <= 2 * plain.requests
    assert took_s <= 2 * usual_s
    letters = world.dead_letters()
    counts = [letter["message"].partition(" times")[0].rpartition(" ")[2] for letter in letters]
    # The first ones more often, as the server may just have begun to hang up at random.
    assert set(counts) <= {"3", "4", "5"}, counts
    assert counts.count("3") >= len(counts) - 2, counts


@virtual_time
async def test_rows_that_a_new_worker_is_hung_up_on_are_found_in_a_second_too() -> None:
    bad = {float(number) for number in range(3, 200, 10)}
    world = World().with_settings(window=WindowLimits(200, 1 << 20, 0.010))
    world.model.script = server = Touchy(bad)
    world.announce("a.csv", csv(200))
    await run_to_end(world, 1)
    assert errors(world) == dict.fromkeys(sorted(map(int, bad)), "unavailable")
    assert server.ended_s < 3.0


@pytest.mark.parametrize("callers", [1, 2, 4])
@pytest.mark.parametrize("every", [2, 3, 4])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_server_that_resets_every_nth_connection_is_used_all_the_same(
    callers: int, every: int, *, is_known: bool
) -> None:
    server = Touchy(breaks=lambda number: number % every == 0)
    if is_known:
        took_s, world = known_server(server, 600, 40, callers=callers)
    else:
        took_s, world = new_server(server, 600, 40, callers)
    assert errors(world) == {}
    assert took_s < 2.0
    assert server.requests < 150


@pytest.mark.parametrize("seed", range(40))
def test_a_server_that_resets_at_random_blames_nobody(seed: int) -> None:
    random = Random(seed)
    share = random.choice((0.1, 0.3, 0.5))
    server = Touchy(breaks=lambda _: random.random() < share)
    _, world = new_server(server, 1_000, 40, callers=2)
    assert errors(world) == {}


@pytest.mark.parametrize("seed", range(40))
def test_a_server_that_begins_to_reset_at_random_blames_nobody(seed: int) -> None:
    """Nothing it did before tells that."""
    random = Random(seed)
    _, world = known_server(Touchy(breaks=lambda _: random.random() < 0.5), 30, 1, callers=1)
    assert errors(world) == {}


@pytest.mark.parametrize("seed", range(40))
def test_a_new_server_that_resets_half_of_its_connections_blames_no_first_row(seed: int) -> None:
    random = Random(seed)
    _, world = new_server(Touchy(breaks=lambda _: random.random() < 0.5), 4, 1, callers=2)
    assert errors(world) == {}


@pytest.mark.parametrize("seed", range(20))
def test_a_server_that_resets_and_refuses_at_random_blames_nobody(seed: int) -> None:
    """As behind a load balancer, of whose servers one is gone and one is starting."""
    random = Random(seed)

    async def flaky(payloads: Sequence[Payload]) -> Answers | None:
        if random.random() < 0.2:
            raise Unreachable("refused")
        return await server(payloads)

    server = Touchy(breaks=lambda _: random.random() < 0.2)

    @virtual_time
    async def scenario() -> None:
        world = World().with_settings(window=WindowLimits(1, 1 << 20, 0.0), callers=2)
        world.model.script = flaky
        world.announce("a.csv", csv(300))
        await run_to_end(world, 1)
        assert errors(world) == {}

    scenario()


@pytest.mark.parametrize("seed", range(10))
def test_rows_that_are_hung_up_on_are_found_among_chance_resets(seed: int) -> None:
    random = Random(seed)
    server = Touchy({5.0, 77.0, 300.0}, breaks=lambda _: random.random() < 0.1)
    _, world = new_server(server, 400, 40, callers=2)
    assert errors(world) == dict.fromkeys((5, 77, 300), "unavailable")


@virtual_time
async def test_a_server_that_is_gone_for_an_hour_blames_nobody() -> None:
    world = World()
    world.model.script = Touchy(breaks=lambda _: world.clock.now() < 3_600.0)
    for number in range(5):
        world.announce(f"{number}.csv", csv(100))
    async with running(world):
        await asyncio.sleep(3_000.0)
        assert world.records() == []
        assert is_open(world)
        await until(lambda: world.next_offset() == 5, within_s=700.0)
    assert errors(world) == {}


@virtual_time
async def test_the_only_row_there_is_that_is_hung_up_on_is_given_up() -> None:
    world = World()
    world.model.script = Touchy({0.0})
    world.announce("a.csv", csv(1))
    await run_to_end(world, 1)
    assert errors(world) == {0: "unavailable"}


@pytest.mark.parametrize(
    "bad", [{0.0}, {7.0}, set(map(float, range(20)))], ids=["the first row", "one row", "all"]
)
@virtual_time
async def test_with_patience_one_row_is_found_and_a_server_that_takes_no_row_ends_it_soon(
    bad: set[float],
) -> None:
    """As in a Python call: the server hangs up late, and has answered nothing yet."""
    world = World().with_settings(window=WindowLimits(20, 1 << 20, 0.010), patience_s=60.0)

    async def hangs_up(payloads: Sequence[Payload]) -> Answers | None:
        if bad.intersection(values_of(payloads)):
            await asyncio.sleep(0.6)
            raise HungUp("the server hung up")
        return None

    world.model.script = hangs_up
    world.announce("a.csv", csv(20))
    if len(bad) == 1:
        await run_to_end(world, 1)
        assert errors(world) == dict.fromkeys(bad, "unavailable")
        return
    with pytest.RaisesGroup(Fatal, flatten_subgroups=True) as caught:
        async with running(world):
            await asyncio.sleep(40.0)
    assert caught.group_contains(Fatal, match="closes the connection when it gets rows")


@pytest.mark.parametrize("has_canary", [True, False])
@pytest.mark.parametrize("starting", [Unreachable, HungUp])
@pytest.mark.parametrize(
    ("batch", "is_oversize"), [(1, False), (4, False), (40, False), (1, True), (4, True)]
)
@virtual_time
async def test_a_row_that_takes_the_server_down_each_time_is_given_up(
    batch: int, starting: type[Transient], *, is_oversize: bool, has_canary: bool
) -> None:
    starts_s, up_s, deaths = 20.0, 0.0, 0

    async def fragile(payloads: Sequence[Payload]) -> Answers | None:
        nonlocal up_s, deaths
        await asyncio.sleep(CALL_S)
        if world.clock.now() < up_s:
            raise starting("the server is starting")
        if 2.0 in values_of(payloads):
            up_s, deaths = world.clock.now() + starts_s, deaths + 1
            raise HungUp("ConnectionResetError: the server hung up", is_oversize=is_oversize)
        return None

    world = World().with_settings(
        window=WindowLimits(batch, 1 << 20, 0.010), canary=row(-1.0) if has_canary else None
    )
    world.model.script = fragile
    world.announce("a.csv", csv(max(5, 2 * batch)))
    async with running(world):
        await until(lambda: world.next_offset() == 1, within_s=600.0)
    assert errors(world) == {2: "unavailable"}
    assert deaths <= 3 + 2 * batch.bit_length()
