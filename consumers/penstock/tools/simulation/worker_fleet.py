"""The workers of a world: starts, kills, freezes and stops them, and judges how each one ends.

Rule: a worker may end by itself, to be replaced, only if the broker was away or all of its lines
stopped; no message may end one. A stop must end in time, whatever fails meanwhile.
"""

import asyncio
from random import Random

from penstock.core.progress.cursor import Position
from penstock.errors import EXIT_UNREACHABLE, Fatal
from penstock.tools.simulation.checks.history import Violation
from penstock.tools.simulation.kafka.group import SESSION_S
from penstock.tools.simulation.kafka.source import STOP_S
from penstock.tools.simulation.worker import SimulatedWorker
from penstock.tools.simulation.world import World

MOST_WORKERS = 3
LOOK_S = 0.5
# A frozen worker that goes on does not know yet that the group has gone on without it. It learns
# this at its next heartbeat, which comes at most this much later.
HEARTBEAT_S = 3.0


class WorkerFleet:
    """`hire` starts one more worker; `kill`, `freeze` and `stop` choose a running worker."""

    def __init__(self, world: World, random: Random, tasks: asyncio.TaskGroup) -> None:
        self._world = world
        self._random = random
        self._tasks = tasks
        self._employed: dict[SimulatedWorker, asyncio.Task[None]] = {}

    def running(self) -> list[SimulatedWorker]:
        return [worker for worker in self._world.workers if worker.process.alive]

    def hire(self) -> None:
        if len(self.running()) < MOST_WORKERS:
            worker = self._world.hire()
            self._world.history.note("hire", worker.name)
            self._employed[worker] = self._tasks.create_task(self._employ(worker))

    async def ended(self) -> None:
        """Return when no worker runs. The tasks of killed workers never end, so they are not
        awaited.
        """
        if running := [self._employed[worker] for worker in self.running()]:
            await asyncio.wait(running)

    def kill(self) -> None:
        if running := self.running():
            worker = self._random.choice(running)
            self._world.history.note("kill", worker.name)
            worker.kill(is_cut=self._random.random() < 0.5)

    def stop(self) -> None:
        if running := self.running():
            self.end(self._random.choice(running))

    def end(self, worker: SimulatedWorker) -> None:
        """Stop a worker as SIGTERM does. The worker must end soon after the time for its drain."""
        self._world.history.note("stop", worker.name)
        worker.stop()
        self._tasks.create_task(self._ends(worker))

    def freeze(self) -> None:
        """Freeze a worker. In half of the cases it is frozen for longer than its session, so that
        the group goes on without the worker meanwhile.
        """
        if running := self.running():
            worker = self._random.choice(running)
            self._world.history.note("freeze", worker.name)
            worker.pause()
            frozen_s = SESSION_S * self._random.uniform(0.0, 2.0)
            heartbeat_s = HEARTBEAT_S * self._random.choice((0.0, self._random.random()))
            asyncio.get_running_loop().call_later(frozen_s, worker.go_on, heartbeat_s)

    async def _ends(self, worker: SimulatedWorker) -> None:
        left_s = self._world.deployment(worker).settings.times.drain_s + STOP_S
        while worker.process.alive and left_s > 0:
            await asyncio.sleep(LOOK_S)
            left_s -= LOOK_S if worker.process.going.is_set() else 0.0
        if worker.process.alive:
            self._world.history.broken(f"{worker.name} does not end when stopped")

    async def _employ(self, worker: SimulatedWorker) -> None:
        """Run the worker. If a failure of the broker ends it, start another worker."""
        try:
            await worker.run()
        except* asyncio.CancelledError:
            pass
        except* Exception as group:
            self._died(worker, group)
        if worker.process.alive:
            worker.process.die(is_cut=False)
        # The pipeline's shadow ends in a task of its own, because nothing live may wait for it.
        self._tasks.create_task(worker.pipeline.end())

    def _died(self, worker: SimulatedWorker, group: BaseExceptionGroup[Exception]) -> None:
        world = self._world
        reason: BaseException = group
        while isinstance(reason, BaseExceptionGroup):
            reason = reason.exceptions[0]
        if isinstance(reason, Violation):
            return
        if not self._may_end(worker, reason):
            world.history.broken(f"{worker.name} failed: {reason!r}").__cause__ = reason
            return
        world.history.note("failed", f"{worker.name} {reason}")
        world.group.leave(worker.source)
        self.hire()

    def _may_end(self, worker: SimulatedWorker, reason: BaseException) -> bool:
        world = self._world
        if reason is worker.sink.failure:
            return True
        if world.troubles.lines and isinstance(reason, Fatal) and "line is stopped" in str(reason):
            world.history.counts["every line stopped"] += 1
            world.deployments.mend_lines()
            # Each partition that still belongs to this worker must have the mark of a stop in its
            # commit. Other partitions need no mark, because their next owner finds by itself that
            # the line must stop.
            return all(
                Position.of(world.group.decided(where)).stopped_at
                for where in world.topic.partitions
                if world.group.owned(worker.source, where)
            )
        is_unreachable = isinstance(reason, Fatal) and reason.exit_code == EXIT_UNREACHABLE
        return is_unreachable and not world.injector.is_stopped
