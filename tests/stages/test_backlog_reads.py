"""A stream whose class is backlog, read beside live ones, in virtual time."""

import asyncio
from collections import deque

from penstock.core.window.priorities import Priorities, StreamPriority
from penstock.core.window.window import WindowLimits
from penstock.errors import Transient
from penstock.ports import Location
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, running

LIVE, JOB = 3, 3  # partitions of live streams; the job's partition
HZ = 300
STORE_S = 0.004


class Beside:
    """A store that is as much slower as it has reads in flight above four."""

    def __init__(self, *, has_class: bool = True) -> None:
        entries = [("job", StreamPriority(kind="backlog" if has_class else None))]
        self.world = World(LIVE + 1).with_settings(
            window=WindowLimits(512, 4 << 20, 0.002, priorities=Priorities(entries)),
            target_p99_s=0.050,
            buffer_bytes=64 << 20,
        )
        self.world.objects.put("b", "tick", csv(8))
        self.world.objects.put("b", "job", csv(8))
        self.world.objects.on_open = self._read
        self.reads = self.job_reads = self.most_job_reads = 0

    async def _read(self, location: Location) -> None:
        is_job = location.key == "job"
        self.reads, self.job_reads = self.reads + 1, self.job_reads + is_job
        self.most_job_reads = max(self.most_job_reads, self.job_reads)
        try:
            await asyncio.sleep(STORE_S * max(1.0, self.reads / 4))
        finally:
            self.reads, self.job_reads = self.reads - 1, self.job_reads - is_job

    def announce_job(self, objects: int) -> None:
        for _ in range(objects):
            self.world.announce("job", stream="job", partition=JOB, timestamp_ms=0)

    async def live(self, seconds: float, hz: int = HZ) -> list[float]:
        """How long each object of the live streams took until its answer left, shortest first."""
        world, took = self.world, list[float]()
        due = [deque[float]() for _ in range(LIVE)]
        answered = [world.published(number) for number in range(LIVE)]
        began_s = next_s = world.clock.now()
        while world.clock.now() < began_s + seconds or any(due):
            now_s = world.clock.now()
            if now_s >= next_s and now_s < began_s + seconds:
                number = round((next_s - began_s) * hz) % LIVE
                now_ms = world.clock.wall_ms()
                stream = f"s{number}"
                world.announce("tick", stream=stream, partition=number, timestamp_ms=now_ms)
                due[number].append(now_s)
                next_s += 1 / hz
            await asyncio.sleep(0.001)
            world.sink.deliver()
            for number, waiting in enumerate(due):
                while waiting and world.published(number) >= answered[number] + 8:
                    answered[number] += 8
                    took.append(world.clock.now() - waiting.popleft())
        return sorted(took)


@virtual_time
async def test_live_objects_take_at_most_a_fifth_longer_beside_backlog() -> None:
    beside = Beside()
    async with running(beside.world):
        alone = await beside.live(2.0)
        beside.announce_job(20_000)
        await beside.live(5.0)
        took = await beside.live(5.0)
        assert took[len(took) * 99 // 100] <= 1.2 * alone[len(alone) * 99 // 100]
        assert beside.world.published(JOB) > 8 * 500


@virtual_time
async def test_of_no_class_a_job_slows_live_objects_down() -> None:
    """So the test above fails if backlog is read as all else."""
    beside = Beside(has_class=False)
    async with running(beside.world):
        alone = await beside.live(2.0)
        beside.announce_job(20_000)
        took = await beside.live(5.0)
        assert took[len(took) * 99 // 100] > 1.2 * alone[len(alone) * 99 // 100]


@virtual_time
async def test_without_live_objects_backlog_has_all_reads() -> None:
    beside = Beside()
    async with running(beside.world):
        await beside.live(0.5)
        beside.announce_job(2_000)
        await beside.live(2.0)
        assert beside.most_job_reads < 4
        assert beside.world.published(JOB) < 8 * 500
        for _ in range(3_000):
            await asyncio.sleep(0.001)
            beside.world.sink.deliver()
        assert beside.most_job_reads == 16
        assert beside.world.published(JOB) > 8 * 1_500


@virtual_time
async def test_the_age_of_backlog_says_nothing_about_the_pace_of_live_calls() -> None:
    beside = Beside()
    async with running(beside.world) as pipeline:
        beside.announce_job(1_000)
        await beside.live(2.0)
        pace = pipeline.wiring.main.pace
        assert pace is not None
        assert beside.world.published(JOB)
        assert pace.elsewhere_s < 0.025


@virtual_time
async def test_an_object_of_backlog_that_fails_keeps_no_other_backlog_from_being_read() -> None:
    beside = Beside()
    beside.world.objects.put("b", "fails", csv(8))
    read = beside.world.objects.on_open
    assert read is not None

    async def failing(location: Location) -> None:
        await read(location)
        if location.key == "fails":
            raise Transient("503 InternalError")

    beside.world.objects.on_open = failing
    async with running(beside.world):
        await beside.live(1.0)
        for key in ["fails", *["job"] * 100]:
            beside.world.announce(key, stream="job", partition=JOB, timestamp_ms=0)
        await beside.live(10.0)
        opened = [location.key for location in beside.world.objects.opened]
        assert opened.count("job") >= 30
