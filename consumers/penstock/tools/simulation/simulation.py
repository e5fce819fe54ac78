"""A whole world from one seed: workers run, die, freeze and come back; five promises are checked.

    not ahead   a worker commits only what was acknowledged to this worker
    in order    each assignment publishes row after row, from its committed position on
    answered    when the storm of faults is over, everything that was asked is on the output topic
    in bounds   bytes, objects and calls in flight never exceed their limits
    progress    when nothing fails any more, each partition moves; no message ends worker after
                worker; a stop and a hand-back end in time, whatever fails in them

Rule: one seed gives one history, on every machine. With order by stream or exactly once the
promises of these settings are checked instead. An operator says one word at a time about each
stopped line: perhaps "resume", which does not help, because the cause remains; then "skip".
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from penstock.core.progress.line_stop import (
    LineStop,
    Verb,
    Word,
    decode_words,
    encode_words,
    stream_digest,
)
from penstock.ports import Where
from penstock.process.asyncio_additions import first_of
from penstock.tools.simulation.checks.history import Violation
from penstock.tools.simulation.deployments import NONE
from penstock.tools.simulation.scenario import Scenario
from penstock.tools.simulation.virtual_time import VirtualTimeLoop, run
from penstock.tools.simulation.worker_fleet import WorkerFleet
from penstock.tools.simulation.world import World

# Rows that are not answered within this time after the last fault count as never answered.
RECOVERY_S = 7_200.0
# A partition must move within this time. An object that cannot be read is given up after two
# minutes, and a row that stalls the model is given up after nearly two minutes. With few fetchers
# these times add up.
MOVES_S = 300.0
LOOK_S = 0.5


class Recovery:
    def __init__(self, world: World, fleet: WorkerFleet) -> None:
        self._world = world
        self._fleet = fleet
        self._operator = Operator(world, fleet)
        self._speaks = world.random.random() < 0.5
        self._moved: dict[Where, tuple[object, float]] = {}

    async def run(self) -> None:
        world, fleet = self._world, self._fleet
        world.calm()
        for worker in fleet.running():
            worker.go_on()
        await self._answered()
        await self._stopped()

    async def _answered(self) -> None:
        world = self._world
        deadline_s = asyncio.get_running_loop().time() + RECOVERY_S
        while owed := [
            where
            for where in world.topic.partitions
            if world.group.start(where).next_offset != world.topic.end(where)
        ]:
            if asyncio.get_running_loop().time() > deadline_s:
                raise self._stuck("not all is committed")
            for where in owed:
                self._check_moves(where)
            self._mend_lines()
            if all(worker.stopping for worker in self._fleet.running()):
                self._fleet.hire()
            await asyncio.sleep(LOOK_S)
        if missing := list(world.outcome.missing()):
            raise world.history.broken(f"not answered: {missing}")

    def _check_moves(self, where: Where) -> None:
        now_s, at = asyncio.get_running_loop().time(), self._world.group.start(where)
        before, since_s = self._moved.get(where, (None, 0.0))
        if before != at:
            self._moved[where] = (at, now_s)
        elif now_s - since_s > MOVES_S * (1 + self._world.bucket.slow):
            raise self._stuck(f"{where} does not move")

    def _stuck(self, what: str) -> Exception:
        world = self._world
        workers = ", ".join(repr(worker.pipeline) for worker in self._fleet.running())
        return world.history.broken(f"{what}: {world.group.committed}, {workers}")

    def _mend_lines(self) -> None:
        """Let lines that have stopped go on: either the operator says a word about each line, or
        all workers get new settings.
        """
        world, fleet = self._world, self._fleet
        stopped = [worker for worker in fleet.running() if worker.pipeline.stopped]
        if not stopped:
            return
        world.history.counts["line stopped"] += 1
        if self._speaks:
            self._operator.speak()
            return
        world.deployments.mend_lines()
        for worker in fleet.running():
            if not worker.stopping:
                fleet.end(worker)
        self._moved.clear()

    async def _stopped(self) -> None:
        """Stop all workers. Each must end, and give back every byte of its budget."""
        last = self._fleet.running()
        for worker in last:
            if not worker.stopping:
                self._fleet.end(worker)
        await self._fleet.ended()
        for worker in last:
            if worker.pipeline.wiring.budget.spent_bytes:
                raise self._world.history.broken(
                    f"{worker.name} ends with {worker.pipeline.wiring.budget!r}"
                )


# How long the operator waits between two words: longer than a worker takes to read a word and to
# stop again.
PATIENCE_S = 10.0


class Operator:
    def __init__(self, world: World, fleet: WorkerFleet) -> None:
        self._world = world
        self._fleet = fleet
        self._spoken: Counter[tuple[Where, int, str]] = Counter()
        self._spoke_s = -PATIENCE_S

    def speak(self) -> None:
        """Say a word about each stopped line, but only after workers have had time to read the last
        words.
        """
        now_s = asyncio.get_running_loop().time()
        if now_s - self._spoke_s < PATIENCE_S:
            return
        for worker in self._fleet.running():
            for where, lane in worker.pipeline.wiring.lanes.items():
                for stop in lane.stops:
                    self._spoke_s = now_s
                    self._say(where, stop)

    def _say(self, where: Where, stop: LineStop) -> None:
        world, about = self._world, (where, stop.offset, stop.stream)
        is_in_vain = not self._spoken[about] and world.random.random() < 0.5
        self._spoken[about] += 1
        verb: Verb = "resume" if is_in_vain else "skip"
        word = Word(verb, stop.offset, stream_digest(stop.stream), self._spoken[about])
        world.history.counts[f"line told to {verb}"] += 1
        text = world.group.said.get(where, "")
        world.group.said[where] = encode_words([*decode_words(text), word])


__all__ = ["Report", "Scenario", "Violation", "simulate"]

# With so many disturbances a world takes 30 ms on average. So 2,000 seeds take one to two minutes
# of CPU time.
MOST_DISTURBANCES = 16
MOST_PARTITIONS = 4


class Report(NamedTuple):
    """What happened in a simulation. Two equal histories have the same `digest`. Two histories that
    differ only in the order of events of one instant have the same `instants`.
    """

    seed: int
    rows: int
    repeated: int
    counts: Mapping[str, int]
    digest: str
    instants: str


def simulate(seed: int, scenario: Scenario | None = None, kind: type[World] = World) -> Report:
    """Raises `Violation` with the seed and the history if a promise is broken. `kind`: a test of
    the checks gives a world with a part that keeps no promise.
    """
    return run(_Events(kind(seed, scenario or Scenario())).run())


class _Events:
    """Draws the events of a world from the seed, and makes them happen."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._tasks = asyncio.TaskGroup()
        self._fleet = WorkerFleet(world, self._random, self._tasks)
        self._operator = Operator(world, self._fleet)

    async def run(self) -> Report:
        world = self._world
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.each_turn(world.look)
        try:
            async with self._tasks:
                coordinating = self._tasks.create_task(world.group.coordinate())
                await first_of(self._live(), world.history.failed.wait())
                coordinating.cancel()
                for worker in world.workers:
                    worker.kill(is_cut=True)
        finally:
            loop.each_turn(None)
        if world.history.failure is not None:
            raise world.history.failure
        outcome, history = world.outcome, world.history
        if world.reads_sent_again:
            history.counts["read again"] += world.reads_sent_again
        return Report(
            history.seed,
            outcome.rows,
            outcome.repeated,
            history.counts,
            history.digest(),
            history.instants(),
        )

    async def _live(self) -> None:
        # `failed` is set, and the history keeps the violation. If it were raised here, it would
        # reach the caller in a group with the errors of the tasks that it interrupts.
        with suppress(Violation):
            await self._disturb_and_recover()

    async def _disturb_and_recover(self) -> None:
        """Disturb the world again and again. Then let it recover, and end all workers."""
        world, random = self._world, self._random
        self._fleet.hire()
        for _ in range(random.randint(1, 6)):
            world.announce()
        for _ in range(random.randint(0, MOST_DISTURBANCES)):
            await self._wait()
            await self._disturb()
        await self._wait()
        await Recovery(world, self._fleet).run()

    async def _wait(self) -> None:
        """Wait for some time, or for some turns of the loop, because races happen between turns."""
        if self._random.random() < 0.5:
            await asyncio.sleep(self._random.choice((0.01, 0.3, 3.0)) * self._random.random())
        else:
            for _ in range(self._random.randint(1, 200)):
                await asyncio.sleep(0)

    async def _disturb(self) -> None:
        world, fleet, random = self._world, self._fleet, self._random
        actions: list[Callable[[], None]] = [
            world.announce, world.bucket.overwrite, fleet.hire, fleet.kill, fleet.stop,
            fleet.freeze, world.group.rebalance,
        ]  # fmt: skip
        weights = [8, 1, 3, 3, 1, 4, 2]
        if world.troubles != NONE:
            more = self._between_lives()
            actions += more
            weights += [3] * len(more)
        (action,) = random.choices(actions, weights=weights)
        action()

    def _between_lives(self) -> list[Callable[[], None]]:
        world, troubles = self._world, self._world.troubles
        more: list[Callable[[], None]] = []
        if troubles.settings or troubles.silent or troubles.lines:
            more.append(self._deploy)
        if troubles.lines:
            more.append(self._operator.speak)
        if troubles.objects:
            more += [world.bucket.delete, world.bucket.overwrite, world.bucket.switch_versions]
        if troubles.partitions and world.partitions < MOST_PARTITIONS:
            more.append(world.grow)
        if troubles.positions:
            more += [world.leave_gap, self._move]
        return more

    def _move(self) -> None:
        for worker in self._fleet.running():
            worker.kill(is_cut=True)
        self._world.move()
        self._fleet.hire()

    def _deploy(self) -> None:
        """Deploy other settings: stop or kill each worker, and start a new one."""
        self._world.change()
        for worker in self._fleet.running():
            if worker.stopping or self._random.random() < 0.5:
                worker.kill(is_cut=self._random.random() < 0.5)
            else:
                self._fleet.end(worker)
        self._fleet.hire()
