"""A region that needs help gets it, and its partitions back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson

from penstock.adapters.inputs.regional_source import RegionalSource
from penstock.core.health.other_groups import HelpTerms, RegionState
from penstock.core.routing.store_choice import ConfiguredStore, StoreChoice
from penstock.decoders.simulated import DecodersAtHand
from penstock.errors import Fatal, Unreachable
from penstock.pipeline.life import Pipeline
from penstock.pipeline.wiring import Wiring
from penstock.ports import Adapters, Location
from penstock.stages.help_regions import REST_S
from penstock.tools.simulation.virtual_time import inline, virtual_time
from tests.support.memory import MemorySource
from tests.support.pipelines import BUCKET, World, csv, running, until

TERMS = HelpTerms(lag=100, after_s=10.0)
WELL, GONE = RegionState(0, 1), RegionState(0, 0)


class Group(MemorySource):
    """Of the region `us`, as one helper sees it."""

    def __init__(self) -> None:
        super().__init__(topic="refs.us")
        self.is_member = False

    async def start(self, rebalance: Any) -> None:
        await super().start(rebalance)
        self.is_member = True

    async def stop(self) -> None:
        await super().stop()
        self.is_member = False


class Regions:
    """A worker of `eu`, that helps `us`."""

    def __init__(self) -> None:
        self.standing: RegionState | None = WELL
        self.own = WELL
        self.group = Group()
        self.world = World()
        self.world.telemetry.in_region("eu", {})
        self.source = RegionalSource(
            self.world.source, lambda _: self.group, {"refs.us": "us"}, self.look
        )

    async def look(self, region: str | None) -> RegionState:
        found = self.own if region is None else self.standing
        if found is None:
            raise Unreachable("nobody answers")
        return found

    def pipeline(self) -> Pipeline:
        world = self.world.with_settings(helping={"us": TERMS})
        adapters = Adapters(
            self.source, world.objects, world.model, world.sink, world.clock,
            neighbours=self.source,
        )  # fmt: skip
        wiring = Wiring(
            world.settings,
            adapters,
            world.telemetry,
            decoders=DecodersAtHand(),
            offload=inline,
            raises=True,
        )
        return Pipeline(wiring)

    def announce(self, number: int) -> None:
        self.world.objects.put(BUCKET, f"us-{number}.csv", csv(3, start=number))
        self.group.append(orjson.dumps({"bucket": BUCKET, "key": f"us-{number}.csv"}))

    @property
    def committed(self) -> int:
        found = self.group.committed.get(0)
        return found.next_offset if found is not None else 0

    @property
    def answered(self) -> list[str]:
        return [record["id"] for record in self.world.records()]


@asynccontextmanager
async def helping(regions: Regions) -> AsyncIterator[None]:
    """As `running`, from the moment that it helps `us`."""
    async with running(regions):
        regions.standing = GONE
        await until(lambda: regions.group.is_member)
        yield


def ids(numbers: range) -> list[str]:
    return [f"refs.us/0/{offset}/0/{row}" for offset in numbers for row in range(3)]


@virtual_time
async def test_a_region_without_workers_is_helped_and_given_back() -> None:
    regions = Regions()
    async with running(regions) as pipeline:
        regions.announce(0)
        await asyncio.sleep(60.0)
        assert regions.answered == [], "a region that is well is left alone"
        regions.standing = GONE
        await until(lambda: regions.committed == 1)
        assert regions.group.is_member
        regions.announce(1)
        await until(lambda: regions.committed == 2)
        regions.standing = WELL
        await until(lambda: not regions.group.is_member)
        regions.announce(2)
        regions.world.announce("own.csv", csv(1))
        await until(lambda: regions.world.next_offset() == 1)
        await asyncio.sleep(60.0)
    assert regions.answered[:6] == ids(range(2))
    assert regions.committed == 2
    assert [lane for lane in pipeline.wiring.lanes.values() if lane.where.topic == "refs.us"] == []


@virtual_time
async def test_giving_back_hands_over_what_was_begun_and_commits_it() -> None:
    regions = Regions()
    async with helping(regions):
        regions.standing = WELL

        async def slow(_: Location) -> None:
            await asyncio.sleep(3.0)

        regions.world.objects.on_open = slow
        for number in range(10):
            regions.announce(number)
            await asyncio.sleep(1.0)
        await until(lambda: not regions.group.is_member)
    assert regions.committed > 0
    assert regions.answered == ids(range(regions.committed))


@virtual_time
async def test_a_stop_in_the_middle_is_one_drain_for_all() -> None:
    regions = Regions()
    async with helping(regions):

        async def slow(_: Location) -> None:
            await asyncio.sleep(10.0)

        regions.world.objects.on_open = slow
        regions.announce(0)
        regions.world.announce("own.csv", csv(1))
        await asyncio.sleep(1.0)
        began_s = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began_s < 12.0
    assert (regions.committed, regions.world.next_offset()) == (1, 1)
    assert not regions.group.is_member


@virtual_time
async def test_what_fails_elsewhere_is_tried_again_and_costs_no_work_of_our_own() -> None:
    regions = Regions()
    tries: list[float] = []

    async def refuse() -> None:
        tries.append(asyncio.get_running_loop().time())
        raise Fatal("no right to read refs.us") if len(tries) == 1 else Unreachable("refused")

    regions.group.on_start = refuse
    regions.standing = GONE
    async with running(regions):
        await until(lambda: len(tries) == 2, within_s=200.0)
        regions.world.announce("own.csv", csv(1))
        await until(lambda: regions.world.next_offset() == 1)
        regions.group.on_start = None
        regions.announce(0)
        await until(lambda: regions.committed == 1, within_s=200.0)
    assert tries[1] - tries[0] >= REST_S


@virtual_time
async def test_nobody_helps_on_a_guess_or_while_it_is_behind_itself() -> None:
    regions = Regions()
    regions.standing = None
    async with running(regions):
        await asyncio.sleep(60.0)
        assert not regions.group.is_member
        regions.standing, regions.own = GONE, RegionState(101, 1)
        await asyncio.sleep(60.0)
        assert not regions.group.is_member
        regions.own = WELL
        await until(lambda: regions.group.is_member)


@virtual_time
async def test_references_of_a_region_are_read_from_its_store() -> None:
    regions = Regions()
    both = [ConfiguredStore("eu", "s3"), ConfiguredStore("us", "s3")]
    regions.world.with_settings(
        places=StoreChoice(both, ["eu"]),
        near={"refs.us": StoreChoice(both, ["us"])},
        more_fetchers={"eu": 2, "us": 2},
    )
    regions.standing = GONE
    async with running(regions):
        regions.announce(0)
        regions.world.announce("own.csv", csv(1))
        await until(lambda: regions.committed == 1 and regions.world.next_offset() == 1)
    opened = regions.world.objects.opened
    assert {(one.key, one.store) for one in opened} == {("us-0.csv", "us"), ("own.csv", "eu")}
