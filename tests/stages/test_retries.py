"""What is tried again, for how long, and what ends the worker."""

import asyncio
import gc
from collections.abc import Sequence

import pytest

from penstock.core.rows.payload import Payload
from penstock.errors import Fatal, Overloaded, Transient, Unreachable
from penstock.ports import PROBE_KEY, Answers, Commit, Location
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.partitions import P1
from tests.support.pipelines import World, csv, rows_and_sums, run_to_end, running, until


@virtual_time
async def test_a_broken_transfer_starts_again_and_repeats_no_row() -> None:
    world = World()
    world.objects.chunk_bytes = 100
    world.announce("a.csv", csv(200))
    world.objects.faults["b", "a.csv"].extend([Transient("cut"), Unreachable("away")])
    await run_to_end(world, 1)
    assert rows_and_sums(world) == [(0, row, 2.0 * row) for row in range(200)]
    assert sum(payload.rows for call in world.model.calls for payload in call) == 200
    assert [location.etag for location in world.objects.opened] == [None, '"1"', '"1"']


@virtual_time
async def test_an_object_that_the_store_keeps_failing_ends_as_unavailable() -> None:
    world = World()
    world.announce("a.csv", csv(2))
    world.objects.faults["b", "a.csv"].extend(Transient("503") for _ in range(1000))
    await run_to_end(world, 1)
    assert world.records()[-1]["error"]["code"] == "unavailable"
    assert 100.0 < world.clock.now() < 200.0


def test_a_store_that_is_away_is_waited_for_however_long(caplog: pytest.LogCaptureFixture) -> None:
    @virtual_time
    async def scenario() -> None:
        world = World()
        for number in range(20):
            world.announce(f"{number}.csv", csv(2))

        async def away_for_an_hour(location: Location) -> None:
            if world.clock.now() < 3600.0:
                raise Unreachable("refused")

        world.objects.on_open = away_for_an_hour
        async with running(world):
            await until(lambda: world.next_offset() == 20, within_s=4000.0)
        assert len(rows_and_sums(world)) == 40
        assert world.dead_letters() == []

    scenario()
    logged = [line for line in caplog.messages if "object store" in line]
    assert [line.split(" after")[0] for line in logged] == [
        "the object store does not answer, waiting: refused",
        "the object store answers again",
    ]


@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize(
    ("error", "after_s"),
    [
        (Transient("503 InternalError"), 0.0),
        (Overloaded("503 SlowDown"), 0.0),
        (Unreachable("no byte within 30 s"), 30.0),
    ],
)
def test_a_store_that_sends_no_object_and_answers_other_questions_is_waited_for(
    error: Transient, after_s: float, partitions: int
) -> None:
    # More than seven times as long as an object is tried while others come.
    over_s = 1_000.0

    @virtual_time
    async def scenario() -> None:
        world = World(partitions)

        async def ill(location: Location) -> None:
            if 100.0 < world.clock.now() < over_s and location.key != PROBE_KEY:
                await asyncio.sleep(after_s)
                raise error

        def announce() -> None:
            for number in range(5):
                for partition in range(partitions):
                    world.announce(f"{partition}-{number}.csv", csv(2), partition=partition)

        world.objects.on_open = ill
        announce()
        async with running(world) as pipeline:
            await asyncio.sleep(101.0)
            announce()
            await asyncio.sleep(10.0 + 3.0 * after_s)
            (outage,) = pipeline.wiring.outages[:1]
            assert outage.why == f"it sends no object: {error}"
            await until(
                lambda: all(world.next_offset(each) == 10 for each in range(partitions)),
                within_s=over_s,
            )
            assert outage.why is None
        assert world.clock.now() < over_s + 100.0
        assert world.dead_letters() == []

    scenario()


@virtual_time
async def test_a_worker_that_starts_while_the_store_fails_at_everything_waits_for_it() -> None:
    world = World()

    async def ill(location: Location) -> None:
        if world.clock.now() < 3_600.0:
            raise Transient("503 InternalError")

    world.objects.on_open = ill
    world.announce("a.csv", csv(2))
    async with running(world) as pipeline:
        await asyncio.sleep(10.0)
        assert pipeline.wiring.outages[0].why is not None
        await until(lambda: world.next_offset() == 1, within_s=3_700.0)
    assert world.dead_letters() == []


@virtual_time
async def test_an_object_that_fails_while_no_other_comes_is_given_up_after_two_minutes() -> None:
    world = World(2)

    async def one_is_ill(location: Location) -> None:
        if location.key == "bad.csv":
            raise Transient("503 InternalError")

    world.objects.on_open = one_is_ill
    world.announce("good.csv", csv(2))
    async with running(world):
        await until(lambda: world.next_offset() == 1)
        world.announce("bad.csv", csv(2))
        await until(lambda: world.next_offset() == 2, within_s=200.0)
    assert [letter["code"] for letter in world.dead_letters()] == ["unavailable"]


@pytest.mark.parametrize("service", ["object store", "model server"])
def test_with_patience_a_service_that_stays_away_ends_the_process_with_3(service: str) -> None:
    @virtual_time
    async def scenario() -> None:
        world = World().with_settings(patience_s=60.0)
        world.announce("a.csv", csv(2))

        async def away(_: object) -> None:
            raise Unreachable("refused")

        if service == "object store":
            world.objects.on_open = away
        else:
            world.model.script = away
        with pytest.raises(BaseExceptionGroup) as caught:
            async with running(world):
                await until(lambda: False, within_s=600.0)
        assert caught.group_contains(Fatal, match=f"the {service} did not answer for 60 s")
        assert 60.0 <= world.clock.now() < 70.0

    scenario()


@virtual_time
async def test_a_sick_server_is_waited_for_and_no_row_is_blamed() -> None:
    world = World()
    world.announce("a.csv", csv(3))

    async def sick_for_an_hour(payloads: Sequence[Payload]) -> Answers | None:
        if world.clock.now() < 3600.0:
            raise Transient("overloaded")
        return None

    world.model.script = sick_for_an_hour
    async with running(world):
        await until(lambda: world.next_offset() == 1, within_s=4000.0)
    assert rows_and_sums(world) == [(0, row, 2.0 * row) for row in range(3)]
    assert world.dead_letters() == []
    assert len(world.model.calls) < 2_000


async def no_such_model(payloads: Sequence[Payload]) -> Answers | None:
    raise Fatal("no model of that name")


@virtual_time
async def test_a_fatal_answer_ends_the_worker() -> None:
    world = World()
    world.announce("a.csv", csv(1))

    world.model.script = no_such_model
    with pytest.raises(BaseExceptionGroup) as caught:
        async with running(world):
            await until(lambda: False)
    assert caught.group_contains(Fatal, match="no model of that name")
    assert world.source.commits == []


@virtual_time
async def test_a_worker_that_fails_begins_no_partition_any_more() -> None:
    """The group may hand one over while the tasks of a failed worker end."""
    world = World()
    world.announce("a.csv", csv(1))

    world.model.script = no_such_model
    pipeline = world.pipeline()
    with pytest.raises(BaseExceptionGroup):
        await pipeline.run()
    await pipeline.assignments.assigned({P1: Commit(0)})
    gc.collect()  # work that was never begun would be said here
    assert not pipeline.wiring.lanes.keys() & {P1}


@virtual_time
async def test_a_retry_asks_for_the_version_that_the_first_try_read() -> None:
    world = World()
    world.objects.versioned = True
    world.objects.chunk_bytes = 100
    world.announce("a.csv", csv(200))
    world.objects.faults["b", "a.csv"].append(Transient("cut"))
    await run_to_end(world, 1)
    assert [location.version_id for location in world.objects.opened] == [None, "v1"]
    assert rows_and_sums(world) == [(0, row, 2.0 * row) for row in range(200)]


@virtual_time
async def test_a_transfer_that_goes_on_is_not_given_up_however_often_it_breaks() -> None:
    world = World()
    world.objects.chunk_bytes = 100
    world.announce("a.csv", csv(500))

    async def slow_and_further_each_time(location: Location) -> None:
        if location.key == "a.csv":
            world.objects.faulty_after_chunks += 3
            await asyncio.sleep(60.0)

    world.objects.on_open = slow_and_further_each_time
    world.objects.faults["b", "a.csv"].extend(Transient("cut") for _ in range(8))
    await run_to_end(world, 1)
    assert rows_and_sums(world) == [(0, row, 2.0 * row) for row in range(500)]
