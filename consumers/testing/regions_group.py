"""A region in memory: its topic, its consumer group, and members of that, at home or helping.

Rule: the group is the simulation's own: it hands back, assigns, and expels silent members. Members
of several regions are in one worker, so partitions have numbers of the whole world. Owner: the
simulation of regions.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from random import Random

from consumers.adapters.memory_inbox import Inbox, behind
from consumers.adapters.memory_model import MemoryModel
from consumers.adapters.memory_objects import MemoryObjects
from consumers.core.regions import Standing
from consumers.errors import Unreachable
from consumers.ports import Commit, Rebalance, Record, Where
from consumers.testing.group import SESSION_S, Group, Topic
from consumers.testing.history import History

PARTITIONS = 2
COMMIT_S = 0.01
# Beyond a drain.
HAND_BACK_S = 60.0
TOPIC = "refs."


class Region:
    """`number` of all: its partitions come after those of the regions before it."""

    def __init__(self, name: str, number: int, random: Random, history: History) -> None:
        self.name = name
        self.first = number * PARTITIONS
        self.topic = Topic(PARTITIONS)
        self.group = Group(self.topic, random, history)
        self.objects = MemoryObjects()
        self.model = MemoryModel()
        self.members: list[Member] = []
        self.history = history

    @property
    def lag(self) -> int:
        return sum(
            max(0, self.topic.end(number) - self.group.start(number).next_offset)
            for number in range(PARTITIONS)
        )

    @property
    def standing(self) -> Standing:
        workers = sum(one in self.group and not one.is_helping for one in self.members)
        return Standing(self.lag, workers)

    def cut_off(self, *, is_silent: bool) -> None:
        """Its store and its model: they refuse connections, or never answer."""

        async def away(_: object) -> None:
            if is_silent:
                await asyncio.Event().wait()
            raise Unreachable(f"{self.name} is cut off")

        self.objects.on_open = away
        self.model.script = away

    def come_back(self) -> None:
        self.objects.on_open = self.model.script = None


class Member:
    """The port `Source`, of one region; `is_helping`: of another one's worker."""

    def __init__(
        self, name: str, region: Region, tasks: asyncio.TaskGroup, *, is_helping: bool
    ) -> None:
        self.name = f"{name} in {region.name}"
        self.is_helping = is_helping
        self.patience_s = HAND_BACK_S
        self._region = region
        self._tasks = tasks
        self._rebalance: Rebalance | None = None
        self._orders: asyncio.Queue[asyncio.Future[None] | tuple[int, Sequence[int]]]
        self._orders = asyncio.Queue()
        self._listening: asyncio.Task[None] | None = None
        self._generation = 0
        self._ours: set[int] = set()
        self._inbox = Inbox(self._read)
        region.topic.readers.append(self._inbox.arrived)
        region.members.append(self)

    async def start(self, rebalance: Rebalance) -> None:
        self._rebalance = rebalance
        self._listening = self._tasks.create_task(self._listen(rebalance))
        self._region.group.join(self)

    def die(self) -> None:
        """The group finds out when the session is over."""
        self._end()
        asyncio.get_running_loop().call_later(SESSION_S, self._region.group.leave, self)

    async def stop(self) -> None:
        if self._rebalance is not None:
            self._end()
            self._region.group.leave(self)

    def _end(self) -> None:
        self._rebalance = None
        self._inbox.positions.clear()
        self._ours.clear()
        if self._listening is not None:
            self._listening.cancel()

    def hand_back(self) -> asyncio.Future[None]:
        handed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._orders.put_nowait(handed)
        return handed

    def take_over(self, generation: int, partitions: Sequence[int]) -> None:
        self._orders.put_nowait((generation, partitions))

    async def _listen(self, rebalance: Rebalance) -> None:
        first, group = self._region.first, self._region.group
        while True:
            order = await self._orders.get()
            if isinstance(order, asyncio.Future):
                self._inbox.positions.clear()
                await rebalance.revoked(sorted(self._ours))
                self._ours.clear()
                if not order.done():
                    order.set_result(None)
                if self not in group:
                    group.join(self)
                continue
            self._generation, numbers = order
            starts = {first + number: group.start(number) for number in numbers}
            self._ours = set(starts)
            await rebalance.assigned(starts)
            self._inbox.go_to(starts)

    async def poll(self, partitions: Collection[int], wait_ms: int) -> Sequence[Record]:
        return await self._inbox.poll(partitions, wait_ms)

    def _read(self, partition: int, position: int) -> tuple[Sequence[Record], int]:
        log = self._region.topic.records[partition - self._region.first]
        fresh = [one for one in log if one.offset >= position][:8]
        return [one._replace(partition=partition) for one in fresh], behind(fresh, position)

    async def commit(self, commits: Mapping[int, Commit]) -> None:
        region, generation = self._region, self._generation
        await asyncio.sleep(COMMIT_S)
        ours = {number: commit for number, commit in commits.items() if number in self._ours}
        region.group.commit(
            self, generation, {number - region.first: commit for number, commit in ours.items()}
        )

    async def rewind(self, partitions: Collection[int]) -> Mapping[int, Commit]:
        first = self._region.first
        ours = [number for number in partitions if number in self._ours]
        starts = {number: self._region.group.start(number - first) for number in ours}
        self._inbox.go_to(starts)
        return starts

    async def words(self, partitions: Collection[int]) -> Mapping[int, str]:
        return {}

    def pause(self, partition: int) -> None:
        self._inbox.positions.pop(partition, None)

    def where(self, partition: int) -> Where:
        """Of any region."""
        return where(partition)

    def reached(self) -> Mapping[int, int]:
        return dict(self._inbox.positions)

    def partitions(self) -> int:
        return PARTITIONS

    async def end_offsets(self) -> Mapping[int, int]:
        region = self._region
        return {number: region.topic.end(number - region.first) for number in self._ours}


NAMES = ("eu", "us", "ap")


def where(number: int) -> Where:
    region, partition = divmod(number, PARTITIONS)
    return Where(f"{TOPIC}{NAMES[region]}", partition)
