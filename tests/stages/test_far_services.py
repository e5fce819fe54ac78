"""A store and a model at a distance, in virtual time: as much is asked at a time as streams need.
All tests count what is owed: objects that were announced and are not answered
yet.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from penstock.core.routing.store_choice import DEFAULT
from penstock.core.rows.payload import Payload
from penstock.core.window.window import WindowLimits
from penstock.errors import Overloaded
from penstock.ports import Answers, Location
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, running, until

HZ = 20
PARTITIONS = 4
WINDOW = WindowLimits(max_rows=512, max_bytes=4 << 20, max_wait_s=0.010)


class Far:
    """Announces an object of 8 rows for each tick of each stream. Times are lognormal."""

    def __init__(self, *, store_s: float, model_s: float, **settings: Any) -> None:
        self.random = Random(1)
        self.store_s, self.model_s = store_s, model_s
        self.announced = self.reads = self.most_reads = 0
        self.world = World(PARTITIONS).with_settings(
            window=WINDOW, target_p99_s=0.050, buffer_bytes=64 << 20, inline_bytes=8 << 10
        )
        learned = {
            "fetchers": 256, "begin_fetches": {DEFAULT: 16}, "callers": 64, "begin_calls": 4
        }  # fmt: skip
        self.world.with_settings(**learned | settings)
        self.world.objects.put("b", "tick", csv(8))
        self.world.objects.on_open = self._read
        self.world.model.script = self._call

    async def _read(self, location: Location) -> None:
        self.reads += 1
        self.most_reads = max(self.most_reads, self.reads)
        try:
            await asyncio.sleep(self.store_s * self.random.lognormvariate(0, 0.4))
        finally:
            self.reads -= 1

    async def _call(self, payloads: Sequence[Payload]) -> Answers | None:
        await asyncio.sleep(self.model_s * self.random.lognormvariate(0, 0.2))
        return None

    @property
    def owed(self) -> int:
        return self.announced - int(self.world.telemetry.totals["delivered"])

    async def streams(self, count: int, seconds: float) -> None:
        for tick in range(int(count * HZ * seconds)):
            await asyncio.sleep(1 / (count * HZ))
            stream = tick % count
            self.world.announce(
                "tick",
                stream=f"s{stream}",
                partition=stream % PARTITIONS,
                timestamp_ms=self.world.clock.wall_ms(),
            )
            self.announced += 1
            self.world.sink.deliver()

    def backlog(self, objects: int) -> None:
        for number in range(objects):
            self.world.announce("tick", stream=f"s{number % 8}", partition=number % PARTITIONS)
            self.announced += 1

    async def until_answered(self) -> float:
        """Returns after how many seconds nothing is owed any more."""
        clock = self.world.clock
        began_s = clock.now()
        while self.owed:
            await asyncio.sleep(0.010)
            self.world.sink.deliver()
        return clock.now() - began_s


@virtual_time
async def test_32_streams_far_away_are_kept_up_with_within_three_seconds() -> None:
    far = Far(store_s=0.030, model_s=0.050)
    async with running(far.world):
        await far.streams(32, 3.0)
        for _ in range(20):
            await far.streams(32, 0.1)
            # 640 arrive a second, and one takes about 150 ms from its announcement to its answer.
            assert far.owed < 640 * 0.3
        await far.until_answered()


@virtual_time
async def test_a_constant_that_is_too_low_falls_behind_for_ever() -> None:
    """So the test above fails if nothing is learned."""
    far = Far(store_s=0.030, model_s=0.050, fetchers=16, begin_fetches={})
    async with running(far.world):
        await far.streams(32, 5.0)
        assert far.owed > 640 * 0.3
        await far.until_answered()


@virtual_time
async def test_a_store_that_becomes_far_in_mid_run_is_kept_up_with_within_three_seconds() -> None:
    far = Far(store_s=0.002, model_s=0.002)
    async with running(far.world):
        await far.streams(32, 2.0)
        far.store_s = 0.060
        await far.streams(32, 3.0)
        assert far.owed < 640 * 0.3
        await far.until_answered()


@virtual_time
async def test_a_backlog_of_small_objects_in_a_far_store_is_read_at_1500_a_second() -> None:
    far = Far(store_s=0.030, model_s=0.050)
    far.backlog(6_000)
    async with running(far.world):
        assert await far.until_answered() < 6_000 / 1_500


@pytest.mark.parametrize(
    ("at_a_time", "store_s", "slow"),
    [
        *((number, 0.005, slow) for number in (2, 5, 16) for slow in ({1}, {1, 5, 9})),
        (16, 0.030, {1, 3, 5, 7, 9}),
    ],
)
@virtual_time
async def test_cameras_whose_objects_are_slow_to_come_keep_other_partitions_waiting_for_nothing(
    at_a_time: int, store_s: float, slow: set[int]
) -> None:
    """A store that is near needs few reads at a time, and the slow ones would be all of them."""
    far = Far(store_s=store_s, model_s=0.005, begin_fetches={DEFAULT: at_a_time})
    far.world.objects.put("b", "slow", csv(8))
    cameras = Counter(stream % PARTITIONS for stream in range(10))
    others = cameras.keys() - {stream % PARTITIONS for stream in slow}

    async def read(location: Location) -> None:
        if location.key == "slow":
            await asyncio.sleep(4.0)
        await far._read(location)

    far.world.objects.on_open = read

    async def seconds(seconds: int) -> Counter[int]:
        """How many objects of each partition were answered."""
        before = Counter({number: len(far.world.records(number)) for number in range(PARTITIONS)})
        for tick in range(30 * seconds):
            await asyncio.sleep(1 / 30)
            stream = tick % 10
            far.world.announce(
                "slow" if stream in slow else "tick",
                stream=f"s{stream}",
                partition=stream % PARTITIONS,
                timestamp_ms=far.world.clock.wall_ms(),
            )
            far.announced += 1
            far.world.sink.deliver()
        after = {number: len(far.world.records(number)) for number in range(PARTITIONS)}
        return Counter(after) - before

    async with running(far.world):
        await seconds(2)
        for _ in range(10):
            answered = await seconds(1)
            assert min(answered[each] / (3 * cameras[each]) for each in others) >= 7, answered
        await far.until_answered()


@pytest.mark.parametrize("at_a_time", [1, 2, 16])
@virtual_time
async def test_a_backlog_of_slow_objects_keeps_other_partitions_waiting_for_nothing(
    at_a_time: int,
) -> None:
    """Nothing arrives any more: only the worker itself sees that the reads under way are late."""
    far = Far(store_s=0.005, model_s=0.005, begin_fetches={DEFAULT: at_a_time})
    far.world.objects.put("b", "slow", csv(8))

    async def read(location: Location) -> None:
        await asyncio.sleep(60.0 if location.key == "slow" else 0.005)

    far.world.objects.on_open = read
    for _ in range(60):
        far.world.announce("slow", partition=0)
        far.world.announce("tick", partition=1)
    async with running(far.world):
        await until(lambda: far.world.published(1) == 60 * 8, within_s=10.0)


@pytest.mark.parametrize("learned", [{}, {DEFAULT: 2}], ids=["number", "auto"])
@virtual_time
async def test_late_reads_that_are_sent_again_count_to_the_most_in_flight(
    learned: dict[str, int],
) -> None:
    far = Far(store_s=0.020, model_s=0.005, fetchers=4, begin_fetches=learned, hedged=(DEFAULT,))

    async def read(location: Location) -> None:
        far.store_s = 2.0 if far.random.random() < 0.02 else 0.020
        await far._read(location)

    far.world.objects.on_open = read
    async with running(far.world):
        await far.streams(4, 5.0)
        await far.until_answered()
    assert far.most_reads == 4
    assert len(far.world.objects.opened) > far.announced


@virtual_time
async def test_a_store_that_says_slow_down_is_asked_less_at_a_time_and_none_is_starved() -> None:
    far = Far(store_s=0.030, model_s=0.005)

    async def read(location: Location) -> None:
        if far.reads >= 12:
            raise Overloaded("503 SlowDown")
        await far._read(location)

    far.world.objects.on_open = read
    far.backlog(2_000)
    async with running(far.world):
        # Twelve at a time are 370 a second.
        assert await far.until_answered() < 2_000 / 370 / 0.9 + 1.0
        assert far.world.telemetry.retries < 100
