"""Several stores: each has its own fetchers, its own outage and its own name in what is said."""

import asyncio
from typing import Any

import pytest

from penstock.core.routing.store_choice import DEFAULT, ConfiguredStore, StoreChoice
from penstock.errors import Unreachable
from penstock.ports import Location
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, run_to_end, running, until

PLACES = StoreChoice([ConfiguredStore(DEFAULT, "s3"), ConfiguredStore("far", "gs")])


def two_stores(**settings: Any) -> World:
    return World(partitions=2).with_settings(
        places=PLACES, more_fetchers={"far": 2}, fetchers=2, **settings
    )


@virtual_time
async def test_what_is_allowed_may_be_allowed_of_one_store_only() -> None:
    world = two_stores()
    world.allow = ["far://b/x/", "b/y/"]
    for store in ("far", "objects"):
        for folder in ("x", "y", "z"):
            world.announce(f"{folder}/{store}.csv", csv(1), store=store)
    await run_to_end(world, 6)
    assert [
        (record["object"]["key"], record.get("error") is None) for record in world.records()
    ] == [
        ("x/far.csv", True), ("y/far.csv", True), ("z/far.csv", False),
        ("x/objects.csv", False), ("y/objects.csv", True), ("z/objects.csv", False),
    ]  # fmt: skip


async def far_is_away(location: Location) -> None:
    if location.store == "far":
        raise Unreachable("refused")


@virtual_time
async def test_a_store_that_is_away_keeps_no_fetcher_from_the_others() -> None:
    world = two_stores()
    world.objects.on_open = far_is_away
    for number in range(10):
        world.announce(f"far-{number}", csv(2), partition=0, store="far")
    for number in range(10):
        world.announce(f"near-{number}", csv(2), partition=1)
    async with running(world) as pipeline:
        await until(lambda: world.next_offset(1) == 10)
        away = [outage.service for outage in pipeline.wiring.outages if outage.away_s is not None]
        assert away == ["object store far"]
        assert world.next_offset(0) == 0
        world.objects.on_open = None
        await until(lambda: world.next_offset(0) == 10)
    assert world.dead_letters() == []


@virtual_time
async def test_with_order_by_stream_the_others_of_the_same_partition_go_on() -> None:
    world = two_stores(order_by_stream=True)
    world.objects.on_open = far_is_away
    for number in range(8):
        world.announce(f"far-{number}", csv(2), stream=f"far-{number}", store="gs")
    for number in range(10):
        world.announce(f"near-{number}", csv(2), stream=f"near-{number % 3}")
    async with running(world):
        await until(lambda: world.published() == 20)
        assert {record["stream"][:4] for record in world.records()} == {"near"}
        world.objects.on_open = None
        await until(lambda: world.next_offset() == 18)


@virtual_time
async def test_a_store_has_as_many_fetchers_as_it_is_given() -> None:
    world = two_stores()
    reading = {"far": 0, DEFAULT: 0}
    most = dict(reading)

    async def slowly(location: Location) -> None:
        reading[location.store] += 1
        most[location.store] = max(most[location.store], reading[location.store])
        await asyncio.sleep(0.1)
        reading[location.store] -= 1

    world.objects.on_open = slowly
    world.with_settings(more_fetchers={"far": 5})
    for number in range(20):
        world.announce(f"far-{number}", csv(1), store="far")
        world.announce(f"near-{number}", csv(1))
    await run_to_end(world, 40)
    assert most == {"far": 5, DEFAULT: 2}


@virtual_time
async def test_an_object_is_fetched_at_once_however_the_stores_take_turns() -> None:
    world = two_stores()
    async with running(world):
        for number in range(12):
            store = "far" if number % 3 == 2 else DEFAULT
            world.announce(f"{number}", csv(1), store=store)
            await until(lambda records=number + 1: world.published() == records, within_s=1.0)  # type: ignore[misc]


@virtual_time
async def test_what_no_store_is_for_is_answered_by_a_marker() -> None:
    world = two_stores()
    world.announce("a", csv(1), store="az@acct")
    await run_to_end(world, 1)
    [record] = world.records()
    assert record["error"]["code"] == "not_allowed"
    assert "[stores.NAME]" in record["error"]["message"]
    [letter] = world.dead_letters()
    assert letter["reference"]["store"] == "az@acct"


@pytest.mark.parametrize("store", [None, "far"])
def test_a_record_names_the_store_as_the_reference_did(store: str | None) -> None:
    @virtual_time
    async def scenario() -> None:
        world = two_stores()
        more: dict[str, Any] = {"store": store} if store else {}
        world.announce("a", csv(1), **more)
        await run_to_end(world, 1)
        [record] = world.records()
        assert record["object"].get("store") == store
        assert ("store" in record["object"]) == (store is not None)

    scenario()
