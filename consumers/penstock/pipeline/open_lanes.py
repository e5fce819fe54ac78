"""The open lanes of a worker, each with the task that publishes its answers.

Rule: a lane is closed first, then its task is cancelled and waited for, because records of its
partition may still leave until the task has ended. With exactly once a partition has a task, but no
lane yet, while it is taken over. Owner: the assignments.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from penstock.core.order.line_stop import LineStop
from penstock.core.rows.log_keys import of_place
from penstock.errors import EXIT_UNREACHABLE, Fatal
from penstock.lane.lane import Lane
from penstock.pipeline.wiring import Wiring
from penstock.ports import Commit

log = logging.getLogger(__name__)

# If a cancelled task has not ended after this time, it is cancelled again. A transaction ends
# sooner, so the second cancellation does not disturb it.
CANCEL_AGAIN_S = 10.0
CANCELLATIONS = 3


class OpenLanes:
    """`tasks_in`: the group in which the publishing tasks run; set before the first `start`."""

    tasks_in: asyncio.TaskGroup

    def __init__(self, wiring: Wiring, on_stopped: Callable[[Lane, LineStop], None]) -> None:
        self._wiring = wiring
        self._on_stopped = on_stopped
        self._lanes = wiring.lanes
        self._tasks: dict[int, asyncio.Task[None]] = {}
        # The number of lanes begun so far; the last one has this generation.
        self.generation = 0
        # From each partition to the streams and offsets whose dead letters an operator lets pass.
        self.passing: defaultdict[int, set[tuple[str, int]]] = defaultdict(set)

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
            # Another task has failed, so the group takes no more and the worker ends. The next
            # owner works on the partition.
            work.close()
            self.close_all([partition])

    def cancel_takeovers(self, partitions: Collection[int]) -> None:
        """Cancel the tasks of these partitions that have no lane yet."""
        for partition in partitions:
            if partition not in self._lanes:
                self._tasks[partition].cancel()

    async def end(self, partitions: Collection[int]) -> None:
        """Close the lanes and end their tasks; open transactions are aborted."""
        self.close_all(partitions)
        await _end(self._taken(partitions))
        # A takeover may have opened a lane before its task ended.
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
        # Tasks are cancelled more than once, because a client library that is closing may have
        # swallowed a cancellation.
        _, tasks = await asyncio.wait(tasks, timeout=CANCEL_AGAIN_S)
    if tasks:
        raise Fatal(
            f"{len(tasks)} partitions could not be handed back: Kafka's client did not let go of a "
            f"producer within {CANCELLATIONS * CANCEL_AGAIN_S:g} s.",
            exit_code=EXIT_UNREACHABLE,
        )
