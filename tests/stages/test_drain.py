"""A stop and a revoke: finish what fits, commit it, begin nothing new."""

import asyncio
from collections.abc import Sequence

from penstock.core.routing.store_choice import DEFAULT
from penstock.core.rows.payload import Payload
from penstock.ports import Answers, Location
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, running, until


@virtual_time
async def test_stop_drains_what_was_begun_and_commits_it() -> None:
    world = World().with_settings(commit_interval_s=1000.0)

    async def slow(payloads: Sequence[Payload]) -> Answers | None:
        await asyncio.sleep(2.0)
        return None

    world.model.script = slow
    world.announce("a.csv", csv(3))
    async with running(world):
        await until(lambda: world.model.in_flight == 1)
    assert world.published() == 3
    assert world.next_offset() == 1


@virtual_time
async def test_stop_gives_up_after_its_budget_and_commits_only_what_is_delivered() -> None:
    world = World(partitions=2).with_settings(drain_s=5.0)

    async def stuck_with_many(payloads: Sequence[Payload]) -> Answers | None:
        if sum(payload.rows for payload in payloads) > 3:
            await asyncio.sleep(1e6)
        return None

    world.model.script = stuck_with_many
    world.announce("a.csv", csv(3), partition=0)
    async with running(world):
        await until(lambda: world.next_offset(0) == 1)
        world.announce("b.csv", csv(30), partition=1)
        await until(lambda: world.model.in_flight == 1)
        stopped_s = world.clock.now()
    assert 5.0 <= world.clock.now() - stopped_s < 6.0
    assert (world.next_offset(0), world.next_offset(1)) == (1, 0)


@virtual_time
async def test_reads_that_hang_when_the_budget_is_over_end_without_another_in_their_place() -> None:
    world = World(partitions=2).with_settings(drain_s=5.0, fetchers=8, begin_fetches={DEFAULT: 2})
    world.objects.put("b", "tick", csv(3))

    async def hang(location: Location) -> None:
        await asyncio.sleep(1e6 if location.key == "slow" else 0.005)

    world.objects.on_open = hang
    async with running(world):
        for _ in range(40):
            world.announce("slow", partition=0)
            world.announce("tick", partition=1)
            await asyncio.sleep(0.1)
        stopped_s = world.clock.now()
    assert 5.0 <= world.clock.now() - stopped_s < 6.0


@virtual_time
async def test_after_a_revoke_nothing_of_the_partition_is_published_or_committed() -> None:
    world = World(partitions=2).with_settings(drain_s=1.0)
    release = asyncio.Event()

    async def stuck(payloads: Sequence[Payload]) -> Answers | None:
        await release.wait()
        return None

    world.model.script = stuck
    world.announce("a.csv", csv(3), partition=0)
    world.announce("b.csv", csv(3), partition=1)
    async with running(world) as pipeline:
        await until(lambda: world.model.in_flight == 1)
        await world.source.revoke([0])
        release.set()
        await until(lambda: world.next_offset(1) == 1)
        assert world.records(0) == []
        assert world.next_offset(0) == 0
        assert pipeline.wiring.budget.spent_bytes == 0
        await world.source.assign([0])
        await until(lambda: world.next_offset(0) == 1)
    assert world.published(0) == 3


@virtual_time
async def test_a_drain_waits_for_the_reports_of_what_is_sent_and_commits_it() -> None:
    world = World()
    world.sink.hold = True
    world.announce("a.csv", csv(3))
    async with running(world):
        await until(lambda: world.published() == 3)
        asyncio.get_running_loop().call_later(1.0, world.sink.deliver)
        await world.source.revoke([0])
        assert world.next_offset() == 1
        world.sink.hold = False


@virtual_time
async def test_a_rebalance_in_the_drain_of_a_stop_waits_for_it_and_begins_nothing_new() -> None:
    world = World().with_settings(drain_s=5.0)
    release = asyncio.Event()

    async def stuck(payloads: Sequence[Payload]) -> Answers | None:
        await release.wait()
        return None

    world.model.script = stuck
    world.announce("a.csv", csv(3))
    async with running(world) as pipeline:
        await until(lambda: world.model.in_flight == 1)
        pipeline.stop()
        await asyncio.sleep(1.0)
        asyncio.get_running_loop().call_later(1.0, release.set)
        await world.source.revoke([0])
        assert world.next_offset() == 1
        await world.source.assign([0])
        assert pipeline.wiring.lanes == {}


@virtual_time
async def test_a_partition_that_comes_back_starts_where_it_was_committed() -> None:
    world = World()
    world.announce("a.csv", csv(1))
    world.announce("b.csv", csv(1))
    async with running(world):
        await until(lambda: world.next_offset() == 2)
        await world.source.revoke([0])
        world.announce("c.csv", csv(1))
        await world.source.assign([0])
        await until(lambda: world.next_offset() == 3)
    assert [record["object"]["key"] for record in world.records()] == ["a.csv", "b.csv", "c.csv"]
