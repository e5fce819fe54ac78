"""The operator, who tells workers what to do with stopped lines, without restarting them.

Rule: the operator says one word at a time about each stop. The first word may be "resume", which
does not help, because the cause is not mended; the next one is "skip". Owner: one simulation.
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
from penstock.simulation.worker_fleet import WorkerFleet
from penstock.simulation.world import World

# This is longer than a worker takes to read a word and to stop again.
PATIENCE_S = 10.0


class Operator:
    def __init__(self, world: World, fleet: WorkerFleet) -> None:
        self._world = world
        self._fleet = fleet
        self._said: Counter[tuple[int, int, str]] = Counter()
        self._spoke_s = -PATIENCE_S

    def speak(self) -> None:
        """Say a word about each stopped line, once workers have had time to read the last words."""
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
