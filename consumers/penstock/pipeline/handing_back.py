"""How lanes are suspended in a rebalance, and how they are drained and closed when their partitions
go for good.

Rule: in both cases the worker waits for the records that are on their way to the broker,
`delivery.drain_ms` at most, and commits all that is delivered. A suspended lane keeps its work,
because its partition may come back. A drained lane finishes the objects that fit into the time and
drops the rest. Owner: the assignments, which suspend or hand back one set of partitions at a time.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence

from penstock.lane.lane import Lane
from penstock.pipeline.open_lanes import OpenLanes
from penstock.pipeline.wiring import Wiring

log = logging.getLogger(__name__)


class HandingBack:
    """`stopping` is set while the worker stops: no lane goes on after that drain. With
    `exactly_once` there is nothing to commit, because transactions carry the positions.
    """

    def __init__(
        self, wiring: Wiring, open_lanes: OpenLanes, stopping: asyncio.Event, *, exactly_once: bool
    ) -> None:
        self._wiring = wiring
        self._lanes = wiring.lanes
        self._open = open_lanes
        self._stopping = stopping
        self._exactly_once = exactly_once
        self._drain_s = wiring.settings.times.drain_s

    async def suspend(self, partitions: Collection[int]) -> None:
        """Suspend these lanes. Lanes that cannot be suspended are closed: those that have stopped,
        and those whose records the broker does not acknowledge in time.
        """
        ours = self._open.of(partitions)
        lanes = [self._lanes[partition] for partition in ours if partition in self._lanes]
        self._open.cancel_takeovers(ours)
        for lane in lanes:
            lane.suspend()
        late = await self._late(lanes)
        if not self._exactly_once:
            await self._wiring.settle.try_to_commit(lanes)
        # A lane may have been closed, or begun anew, during the waits above.
        kept = {
            lane.number
            for lane in lanes
            if lane.alive and lane not in late and self._lanes.get(lane.number) is lane
        }
        await self._close([partition for partition in ours if partition not in kept], late)

    async def drain_and_close(self, partitions: Collection[int]) -> None:
        """Drain these lanes, then close them, even if the drain fails."""
        ours = self._open.of(partitions)
        held = [self._lanes[partition] for partition in ours if partition in self._lanes]
        # A suspended lane may deliver nothing more, and what it delivered is committed. Its last
        # transaction may take long to end, so the rebalance goes on without waiting for that.
        lanes = [lane for lane in held if not lane.suspended]
        self._open.end_soon([lane.number for lane in held if lane.suspended])
        ours = self._open.of(ours)
        self._open.cancel_takeovers(ours)
        try:
            if lanes:
                await self._drain(lanes)
        finally:
            await self._close(ours, [lane for lane in lanes if lane.is_publishing])

    async def _late(self, lanes: Sequence[Lane]) -> Collection[Lane]:
        """Wait until no record of these lanes is on its way to the broker. Returns the lanes that
        still have one when the time is over.
        """
        try:
            async with asyncio.timeout(self._drain_s):
                for lane in lanes:
                    await lane.at_rest()
        except TimeoutError:
            late = [lane for lane in lanes if not lane.is_at_rest]
            log.warning(
                "what was on its way to Kafka or to the results' store from %d partitions did not "
                "arrive within %.1f s of a rebalance; their work begins again at the last commit",
                len(late),
                self._drain_s,
            )
            return late
        return ()

    async def _close(self, partitions: Sequence[int], late: Collection[Lane]) -> None:
        """Close the lanes of these partitions. `late`: lanes whose records may not all have reached
        the broker.
        """
        await self._open.end(partitions)
        # The producer drops all records that it still holds, so that none arrives after the
        # partition's next owner began. But the producer may also hold records of lanes that are not
        # suspended.
        is_idle = all(lane.suspended for lane in self._lanes.values())
        if late and not self._exactly_once and is_idle:
            await self._wiring.adapters.sink.forget()

    async def _drain(self, lanes: Sequence[Lane]) -> None:
        self._wiring.drain()
        for lane in lanes:
            lane.drain()
        try:
            async with asyncio.timeout(self._drain_s):
                for lane in lanes:
                    await lane.drained()
        except TimeoutError:
            log.warning(
                "the drain took longer than %.1f s; the rest will be repeated", self._drain_s
            )
        if not self._exactly_once:
            # After a stop there is no later commit that would make up for a failed one.
            if self._stopping.is_set():
                await self._wiring.settle.commit_at_last(lanes)
            else:
                await self._wiring.settle.try_to_commit(lanes)
        if not self._stopping.is_set():
            self._wiring.resume()
