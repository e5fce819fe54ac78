"""Helps other regions: joins their groups while they need help (`core.health.other_groups`), and
leaves them as in any rebalance.

Rule: a failure ends the help but never the worker.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping

from penstock.core.health.other_groups import HelpTerms, RegionHelp, RegionState
from penstock.errors import PenstockError, Transient, first_cause
from penstock.lane.lane import Lane
from penstock.ports import Clock, Commit, InputSource, Neighbours, Rebalance, Where
from penstock.stages.consume import Consume
from penstock.telemetry.per_service import RegionTelemetry

log = logging.getLogger(__name__)

# The pause between two looks at a region. A look costs three small requests to the broker.
LOOK_EVERY_S = 2.0
# The pause after a failure. It is long because each try to join costs the other region a rebalance.
REST_S = 60.0


class HelpRegions:
    """`stop` ends the reading for other regions, and `idle` waits until it has ended. `helped`: the
    regions that are helped now. `standings`: for each region, its state at the last look, or None
    if the state could not be read.
    """

    def __init__(
        self,
        neighbours: Neighbours,
        terms: Mapping[str, HelpTerms],
        lanes: Mapping[Where, Lane],
        clock: Clock,
        telemetry: RegionTelemetry,
    ) -> None:
        self._neighbours = neighbours
        self._helps = {region: RegionHelp(term) for region, term in terms.items()}
        self._lanes = lanes
        self._clock = clock
        self._telemetry = telemetry
        self._reading: set[Consume] = set()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._stopping = False
        self.standings: dict[str, RegionState | None] = {}

    @property
    def helped(self) -> list[str]:
        return [region for region, helping in self._helps.items() if helping.is_on]

    def stop(self) -> None:
        self._stopping = True
        for work in self._reading:
            work.stop()

    async def idle(self) -> None:
        await self._is_idle.wait()

    async def run(self, rebalance: Rebalance) -> None:
        """Runs until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for region in self._helps:
                tasks.create_task(self._watch(region, rebalance))

    async def _watch(self, region: str, rebalance: Rebalance) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                if await self._is_needed(region) and not self._stopping:
                    await self._help(region, rebalance)
            except PenstockError as error:
                self._helps[region].failed()
                log.error("region %s cannot be helped, next try in %g s: %s", region, REST_S, error)
                await asyncio.sleep(REST_S)

    async def _is_needed(self, region: str) -> bool:
        region_help = self._helps[region]
        standing = self.standings[region] = await self._look(region)
        own = None if region_help.is_on else await self._look(None)
        is_free = own is None or own.lag <= region_help.terms.lag
        is_on = region_help.look(standing, self._clock.now(), is_free=is_free)
        lag = standing.lag if standing is not None else None
        self._telemetry.seen(region, lag, is_helped=is_on)
        return is_on

    async def _look(self, region: str | None) -> RegionState | None:
        try:
            return await self._neighbours.look(region)
        except Transient as error:
            log.debug("the lag of region %s is not known: %s", region or "ours", error)
            return None

    async def _help(self, region: str, rebalance: Rebalance) -> None:
        """Help until the region is well, or until the worker stops and cancels this task."""
        log.warning("region %s is helped from now on: %s", region, self.standings[region])
        member, ours = self._neighbours.join(region), _Ours(rebalance)
        try:
            try:
                await member.start(ours)
                await self._read(region, member)
            finally:
                ours.is_leaving = True
            if self._stopping:
                # the pipeline hands all partitions back at once, then cancels this task
                await asyncio.Event().wait()
            await rebalance.revoked(ours.partitions)
            log.warning("region %s is well again: %s", region, self.standings[region])
        except PenstockError:
            await rebalance.revoked(ours.partitions)
            raise
        finally:
            self._neighbours.left(region)
            await member.stop()

    async def _read(self, region: str, member: InputSource) -> None:
        consume = Consume(member, self._lanes)
        self._reading.add(consume)
        self._is_idle.clear()
        try:
            async with asyncio.TaskGroup() as tasks:
                looking = tasks.create_task(self._until_well(region, consume))
                await consume.run()
                looking.cancel()
        except* PenstockError as failures:
            raise first_cause(failures) from None
        finally:
            self._reading.discard(consume)
            if not self._reading:
                self._is_idle.set()

    async def _until_well(self, region: str, consume: Consume) -> None:
        is_needed = True
        while is_needed:
            await asyncio.sleep(LOOK_EVERY_S)
            is_needed = await self._is_needed(region)
        consume.stop()


class _Ours:
    """Passes rebalances of another region's group on, and keeps the set of partitions that the
    group has assigned to us. Once we leave that group, no further partitions are taken.
    """

    def __init__(self, rebalance: Rebalance) -> None:
        self._rebalance = rebalance
        self.partitions: set[Where] = set()
        self.is_leaving = False

    async def suspended(self, partitions: Collection[Where]) -> None:
        await self._rebalance.suspended(partitions)

    async def assigned(self, starts: Mapping[Where, Commit]) -> Mapping[Where, int]:
        if self.is_leaving:
            return {}
        self.partitions |= starts.keys()
        return await self._rebalance.assigned(starts)

    async def revoked(self, partitions: Collection[Where]) -> None:
        await self._rebalance.revoked(partitions)
        self.partitions -= set(partitions)
