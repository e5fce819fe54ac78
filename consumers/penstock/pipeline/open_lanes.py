"""Opens, suspends, drains and closes the lanes of a worker. Each open lane has a task that
publishes its answers.

Rule: a rebalance suspends a lane, which keeps its work, because its partition may come back. If a
partition goes for good, its lane is drained: the lane finishes the objects that fit into the time,
and drops the rest. In both cases the worker waits, `delivery.drain_ms` at most, until the records
on their way have reached the broker. Then it commits all that is delivered. A lane is closed first,
then its task is cancelled and waited for, because records of its partition may still leave until
the task has ended. With exactly once, a partition that is being taken over has a task, but no lane
yet. Owner: the assignments, which suspend or hand back one set of partitions at a time.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

from penstock.core.order.line_stop import LineStop, Passing
from penstock.core.rows.log_keys import of_place
from penstock.errors import EXIT_UNREACHABLE, Fatal
from penstock.lane.lane import Lane
from penstock.pipeline.wiring import Wiring
from penstock.ports import Commit

log = logging.getLogger(__name__)

# If a cancelled task has not ended after this time, the task is cancelled again. The end of a
# transaction takes less time, so a second cancellation does not disturb a transaction.
CANCEL_AGAIN_S = 10.0
CANCELLATIONS = 3


class OpenLanes:
    """`tasks_in`: the task group in which lanes publish; set before the first `start`."""

    tasks_in: asyncio.TaskGroup

    def __init__(self, wiring: Wiring, on_stopped: Callable[[Lane, LineStop], None]) -> None:
        self._wiring = wiring
        self._on_stopped = on_stopped
        self._lanes = wiring.lanes
        self._tasks: dict[int, asyncio.Task[None]] = {}
        # The generation of the lane that was opened last: how many lanes have been opened so far.
        self.generation = 0
        # For each partition: the records whose dead letters an operator lets pass.
        self.passing: defaultdict[int, set[Passing]] = defaultdict(set)

    @property
    def partitions(self) -> list[int]:
        """All partitions that have a publishing task."""
        return list(self._tasks)

    def of(self, partitions: Collection[int]) -> list[int]:
        """Those of `partitions` that have a publishing task."""
        return [partition for partition in partitions if partition in self._tasks]

    def begin(self, partition: int, start: Commit) -> Lane:
        """Open a lane of a new generation at this position."""
        self.generation += 1
        passing = self.passing[partition]
        lane = self._wiring.lane(partition, self.generation, start, self._on_stopped, passing)
        self._lanes[partition] = lane
        self._wiring.telemetry.partitions.set(len(self._lanes))
        return lane

    def close(self, lane: Lane) -> None:
        """Close the lane and drop its work. A second call changes nothing."""
        if self._lanes.get(lane.number) is lane:
            log.info("closed %r", lane, extra=of_place(lane.topic, lane.partition))
            lane.close()
            del self._lanes[lane.number]
            self._wiring.discard_dead()
            self._wiring.telemetry.partitions.set(len(self._lanes))

    def close_all(self, partitions: Collection[int]) -> None:
        for partition in partitions:
            if partition in self._lanes:
                self.close(self._lanes[partition])

    def start(self, partition: int, work: Coroutine[Any, Any, None]) -> None:
        """Run the partition's publishing task."""
        try:
            self._tasks[partition] = self.tasks_in.create_task(work)
        except RuntimeError:
            # Another task has failed, so the task group takes no more tasks, and the worker ends.
            # The partition's next owner does the work.
            work.close()
            self.close_all([partition])

    def cancel_takeovers(self, partitions: Collection[int]) -> None:
        """Cancel the takeovers of these partitions. A takeover is the task of a partition that has
        no lane yet.
        """
        for partition in partitions:
            if partition not in self._lanes:
                self._tasks[partition].cancel()

    async def end(self, partitions: Collection[int]) -> None:
        """Close the lanes and end their tasks; open transactions are aborted."""
        self.close_all(partitions)
        await _end(self._taken(partitions))
        # The task of a takeover may have opened a lane before the task ended.
        self.close_all(partitions)

    def end_soon(self, partitions: Collection[int]) -> None:
        """Close the lanes now; their tasks end in the background."""
        self.close_all(partitions)
        if taken := self._taken(partitions):
            work = _end(taken)
            try:
                self.tasks_in.create_task(work)
            except RuntimeError:
                work.close()  # another task has failed: the group ends all of them

    def _taken(self, partitions: Collection[int]) -> set[asyncio.Task[None]]:
        return {self._tasks.pop(partition) for partition in self.of(partitions)}


async def _end(tasks: set[asyncio.Task[None]]) -> None:
    for _ in range(CANCELLATIONS):
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        # Tasks are cancelled more than once, because a client library may swallow a cancellation
        # while it closes.
        _, tasks = await asyncio.wait(tasks, timeout=CANCEL_AGAIN_S)
    if tasks:
        raise Fatal(
            f"{len(tasks)} partitions could not be handed back: Kafka's client did not let go of a "
            f"producer within {CANCELLATIONS * CANCEL_AGAIN_S:g} s.",
            exit_code=EXIT_UNREACHABLE,
        )


class HandingBack:
    """Suspends lanes, or drains and closes them. `stopping`: set once the worker stops; then no
    lane goes on after the drain. `exactly_once`: True if transactions carry the positions, so that
    nothing is committed here.
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
        """Suspend the lanes of these partitions. Two kinds of lanes are closed instead: those that
        have stopped, and those whose records the broker does not acknowledge in time.
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
        """Drain the lanes of these partitions, then close them, even if the drain fails."""
        ours = self._open.of(partitions)
        held = [self._lanes[partition] for partition in ours if partition in self._lanes]
        # A suspended lane may deliver nothing more, and all that it delivered is committed, so it
        # is not drained. Its last transaction may take long to end, so the rebalance does not wait
        # for that.
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
        # If a record of a late lane arrived after the partition's next owner began, it would be
        # published twice. So the producer drops all records that it holds, but only while all open
        # lanes are suspended: otherwise it may hold records of other lanes.
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
