"""One source of several groups: the own region's, and those of regions that are helped for a while.

Rule: to help is to be a member of that region's group, for its topics; to give back is to leave it.
The group says which member reads which partition, from which offset, and that no two members read
one, as in any rebalance. Partitions of all regions have one numbering, so that the pipeline knows
one source. Owner: the application.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from consumers.core.regions import Standing
from consumers.ports import Commit, Rebalance, Record, Source, Where


class RegionalSource:
    """The port `Source`, over the own membership and those in other regions; and the port
    `Neighbours`. Records of others are read from their members.

    `make` one, not started yet; `region_of` the topics that are not our own; `look` at a region's
    group, None: our own.
    """

    def __init__(
        self,
        own: Source,
        make: Callable[[str], Source],
        region_of: Mapping[str, str],
        look: Callable[[str | None], Awaitable[Standing]],
    ) -> None:
        self._own = own
        self._make = make
        self._region_of = region_of
        self._look = look
        self._helping: dict[str, Source] = {}

    async def look(self, region: str | None) -> Standing:
        return await self._look(region)

    def join(self, region: str) -> Source:
        member = self._helping[region] = self._make(region)
        return member

    def left(self, region: str) -> None:
        del self._helping[region]

    async def start(self, rebalance: Rebalance) -> None:
        await self._own.start(rebalance)

    async def poll(self, partitions: Collection[int], wait_ms: int) -> Sequence[Record]:
        return await self._own.poll(partitions, wait_ms)

    def reached(self) -> Mapping[int, int]:
        return self._own.reached()

    async def commit(self, commits: Mapping[int, Commit]) -> None:
        parts = self._by_member(commits)
        await asyncio.gather(
            *(
                member.commit({number: commits[number] for number in numbers})
                for member, numbers in parts.items()
            )
        )

    async def rewind(self, partitions: Collection[int]) -> Mapping[int, Commit]:
        starts: dict[int, Commit] = {}
        for member, numbers in self._by_member(partitions).items():
            starts |= await member.rewind(numbers)
        return starts

    async def words(self, partitions: Collection[int]) -> Mapping[int, str]:
        said: dict[int, str] = {}
        for member, numbers in self._by_member(partitions).items():
            said |= await member.words(numbers)
        return said

    def pause(self, partition: int) -> None:
        for member in self._by_member([partition]):
            member.pause(partition)

    def where(self, partition: int) -> Where:
        return self._own.where(partition)

    def partitions(self) -> int:
        return sum(member.partitions() for member in self._members())

    async def end_offsets(self) -> Mapping[int, int]:
        ends: dict[int, int] = {}
        for member in self._members():
            ends |= await member.end_offsets()
        return ends

    async def stop(self) -> None:
        """Members elsewhere are stopped by those who had them made."""
        await self._own.stop()

    def _members(self) -> list[Source]:
        return [self._own, *self._helping.values()]

    def _by_member(self, partitions: Collection[int]) -> dict[Source, list[int]]:
        """Of a region that was left nothing is ours any more."""
        found: dict[Source, list[int]] = defaultdict(list)
        for number in partitions:
            region = self._region_of.get(self.where(number).topic)
            member = self._own if region is None else self._helping.get(region)
            if member is not None:
                found[member].append(number)
        return found
