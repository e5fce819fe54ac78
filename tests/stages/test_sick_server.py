"""A sick server, a bad row, a wrong setting: each has its own answer, and none costs other rows."""

import asyncio
import math
from collections.abc import Callable, Sequence
from random import Random

import pytest

from penstock.core.rows.payload import Payload
from penstock.core.window.window import WindowLimits
from penstock.errors import (
    EXIT_FATAL,
    EXIT_USAGE,
    Doubtful,
    Fatal,
    HungUp,
    NoAnswer,
    Overloaded,
    Poison,
    Rejected,
    Transient,
    Unreachable,
    WorkerDied,
)
from penstock.ports import Answers
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, run_to_end, running, until
from tests.support.sick_models import Away, Mortal, Poisoned, Queueing, row, values_of

LARGE = WindowLimits(512, 1 << 20, 0.010)


def rejected_rows(world: World) -> list[tuple[int, int, str]]:
    """(offset, row, code), in order."""
    return [
        (record["source"]["offset"], record["row"], record["error"]["code"])
        for record in world.records()
        if "error" in record
    ]


def assert_every_row_once(world: World, rows: Sequence[int]) -> None:
    """`rows` are those of each object, in the order of their offsets."""
    assert [(record["source"]["offset"], record["row"]) for record in world.records()] == [
        (offset, number) for offset, count in enumerate(rows) for number in range(count)
    ]


def metric(world: World, name: str, **labels: str) -> float:
    value = world.telemetry.registry.get_sample_value(name, labels)
    assert value is not None
    return value


# --- Sick -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "hours"),
    [
        (lambda: Unreachable("refused"), 1.0),
        (lambda: Overloaded("no worker"), 0.25),
        (lambda: WorkerDied("Worker died."), 0.25),
        (lambda: Transient("502"), 0.25),
    ],
)
def test_an_outage_of_any_length_costs_nothing_but_time(error: object, hours: float) -> None:
    over_s = hours * 3600.0

    @virtual_time
    async def scenario() -> None:
        world = World().with_settings(buffer_bytes=100_000)
        world.model.script = away = Away(error, until_s=over_s)  # type: ignore[arg-type]
        for number in range(200):
            world.announce(f"{number}.csv", csv(50))
        async with running(world) as pipeline:
            await asyncio.sleep(600.0)
            held_bytes, polls = pipeline.wiring.budget.spent_bytes, world.source.polls
            await asyncio.sleep(over_s - 610.0)
            assert pipeline.wiring.budget.spent_bytes == held_bytes
            assert pipeline.wiring.budget.peak_bytes < 2 * 100_000
            # The group hears from us many times a minute.
            assert world.source.polls - polls > (over_s - 610.0) * 10
            assert world.source.commits == []
            assert metric(world, "penstock_model_breaker_open") == 1
            await until(lambda: world.published() > 0, within_s=30.0)
            # One probe interval, and half a second of virtual looking.
            assert world.clock.now() < over_s + 5.0 + 0.5
            await until(lambda: world.next_offset() == 200)
            assert world.clock.now() < over_s + 10.0
        assert_every_row_once(world, [50] * 200)
        assert rejected_rows(world) == []
        assert world.dead_letters() == []
        during = [(when, rows) for when, rows in away.asked if 1.0 < when < over_s]
        assert len(during) < over_s / 2.5 + 10
        assert max(rows for _, rows in during) <= 32
        assert metric(world, "penstock_model_breaker_open") == 0

    scenario()


@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize(
    ("error", "after_s", "outage_s"),
    [
        # A worker that blames rows for it does so within 25 s; with tries of 30 s, within 865 s.
        (lambda: HungUp("reset"), 0.001, 600.0),
        (lambda: NoAnswer("no answer within 30 s"), 30.0, 1_800.0),
        (lambda: WorkerDied("Worker died."), 0.3, 600.0),
        (lambda: Doubtful("model_rejected", "500"), 0.001, 600.0),
    ],
)
def test_a_server_that_fails_at_all_rows_for_long_and_answers_questions_blames_nobody(
    error: Callable[[], Exception], after_s: float, outage_s: float, partitions: int
) -> None:
    async def fails(payloads: Sequence[Payload]) -> Answers | None:
        if values_of(payloads):
            await asyncio.sleep(after_s)
            raise error()
        return None

    @virtual_time
    async def scenario() -> None:
        world = World(partitions)

        def announce(count: int) -> None:
            for number in range(count):
                for partition in range(partitions):
                    world.announce(f"{partition}-{number}.csv", csv(4), partition=partition)

        async def reached(offset: int) -> None:
            await until(
                lambda: all(world.next_offset(each) == offset for each in range(partitions)),
                within_s=60.0,
            )

        # After a hundred answers a failure counts for more.
        announce(100)
        async with running(world):
            await reached(100)
            world.model.script = fails
            announce(5)
            await asyncio.sleep(outage_s)
            await reached(100)
            world.model.script = None
            await reached(105)
        for partition in range(partitions):
            assert not any("error" in record for record in world.records(partition))

    scenario()


@virtual_time
async def test_while_the_server_is_ill_one_probe_at_a_time_is_sent() -> None:
    world = World().with_settings(callers=16)
    world.model.script = away = Away(lambda: Unreachable("refused"), until_s=60.0)
    for number in range(100):
        world.announce(f"{number}.csv", csv(64))
    async with running(world):
        await asyncio.sleep(0.5)
        away.most_in_flight = 0
        await asyncio.sleep(59.0)
        assert away.most_in_flight == 1
        await until(lambda: world.next_offset() == 100)
    assert away.most_in_flight == 16
    assert_every_row_once(world, [64] * 100)


@virtual_time
async def test_a_server_that_asks_to_be_left_alone_is_left_alone_by_all() -> None:
    world = World().with_settings(window=WindowLimits(8, 1 << 20, 0.0), callers=4)
    asked_s: list[float] = []

    async def busy_at_first(payloads: Sequence[Payload]) -> Answers | None:
        asked_s.append(world.clock.now())
        if len(asked_s) == 1:
            raise Overloaded("429", retry_after_s=7.0)
        return None

    world.model.script = busy_at_first
    world.announce("a.csv", csv(1))
    async with running(world):
        await until(lambda: len(asked_s) == 1)
        for number in range(10):
            world.announce(f"{number}.csv", csv(8))
        await until(lambda: world.next_offset() == 11)
    assert asked_s[1] >= asked_s[0] + 7.0
    assert rejected_rows(world) == []


@virtual_time
async def test_a_full_queue_is_found_out_with_few_refusals_and_blames_nobody() -> None:
    world = World().with_settings(window=WindowLimits(8, 1 << 20, 0.0), callers=16)
    world.model.script = server = Queueing(room=5)
    world.announce("a.csv", csv(20_000))
    async with running(world):
        await until(lambda: world.next_offset() == 1, within_s=600.0)
    assert server.answered == 2_500
    late = [when for when in server.refused_s if when > 2.0]
    assert 0 < len(late) < 0.05 * server.answered
    assert world.clock.now() < 1.2 * server.answered * server.call_s
    assert rejected_rows(world) == []
    assert metric(world, "penstock_model_requests_total", outcome="overloaded") == len(
        server.refused_s
    )


@virtual_time
async def test_requests_that_time_out_are_sent_again_within_a_budget() -> None:
    world = World().with_settings(window=WindowLimits(8, 1 << 20, 0.0), callers=8)
    asked: list[float] = []

    async def hangs(payloads: Sequence[Payload]) -> Answers | None:
        asked.append(world.clock.now())
        await asyncio.sleep(1.0)
        raise Unreachable("no answer within 1 s")

    world.model.script = hangs
    world.announce("a.csv", csv(1_000))
    async with running(world):
        await asyncio.sleep(120.0)
        # Eight at once, those few that the budget still allows, then a probe at a time.
        assert len(asked) < 8 + 8 + 120.0 / 3.0
        world.model.script = None
        await until(lambda: world.next_offset() == 1)
    assert rejected_rows(world) == []


# --- Bad ------------------------------------------------------------------------------------------


@virtual_time
async def test_poison_rows_are_found_in_at_most_15_extra_requests_each() -> None:
    world = World().with_settings(window=LARGE, buffer_bytes=1 << 24)
    poison = {float(number) for number in range(17, 20_000, 997)}
    world.model.script = server = Poisoned(poison)
    for number in range(4):
        world.announce(f"{number}.csv", csv(5_000, start=5_000 * number))
    await run_to_end(world, 4)
    assert_every_row_once(world, [5_000] * 4)
    expected = [divmod(int(value), 5_000) for value in sorted(poison)]
    assert rejected_rows(world) == [(offset, at, "model_rejected") for offset, at in expected]
    batches = sum(
        metric(world, "penstock_batches_total", reason=reason) for reason in ("rows", "deadline")
    )
    assert server.requests - batches <= 15 * len(poison)
    rejected = [span for letter in world.dead_letters() for span in letter["rows"]]
    assert sum(end - begin for begin, end in rejected) == len(poison)
    assert all(letter["attempts"] > 1 for letter in world.dead_letters())


@virtual_time
async def test_a_bad_row_in_every_batch_and_several_in_one_are_all_found() -> None:
    world = World().with_settings(window=LARGE, buffer_bytes=1 << 24)
    poison = {float(number) for number in range(0, 5_120, 512)} | {5.0, 6.0, 7.0, 511.0}
    world.model.script = Poisoned(poison)
    world.announce("a.csv", csv(5_120))
    await run_to_end(world, 1)
    assert_every_row_once(world, [5_120])
    assert [at for _, at, _ in rejected_rows(world)] == sorted(map(int, poison))


@virtual_time
async def test_where_the_canary_is_refused_too_the_server_is_ill_and_no_row_is_blamed() -> None:
    world = World().with_settings(window=LARGE, canary=row(-1.0))
    poison = {70.0}

    async def broken_for_a_while(payloads: Sequence[Payload]) -> Answers | None:
        is_broken = world.clock.now() < 100.0
        if is_broken or any(value in poison for value in values_of(payloads)):
            raise Rejected("model_rejected", "Prediction failed")
        return None

    world.model.script = broken_for_a_while
    world.announce("a.csv", csv(100))
    async with running(world):
        await asyncio.sleep(90.0)
        assert world.records() == []
        assert metric(world, "penstock_model_breaker_open") == 1
        await until(lambda: world.next_offset() == 1)
    assert rejected_rows(world) == [(0, 70, "model_rejected")]
    assert world.clock.now() < 110.0


@virtual_time
async def test_a_canary_with_an_error_of_its_own_is_no_proof_of_health() -> None:
    world = World().with_settings(canary=row(-1.0))

    async def errors(payloads: Sequence[Payload]) -> Answers | None:
        if world.clock.now() > 50.0:
            return None
        if values_of(payloads) == [-1.0]:
            return Answers([b"null"], {0: "sensor missing"})
        raise Rejected("model_rejected", "Prediction failed")

    world.model.script = errors
    world.announce("a.csv", csv(1))
    async with running(world):
        await until(lambda: world.next_offset() == 1)
    assert rejected_rows(world) == []


@virtual_time
async def test_a_row_that_kills_the_worker_is_rejected_and_its_neighbours_are_answered() -> None:
    world = World().with_settings(window=LARGE, buffer_bytes=1 << 24)
    world.model.script = server = Mortal(killers={700.0})
    world.announce("a.csv", csv(1_024))
    world.announce("b.csv", csv(2_000, start=10_000))
    await run_to_end(world, 2)
    assert_every_row_once(world, [1_024, 2_000])
    assert rejected_rows(world) == [(0, 700, "model_rejected")]
    assert server.deaths <= 2 + math.log2(512) + 3
    (letter,) = world.dead_letters()
    assert "3 times" in letter["message"]


@virtual_time
async def test_a_lone_row_that_kills_is_not_retried_for_ever() -> None:
    world = World()
    world.model.script = server = Mortal(killers={0.0})
    world.announce("a.csv", csv(1))
    world.announce("b.csv", csv(1, start=5))
    await run_to_end(world, 2)
    assert rejected_rows(world) == [(0, 0, "model_rejected")]
    assert 3 <= server.deaths <= 8


@pytest.mark.parametrize(
    ("rows", "max_rows", "call_s"), [(40_000, 32, 0.010), (200, 1, 0.3), (120, 4, 0.9)]
)
def test_a_worker_that_is_killed_every_5_seconds_blames_no_row(
    rows: int, max_rows: int, call_s: float
) -> None:
    @virtual_time
    async def scenario() -> None:
        world = World().with_settings(window=WindowLimits(max_rows, 1 << 20, 0.0))
        world.model.script = server = Mortal(period_s=5.0, call_s=call_s)
        world.announce("a.csv", csv(rows))
        async with running(world):
            await until(lambda: world.next_offset() == 1, within_s=4_000.0)
        assert server.deaths > 0
        assert rejected_rows(world) == []
        assert_every_row_once(world, [rows])

    scenario()


@virtual_time
async def test_killed_and_killing_at_once_only_the_killer_is_blamed() -> None:
    world = World().with_settings(window=LARGE, buffer_bytes=1 << 24)
    world.model.script = Mortal(killers={30.0}, period_s=5.0, call_s=0.050)
    world.announce("a.csv", csv(20_000))
    async with running(world):
        await until(lambda: world.next_offset() == 1, within_s=4_000.0)
    assert rejected_rows(world) == [(0, 30, "model_rejected")]


# --- Too large ------------------------------------------------------------------------------------


@virtual_time
async def test_what_is_too_large_together_is_split_and_a_row_too_large_alone_rejected() -> None:
    world = World().with_settings(window=LARGE)
    sizes: list[int] = []

    async def at_most_100_rows(payloads: Sequence[Payload]) -> Answers | None:
        values = values_of(payloads)
        sizes.append(len(values))
        if len(values) > 100 or 333.0 in values:
            raise Poison("too_large", f"{len(values)} rows are too large")
        return None

    world.model.script = at_most_100_rows
    world.announce("a.csv", csv(512))
    await run_to_end(world, 1)
    assert_every_row_once(world, [512])
    assert rejected_rows(world) == [(0, 333, "too_large")]
    assert len(sizes) < 40


# --- Wrong setting --------------------------------------------------------------------------------


def sole_cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    return error


async def no_such_model(_: Sequence[Payload]) -> Answers | None:
    raise Fatal("Model not found: rows; check model.name", exit_code=EXIT_USAGE)


@virtual_time
async def test_a_wrong_setting_is_told_at_the_start_as_a_usage_error() -> None:
    world = World()
    world.model.script = no_such_model
    with pytest.raises(Fatal, match=r"model\.name") as caught:
        await world.pipeline().wiring.main.calls.check()
    assert caught.value.exit_code == EXIT_USAGE


@virtual_time
async def test_what_goes_wrong_later_stops_the_line_and_commits_nothing_unanswered() -> None:
    world = World()
    world.announce("a.csv", csv(3))

    async def unregistered_while_running() -> None:
        async with running(world):
            await until(lambda: world.next_offset() == 1)
            world.model.script = no_such_model
            world.announce("b.csv", csv(3))
            await until(lambda: False)

    with pytest.raises(BaseExceptionGroup) as caught:
        await unregistered_while_running()
    fatal = sole_cause(caught.value)
    assert isinstance(fatal, Fatal)
    assert fatal.exit_code == EXIT_FATAL
    assert "Model not found" in str(fatal)
    assert "worked before" in str(fatal)
    assert world.next_offset() == 1
    assert world.dead_letters() == []


async def starting_again(_: Sequence[Payload]) -> Answers | None:
    raise Unreachable("refused")


@virtual_time
async def test_a_server_that_starts_again_may_load_its_model_for_a_while() -> None:
    world = World()
    world.announce("a.csv", csv(3))
    async with running(world):
        await until(lambda: world.next_offset() == 1)
        for script, seconds in ((starting_again, 10.0), (no_such_model, 60.0)):
            world.model.script = script
            world.announce(f"{seconds}.csv", csv(3))
            await asyncio.sleep(seconds)
        world.model.script = None
        await until(lambda: world.next_offset() == 3, within_s=30.0)
    assert_every_row_once(world, [3, 3, 3])
    assert rejected_rows(world) == []


@virtual_time
async def test_a_server_that_came_back_without_its_model_stops_the_line() -> None:
    world = World()
    world.announce("a.csv", csv(3))

    async def without_its_model() -> None:
        async with running(world):
            await until(lambda: world.next_offset() == 1)
            world.model.script = starting_again
            world.announce("b.csv", csv(3))
            await asyncio.sleep(10.0)
            world.model.script = no_such_model
            await until(lambda: False, within_s=150.0)

    with pytest.raises(BaseExceptionGroup) as caught:
        await without_its_model()
    fatal = sole_cause(caught.value)
    assert isinstance(fatal, Fatal)
    assert fatal.exit_code == EXIT_FATAL
    assert world.next_offset() == 1


@virtual_time
async def test_a_server_that_is_silent_at_the_start_is_one_to_wait_for() -> None:
    world = World()

    async def silent(_: Sequence[Payload]) -> Answers | None:
        await asyncio.sleep(1e6)
        return None

    world.model.script = silent
    with pytest.raises(Unreachable, match=r"model\.url"):
        await world.pipeline().wiring.main.calls.check()
    assert world.clock.now() == pytest.approx(5.0)


@virtual_time
async def test_a_canary_that_the_model_refuses_is_a_wrong_setting() -> None:
    world = World().with_settings(canary=row(7.0))
    world.model.script = Poisoned({7.0})
    with pytest.raises(Fatal, match=r"model\.canary") as caught:
        await world.pipeline().wiring.main.calls.check()
    assert caught.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize("error", [Transient, Overloaded, Unreachable])
@pytest.mark.parametrize("has_canary", [True, False])
def test_a_server_that_serves_every_second_call_takes_no_longer_than_one_that_fails_at_random(
    error: type[Transient], *, has_canary: bool
) -> None:
    @virtual_time
    async def took_s(fails: Callable[[int], bool]) -> float:
        world = World().with_settings(
            window=WindowLimits(64, 1 << 20, 0.010), canary=row(1.0) if has_canary else None
        )
        calls = 0

        async def now_and_then(_: Sequence[Payload]) -> Answers | None:
            nonlocal calls
            calls += 1
            if fails(calls):
                raise error("ill")
            return None

        world.model.script = now_and_then
        world.announce("a.csv", csv(600))
        await run_to_end(world, 1)
        assert rejected_rows(world) == []
        assert calls < 60
        return world.clock.now()

    random = Random(1)
    at_random = took_s(lambda _: random.random() < 0.5)
    assert took_s(lambda number: number % 2 == 0) < 2.0 * at_random
