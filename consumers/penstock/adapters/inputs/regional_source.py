"""One source over several groups: the group of the worker's own region, and the groups of the
regions that the worker helps.

Rule: a worker helps a region by joining that region's group, and stops helping by leaving the
group. As in any rebalance, the group decides which member reads which partition from which offset.
A topic belongs to one region, so the pipeline sees one source.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from penstock.core.health.other_groups import RegionState
from penstock.core.progress.line_stop import Word
from penstock.ports import Commit, InputSource, Rebalance, Record, Where


class RegionalSource:
    """Implements the ports `InputSource` and `Neighbours`. `poll` reads our own region only;
    records of a helped region are polled from the member that `join` returned.

    `make`: a function that makes the source of a region without starting it. `region_of`: a mapping
    from each topic of another region to the name of that region. `look`: a function that asks for
    the lag and the workers of a region's group. To `look`, None stands for our own region.
    """

    def __init__(
        self,
        own: InputSource,
        make: Callable[[str], InputSource],
        region_of: Mapping[str, str],
        look: Callable[[str | None], Awaitable[RegionState]],
    ) -> None:
        self._own = own
        self._make = make
        self._region_of = region_of
        self._look = look
        self._helping: dict[str, InputSource] = {}

    async def look(self, region: str | None) -> RegionState:
        return await self._look(region)

    def join(self, region: str) -> InputSource:
        member = self._helping[region] = self._make(region)
        return member

    def left(self, region: str) -> None:
        del self._helping[region]

    async def start(self, rebalance: Rebalance) -> None:
        await self._own.start(rebalance)

    async def poll(self, partitions: Collection[Where], wait_ms: int) -> Sequence[Record]:
        return await self._own.poll(partitions, wait_ms)

    def reached(self) -> Mapping[Where, int]:
        return self._own.reached()

    async def commit(self, commits: Mapping[Where, Commit]) -> None:
        parts = self._by_member(commits)
        await asyncio.gather(
            *(
                member.commit({where: commits[where] for where in partitions})
                for member, partitions in parts.items()
            )
        )

    async def rewind(self, partitions: Collection[Where]) -> Mapping[Where, Commit]:
        starts: dict[Where, Commit] = {}
        for member, theirs in self._by_member(partitions).items():
            starts |= await member.rewind(theirs)
        return starts

    async def words(self, partitions: Collection[Where]) -> Mapping[Where, str]:
        texts: dict[Where, str] = {}
        for member, theirs in self._by_member(partitions).items():
            texts |= await member.words(theirs)
        return texts

    async def mark_obeyed(self, partition: Where, words: Collection[Word]) -> None:
        for member in self._by_member([partition]):
            await member.mark_obeyed(partition, words)

    def pause(self, partition: Where) -> None:
        for member in self._by_member([partition]):
            member.pause(partition)

    def topic_id(self, partition: Where) -> str | None:
        members = self._by_member([partition])
        return next((member.topic_id(partition) for member in members), None)

    def partitions(self) -> int:
        return sum(member.partitions() for member in self._members())

    async def end_offsets(self) -> Mapping[Where, int]:
        ends: dict[Where, int] = {}
        for member in self._members():
            ends |= await member.end_offsets()
        return ends

    async def stop(self) -> None:
        """Stop the member of our own region only. The caller of `join` stops the other members."""
        await self._own.stop()

    def _members(self) -> list[InputSource]:
        return [self._own, *self._helping.values()]

    def _by_member(self, partitions: Collection[Where]) -> dict[InputSource, list[Where]]:
        """A mapping from each member to those of the partitions that it reads. Partitions of a
        region that we have left are omitted.
        """
        partitions_of: dict[InputSource, list[Where]] = defaultdict(list)
        for where in partitions:
            region = self._region_of.get(where.topic)
            member = self._own if region is None else self._helping.get(region)
            if member is not None:
                partitions_of[member].append(where)
        return partitions_of
