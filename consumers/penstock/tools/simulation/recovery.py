"""The end of a world: no service fails any more, so all rows must be answered and all workers must
end. And the operator, who tells workers what to do with stopped lines.

Rule: each partition with uncommitted records must move within a bounded time. The operator says one
word at a time about each stop, and no worker has to restart. The first word may be "resume", which
does not help, because the cause remains; the next word is "skip". Owner: one simulation.
"""

import asyncio
from collections import Counter

from penstock.core.order.line_stop import (
    LineStop,
    Verb,
    Word,
    decode_words,
    encode_words,
    stream_digest,
)
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
        self._moved: dict[int, tuple[object, float]] = {}

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
            number
            for number in range(world.partitions)
            if world.group.start(number).next_offset != world.topic.end(number)
        ]:
            if asyncio.get_running_loop().time() > deadline_s:
                raise self._stuck("not all is committed")
            for number in owed:
                self._check_moves(number)
            self._mend_lines()
            if all(worker.stopping for worker in self._fleet.running()):
                self._fleet.hire()
            await asyncio.sleep(LOOK_S)
        if missing := list(world.outcome.missing()):
            raise world.history.broken(f"not answered: {missing}")

    def _check_moves(self, number: int) -> None:
        now_s, at = asyncio.get_running_loop().time(), self._world.group.start(number)
        before, since_s = self._moved.get(number, (None, 0.0))
        if before != at:
            self._moved[number] = (at, now_s)
        elif now_s - since_s > MOVES_S * (1 + self._world.bucket.slow):
            raise self._stuck(f"partition {number} does not move")

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
        self._said: Counter[tuple[int, int, str]] = Counter()
        self._spoke_s = -PATIENCE_S

    def speak(self) -> None:
        """Say a word about each stopped line, but only after workers have had time to read the last
        words.
        """
        now_s = asyncio.get_running_loop().time()
        if now_s - self._spoke_s < PATIENCE_S:
            return
        for worker in self._fleet.running():
            for number, lane in worker.pipeline.wiring.lanes.items():
                for stop in lane.stops:
                    self._spoke_s = now_s
                    self._say(number, stop)

    def _say(self, number: int, stop: LineStop) -> None:
        world, about = self._world, (number, stop.offset, stop.stream)
        is_in_vain = not self._said[about] and world.random.random() < 0.5
        self._said[about] += 1
        verb: Verb = "resume" if is_in_vain else "skip"
        word = Word(verb, stop.offset, stream_digest(stop.stream), self._said[about])
        world.history.counts[f"line told to {verb}"] += 1
        said = world.group.said.get(number, "")
        world.group.said[number] = encode_words([*decode_words(said), word])
