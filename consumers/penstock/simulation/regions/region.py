"""A region in memory: its consumer group, its store and its model; and the topics of all regions.

Rule: a partition's number is unique in the whole world, because one worker has members in several
regions. Owner: the simulation of regions.
"""

import asyncio
from random import Random

from penstock.adapters.memory.model import MemoryModel
from penstock.adapters.memory.objects import MemoryObjects
from penstock.core.health.other_groups import RegionState
from penstock.errors import Unreachable
from penstock.ports import Where
from penstock.simulation.checks.history import History
from penstock.simulation.kafka.group import Group
from penstock.simulation.kafka.lives import Watched
from penstock.simulation.kafka.source import SimulatedSource
from penstock.simulation.kafka.topic import Topic

NAMES = ("eu", "us", "ap")
PARTITIONS = 2
TOPIC = "refs."
# How long a client waits for an answer that does not come.
SILENT_S = 30.0


# The lives of these members check nothing: what was published is judged at the end.
Member = SimulatedSource[Watched]


def topics() -> Topic:
    """The partitions of all regions in one list, region after region."""
    return Topic(PARTITIONS * len(NAMES), _where)


def _where(number: int) -> Where:
    region, partition = divmod(number, PARTITIONS)
    return Where(f"{TOPIC}{NAMES[region]}", partition)


class Region:
    """Two lists of members of the region's group. `members`: those of the region's own workers.
    `helpers`: those of the workers of other regions.
    """

    def __init__(self, name: str, topic: Topic, random: Random, history: History) -> None:
        first = NAMES.index(name) * PARTITIONS
        self.name = name
        self.partitions = range(first, first + PARTITIONS)
        self.topic = topic
        self.group = Group(topic, random, history, only=self.partitions)
        self.objects = MemoryObjects()
        self.model = MemoryModel()
        self.members: list[Member] = []
        self.helpers: list[Member] = []

    @property
    def lag(self) -> int:
        return sum(
            max(0, self.topic.end(number) - self.group.start(number).next_offset)
            for number in self.partitions
        )

    @property
    def is_helped(self) -> bool:
        return any(one in self.group for one in self.helpers)

    @property
    def standing(self) -> RegionState:
        return RegionState(self.lag, sum(one in self.group for one in self.members))

    def cut_off(self, *, is_silent: bool) -> None:
        """Cut off store and model: they refuse connections or, with `is_silent`, do not answer."""

        async def away(_: object) -> None:
            if is_silent:
                await asyncio.sleep(SILENT_S)
            raise Unreachable(f"{self.name} is cut off")

        self.objects.on_open = away
        self.model.script = away

    def come_back(self) -> None:
        self.objects.on_open = self.model.script = None
