"""`kafka.dedupe`: what is announced again is answered by a pointer to the first answer."""

import asyncio
from collections.abc import Sequence
from typing import Any

from penstock.core.rows.payload import Payload
from penstock.core.window.window import WindowLimits
from penstock.errors import Poison
from penstock.ports import Answers, Location
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import SETTINGS, World, csv, run_to_end, running, until


def deduping(**settings: Any) -> World:
    return World().with_settings(dedupe=True, **settings)


def pointers(world: World) -> dict[int, str]:
    """By the offset of the reference."""
    return {
        record["source"]["offset"]: record["duplicate_of"]
        for record in world.records()
        if "duplicate_of" in record
    }


def rows_of(world: World, offset: int) -> list[int | None]:
    return [record["row"] for record in world.records() if record["source"]["offset"] == offset]


@virtual_time
async def test_the_same_version_is_answered_once_and_pointed_to_after_that() -> None:
    world = deduping()
    world.announce("a.csv", csv(3))
    for _ in range(3):
        world.announce("a.csv", stream="another")
    await run_to_end(world, 4)
    assert pointers(world) == dict.fromkeys((1, 2, 3), "refs/0/0/0/0")
    assert rows_of(world, 0) == [0, 1, 2]
    assert sum(one.rows for call in world.model.calls for one in call) == 3
    marker = world.records()[-1]
    assert (marker["row"], marker["last"], marker["rows"]) == (None, True, 0)
    assert marker["object"]["version"] == '"1"'
    assert "error" not in marker


@virtual_time
async def test_by_default_it_is_answered_again() -> None:
    world = World()
    world.announce("a.csv", csv(3))
    world.announce("a.csv")
    await run_to_end(world, 2)
    assert pointers(world) == {}
    assert rows_of(world, 1) == [0, 1, 2]


@virtual_time
async def test_a_new_version_and_other_rows_are_answered() -> None:
    world = deduping(fetchers=1)
    world.announce("a.csv", csv(3))
    world.announce("a.csv", rows=[[1, 3]])
    world.announce("a.csv", rows=[[1, 3]])
    opens = 0

    async def change(location: Location) -> None:
        nonlocal opens
        opens += 1
        if opens == 4:
            world.objects.put("b", "a.csv", csv(2))

    world.objects.on_open = change
    world.announce("a.csv")
    await run_to_end(world, 4)
    assert pointers(world) == {2: "refs/0/1/0/1"}
    assert rows_of(world, 3) == [0, 1]


@virtual_time
async def test_one_that_could_not_be_read_is_no_first() -> None:
    world = deduping()
    world.objects.put("b", "a.csv", csv(3))
    world.objects.faults["b", "a.csv"].append(Poison("bad_format", "cut off"))
    for _ in range(3):
        world.announce("a.csv")
    await run_to_end(world, 3)
    assert [record["error"]["code"] for record in world.records() if "error" in record] == [
        "bad_format"
    ]
    assert rows_of(world, 1) == [0, 1, 2]
    assert pointers(world) == {2: "refs/0/1/0/0"}


@virtual_time
async def test_after_a_restart_it_is_answered_again() -> None:
    world = deduping()
    world.announce("a.csv", csv(3))
    await run_to_end(world, 1)
    world.announce("a.csv")
    await run_to_end(world, 2)
    assert pointers(world) == {}
    assert rows_of(world, 1) == [0, 1, 2]


@virtual_time
async def test_partitions_know_nothing_of_each_other() -> None:
    world = World(partitions=2).with_settings(dedupe=True)
    world.announce("a.csv", csv(3), partition=0)
    world.announce("a.csv", partition=1)
    await run_to_end(world, 1)
    assert world.published(0) == world.published(1) == 3


@virtual_time
async def test_it_works_with_the_order_per_stream() -> None:
    world = deduping(order_by_stream=True)
    for number in range(20):
        world.announce(f"{number % 5}.csv", csv(3) if number < 5 else None, stream=f"s{number % 3}")
    await run_to_end(world, 20)
    assert pointers(world) == {n: f"refs/0/{n % 5}/0/0" for n in range(5, 20)}


@virtual_time
async def test_what_was_answered_by_an_error_is_answered_again_when_it_is_sent_back() -> None:
    world = deduping(window=WindowLimits(64, 1 << 20, 0.0))

    async def ill(payloads: Sequence[Payload]) -> Answers | None:
        rows = sum(payload.rows for payload in payloads)
        return Answers([b"null"] * rows, dict.fromkeys(range(rows), "no"))

    world.model.script = ill
    world.announce("a.csv", csv(3))
    async with running(world):
        await until(lambda: world.next_offset() == 1)
        world.model.script = None
        world.announce("a.csv")
        await until(lambda: world.next_offset() == 2)
    assert pointers(world) == {}
    assert [record["prediction"] for record in world.records()[3:]] == [
        {"sum": 0}, {"sum": 2}, {"sum": 4},
    ]  # fmt: skip


@virtual_time
async def test_a_stop_ends_objects_that_wait_for_each_other() -> None:
    world = deduping(drain_s=0.0)
    world.announce("other.csv", csv(1))

    async def wait(location: Location) -> None:
        if location.key == "other.csv":
            await asyncio.sleep(1.0)
        else:
            await asyncio.Event().wait()

    world.objects.on_open = wait
    world.announce("a.csv", csv(3))
    for _ in range(SETTINGS.objects.fetchers - 1):
        world.announce("a.csv")
    async with running(world):
        await until(lambda: world.published() == 1)
    assert pointers(world) == {}
