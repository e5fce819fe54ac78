"""Objects that break: always at the same byte, between two versions, or for good after a takeover.

Rule: the partition moves on in bounded time, whatever one object does.
"""

import asyncio
from collections import deque

import pytest

from penstock.core.window.window import WindowLimits
from penstock.errors import LockedOut, PenstockError, Poison, Transient, Unreachable
from penstock.ports import PROBE_KEY, Location
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import BUCKET, World, csv, run_to_end, running, until


class _Always(deque[Exception]):
    """The same fault at every try."""

    def __init__(self, fault: PenstockError) -> None:
        super().__init__([fault])

    def popleft(self) -> Exception:
        return self[0]


def cut_at(world: World, key: str, fault: PenstockError) -> None:
    world.objects.chunk_bytes, world.objects.faulty_after_chunks = 1024, 3
    world.objects.faults[BUCKET, key] = _Always(fault)


@pytest.mark.parametrize("fault", [Unreachable("cut at byte 3072"), Transient("cut at byte 3072")])
def test_an_object_that_always_breaks_at_one_byte_is_given_up_after_two_minutes(
    fault: PenstockError,
) -> None:
    @virtual_time
    async def scenario() -> None:
        world = World()
        cut_at(world, "bad.csv", fault)
        world.announce("bad.csv", csv(1_000))
        world.announce("good.csv", csv(10))
        await run_to_end(world, 2)
        assert 120.0 <= world.clock.now() < 200.0
        *rows, marker = [record for record in world.records() if record["object"]["key"][0] == "b"]
        assert [record["row"] for record in rows] == list(range(len(rows)))
        assert 0 < len(rows) < 1_000
        assert (marker["error"]["code"], marker["rows"]) == ("unavailable", len(rows))
        assert world.records()[-1]["object"]["key"] == "good.csv"
        [letter] = world.dead_letters()
        assert letter["reference"]["rows"] == [[len(rows), None]]

    scenario()


@virtual_time
async def test_a_cut_object_does_not_keep_a_standstill_from_being_seen() -> None:
    """Its tries have an end of their own, so they are no sign of life of anything else."""
    world = World()
    cut_at(world, "bad.csv", Unreachable("cut"))
    world.announce("bad.csv", csv(1_000))
    async with running(world):
        await until(lambda: len(world.objects.opened) > 5)
        assert world.telemetry.retries == 0
        await until(lambda: world.next_offset() == 1, within_s=600.0)


@pytest.mark.parametrize("probe", [None, Poison("forbidden", "403"), Transient("503")])
def test_an_object_that_is_never_answered_is_given_up_if_the_store_answers_for_others(
    probe: PenstockError | None,
) -> None:
    @virtual_time
    async def scenario() -> None:
        world = World()

        async def silent_for_one(location: Location) -> None:
            if location.key == "mute.csv":
                await asyncio.sleep(30.0)
                raise Unreachable("no byte within 30 s")
            if location.key == PROBE_KEY and probe is not None:
                raise probe

        world.objects.on_open = silent_for_one
        world.announce("mute.csv", csv(10))
        world.announce("good.csv", csv(10))
        await run_to_end(world, 2)
        assert 120.0 <= world.clock.now() < 200.0
        marker, *rows = world.records()
        assert (marker["error"]["code"], marker["rows"]) == ("unavailable", 0)
        assert [row["object"]["key"] for row in rows] == ["good.csv"] * 10

    scenario()


@pytest.mark.parametrize("fault", [Unreachable("silent"), LockedOut("expired")])
def test_a_store_that_answers_for_nothing_is_waited_for(fault: PenstockError) -> None:
    @virtual_time
    async def scenario() -> None:
        world = World()

        async def away_for_an_hour(_: Location) -> None:
            if world.clock.now() < 3_600.0:
                raise fault

        world.objects.on_open = away_for_an_hour
        world.announce("a.csv", csv(10))
        async with running(world):
            await until(lambda: world.next_offset() == 1, within_s=4_000.0)
        assert [record["row"] for record in world.records()] == list(range(10))

    scenario()


@virtual_time
async def test_the_time_in_which_the_store_is_away_does_not_count() -> None:
    world = World()
    cut_at(world, "a.csv", Unreachable("cut"))

    async def away_for_an_hour(_: Location) -> None:
        if 1.0 < world.clock.now() < 3_600.0:
            raise Unreachable("refused")
        if world.clock.now() > 3_660.0:
            world.objects.faults.clear()

    world.objects.on_open = away_for_an_hour
    world.announce("a.csv", csv(1_000))
    async with running(world):
        await until(lambda: world.next_offset() == 1, within_s=4_000.0)
    assert [record["row"] for record in world.records()] == list(range(1_000))
    assert world.dead_letters() == []


async def answered_in_part(world: World) -> int:
    """A worker dies when some rows are delivered and committed; how many."""

    async def slow(_: object) -> None:
        await asyncio.sleep(0.05)

    world.model.script = slow
    world.with_settings(
        window=WindowLimits(50, 1 << 20, 0.01), callers=1, commit_interval_s=0.01, drain_s=0.0
    )
    async with running(world):
        await until(lambda: world.published() >= 200)
        world.model.script = stuck
        await asyncio.sleep(1.0)
    world.model.script = None
    return world.published()


async def stuck(_: object) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("exactly_once", [False, True])
def test_rows_that_a_former_worker_answered_count_when_the_object_is_gone(
    exactly_once: bool,
) -> None:
    @virtual_time
    async def scenario() -> None:
        world = World(exactly_once=exactly_once)
        world.announce("a.csv", csv(1_000))
        done = await answered_in_part(world)
        world.objects.delete(BUCKET, "a.csv")
        await run_to_end(world, 1)
        *rows, marker = world.records()
        assert [record["row"] for record in rows] == list(range(done))
        assert (marker["row"], marker["rows"], marker["last"]) == (None, done, True)
        assert marker["error"]["code"] == "not_found"
        [letter] = world.dead_letters()
        assert letter["reference"]["rows"] == [[done, None]]

    scenario()


@virtual_time
async def test_another_version_that_is_too_large_owes_all_its_rows() -> None:
    world = World()
    world.announce("a.csv", csv(1_000))
    await answered_in_part(world)
    world.objects.put(BUCKET, "a.csv", csv(2_000))
    world.with_settings(object_bytes=1_000)
    await run_to_end(world, 1)
    marker = world.records()[-1]
    assert (marker["error"]["code"], marker["rows"]) == ("too_large", 0)
    [letter] = world.dead_letters()
    assert letter["reference"].get("rows") is None


@virtual_time
async def test_without_a_pin_a_retry_keeps_the_version_of_the_rows_it_has() -> None:
    world = World().with_settings(pin=False)
    world.objects.chunk_bytes, world.objects.faulty_after_chunks = 1024, 3
    world.objects.faults[BUCKET, "a.csv"].append(Transient("cut"))
    world.announce("a.csv", csv(1_000))
    overwrite_at_the_second_open(world)
    await run_to_end(world, 1)
    *rows, marker = world.records()
    assert 0 < len(rows) < 1_000
    assert all(record["prediction"] == {"sum": 2 * record["row"]} for record in rows)
    assert (marker["error"]["code"], marker["rows"]) == ("changed", len(rows))


@virtual_time
async def test_without_a_pin_and_without_rows_a_retry_reads_what_is_there() -> None:
    world = World().with_settings(pin=False)
    world.objects.chunk_bytes = 1
    world.objects.faults[BUCKET, "a.csv"].append(Transient("cut"))
    world.announce("a.csv", csv(10), etag="another")
    overwrite_at_the_second_open(world)
    await run_to_end(world, 1)
    assert [record["prediction"]["sum"] for record in world.records()] == [
        2 * (5_000 + row) for row in range(1_000)
    ]


def overwrite_at_the_second_open(world: World) -> None:
    async def on_open(_: Location) -> None:
        if len(world.objects.opened) == 2:
            world.objects.put(BUCKET, "a.csv", csv(1_000, 5_000))

    world.objects.on_open = on_open
