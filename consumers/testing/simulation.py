"""A whole world from one seed: workers run, die, freeze and come back; four promises are checked.

    not ahead   nothing is committed before its delivery was acknowledged to who commits it
    in order    each assignment publishes row after row, from where it was committed to begin
    answered    when the storm is over, everything that was asked is on the output topic
    in bounds   bytes, objects and calls in flight never exceed their limits

Order per stream and exactly once are promised in some of the worlds, and then checked as such.

Rule: one seed, one history, on every machine. Owner: whoever calls `simulate`, a test.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from consumers.testing.group import SESSION_S
from consumers.testing.history import Violation
from consumers.testing.scenario import Scenario
from consumers.testing.virtual_time import VirtualTimeLoop
from consumers.testing.worker import Worker
from consumers.testing.world import World

__all__ = ["Report", "Scenario", "Violation", "simulate"]

# A world of 25 ms on average: 2,000 seeds are less than a minute of CPU.
MOST_DISTURBANCES = 16
# When the storm is over everything is answered within this time, or never: an object that cannot
# be read is given up after two minutes, one after the other where fetchers are few.
CALM_S = 3_600.0
# Beyond the budget of time for a drain: the last commit, and leaving the group.
STOP_S = 60.0


class Report(NamedTuple):
    """What a simulation went through. `digest` is equal for equal histories."""

    seed: int
    rows: int
    repeated: int
    counts: Mapping[str, int]
    digest: str


def simulate(seed: int, scenario: Scenario | None = None) -> Report:
    """Raises `Violation` with the seed and the history when a promise is broken."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(_Storm(World(seed, scenario or Scenario())).blow())


class _Storm:
    """Does to a world what the seed says."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._tasks = asyncio.TaskGroup()

    async def blow(self) -> Report:
        world = self._world
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.each_turn(world.look)
        try:
            async with self._tasks:
                coordinating = self._tasks.create_task(world.group.coordinate())
                living = self._tasks.create_task(self._live())
                failing = self._tasks.create_task(world.history.failed.wait())
                await asyncio.wait([living, failing], return_when=asyncio.FIRST_COMPLETED)
                for task in (coordinating, living, failing):
                    task.cancel()
                for worker in world.workers:
                    worker.kill(is_cut=True)
        finally:
            loop.each_turn(None)
        if world.history.failure is not None:
            raise world.history.failure
        outcome, history = world.outcome, world.history
        return Report(
            history.seed, outcome.rows, outcome.repeated, history.counts, history.digest()
        )

    async def _live(self) -> None:
        """Something happens, again and again; then calm, and an end."""
        world, random = self._world, self._random
        self._hire()
        for _ in range(random.randint(1, 6)):
            world.announce()
        for _ in range(random.randint(0, MOST_DISTURBANCES)):
            await self._wait()
            await self._disturb()
        await self._wait()
        world.weather.calm()
        for worker in self._running():
            worker.go_on()
        if not [worker for worker in self._running() if not worker.stopping]:
            self._hire()
        await self._answered()
        await self._stopped()

    async def _wait(self) -> None:
        """By turns of the loop as often as by time: races are between two turns."""
        if self._random.random() < 0.5:
            await asyncio.sleep(self._random.choice((0.01, 0.3, 3.0)) * self._random.random())
        else:
            for _ in range(self._random.randint(1, 200)):
                await asyncio.sleep(0)

    async def _disturb(self) -> None:
        world, random = self._world, self._random
        actions = (
            world.announce, world.overwrite, self._hire, self._kill, self._stop, self._freeze,
            world.group.rebalance,
        )  # fmt: skip
        (action,) = random.choices(actions, weights=(8, 1, 3, 3, 1, 4, 2))
        action()

    def _running(self) -> list[Worker]:
        return [worker for worker in self._world.workers if worker.process.alive]

    def _hire(self) -> None:
        if len(self._running()) < 3:
            worker = self._world.hire()
            self._world.history.note("hire", worker.name)
            self._tasks.create_task(self._employ(worker))

    async def _employ(self, worker: Worker) -> None:
        """Run it; a failure of the broker ends it, and another one takes its place."""
        try:
            await worker.run()
        except* asyncio.CancelledError:
            pass
        except* Exception as group:
            self._died(worker, group)
        if worker.process.alive:
            worker.process.die(is_cut=False)

    def _died(self, worker: Worker, group: BaseExceptionGroup[Exception]) -> None:
        reason: BaseException = group
        while isinstance(reason, BaseExceptionGroup):
            reason = reason.exceptions[0]
        if isinstance(reason, Violation):
            return
        if reason is not worker.sink.failure:
            self._world.history.broken(f"{worker.name} failed: {reason!r}").__cause__ = reason
            return
        self._world.history.note("failed", f"{worker.name} {reason}")
        self._world.group.leave(worker.source)
        self._hire()

    def _kill(self) -> None:
        if running := self._running():
            worker = self._random.choice(running)
            self._world.history.note("kill", worker.name)
            worker.kill(is_cut=self._random.random() < 0.5)

    def _stop(self) -> None:
        if running := self._running():
            worker = self._random.choice(running)
            self._world.history.note("stop", worker.name)
            worker.stop()

    def _freeze(self) -> None:
        """Half of them longer than their session: zombies when they go on."""
        if running := self._running():
            worker = self._random.choice(running)
            self._world.history.note("freeze", worker.name)
            worker.pause()
            frozen_s = SESSION_S * self._random.uniform(0.0, 2.0)
            asyncio.get_running_loop().call_later(frozen_s, worker.go_on)

    async def _answered(self) -> None:
        world = self._world
        deadline_s = asyncio.get_running_loop().time() + CALM_S
        ends = {number: world.topic.end(number) for number in range(world.partitions)}
        while any(world.group.start(number).next_offset < end for number, end in ends.items()):
            if asyncio.get_running_loop().time() > deadline_s:
                workers = ", ".join(repr(worker.pipeline) for worker in self._running())
                raise world.history.broken(
                    f"not all is committed: {world.group.committed}, {workers}"
                )
            await asyncio.sleep(0.5)
        if missing := list(world.outcome.missing()):
            raise world.history.broken(f"not answered: {missing}")

    async def _stopped(self) -> None:
        """All drain and end, and give every byte back."""
        world = self._world
        last = self._running()
        for worker in last:
            worker.stop()
        deadline_s = asyncio.get_running_loop().time() + world.settings.drain_s + STOP_S
        while self._running():
            if asyncio.get_running_loop().time() > deadline_s:
                raise world.history.broken(f"{self._running()[0].name} does not end when stopped")
            await asyncio.sleep(0.5)
        for worker in last:
            if worker.pipeline.budget.spent_bytes:
                raise world.history.broken(f"{worker.name} ends with {worker.pipeline.budget!r}")
