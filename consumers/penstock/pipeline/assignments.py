"""Handles the partitions that the worker's group gives to the worker and takes from it.

Rule: a rebalance suspends lanes; it does not end them. If a partition comes back at the position
that its suspended lane has reached, the lane goes on with its work. If not, the lane is closed, its
work is dropped, and a new lane begins at the position that the group names. Owner: the pipeline.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from penstock.core.order.line_stop import LineStop, Passing
from penstock.core.rows.log_keys import of_place
from penstock.errors import Transient, usage
from penstock.lane.lane import Lane
from penstock.pipeline.open_lanes import HandingBack, OpenLanes
from penstock.pipeline.takeover import Takeover
from penstock.pipeline.wiring import Wiring
from penstock.ports import UNDECIDED, Commit

log = logging.getLogger(__name__)

# A partition is to begin again, but its position could not be read: the position is read again
# after this time.
REWIND_AGAIN_S = 2.0


class Assignments:
    """Implements `ports.Rebalance`."""

    def __init__(
        self,
        wiring: Wiring,
        on_stopped: Callable[[Lane, LineStop], None],
        stopping: asyncio.Event,
    ) -> None:
        self._wiring = wiring
        self._stopping = stopping
        self._settings = wiring.settings
        self._lanes = wiring.lanes
        self._source = wiring.adapters.source
        self._output_partitions = wiring.settings.output_partitions
        self._open = OpenLanes(wiring, on_stopped)
        self._takeover = self._make_takeover()
        self._handing_back = HandingBack(
            wiring, self._open, stopping, exactly_once=self.exactly_once
        )
        # Held while partitions are suspended or handed back, so that one such request runs at a
        # time.
        self._busy = asyncio.Lock()
        # `_asked_back`: for each partition, how often it was asked back. `_leaving`: for each
        # partition, how many requests are handing it back now.
        self._asked_back: Counter[int] = Counter()
        self._leaving: Counter[int] = Counter()

    def _make_takeover(self) -> Takeover | None:
        adapters, times = self._wiring.adapters, self._settings.times
        if adapters.transactions is None:
            return None
        return Takeover(
            adapters.transactions,
            self._wiring.publish,
            self._open.begin,
            self._open.close,
            adapters.clock,
            self._wiring.telemetry,
            self._wiring.jitter,
            idle_s=times.commit_interval_s,
            patience_s=times.broker_patience_s,
        )

    @property
    def exactly_once(self) -> bool:
        return self._takeover is not None

    def run_in(self, tasks: asyncio.TaskGroup) -> None:
        self._open.tasks_in = tasks
        if self._takeover is not None:
            self._takeover.pool.tasks = tasks

    def stop(self) -> None:
        """Call this once all partitions are handed back."""
        if self._takeover is not None:
            self._takeover.pool.stop()

    async def end(self) -> None:
        """Call this once no task runs any more."""
        if self._takeover is not None:
            await self._takeover.pool.close()

    def may_begin_again(self, lane: Lane) -> bool:
        """True if the lane still lives, and neither a rebalance nor a stop is about to take its
        partition.
        """
        is_there = self._lanes.get(lane.number) is lane
        return is_there and not (self._leaving[lane.number] or lane.suspended)

    def let_pass(self, partition: int, passing: Passing) -> None:
        """An operator wants these records to be answered by their errors. From now on neither the
        partition nor the stream stops at them.
        """
        self._open.passing[partition].add(passing)

    # The group assigns partitions.

    async def assigned(self, starts: Mapping[int, Commit]) -> Mapping[int, int]:
        if self._stopping.is_set():
            # the worker leaves the group: the next owner begins at the committed positions
            return {}
        if self._takeover is not None:
            self._takeover.pool.open()
        asked_back = {partition: self._asked_back[partition] for partition in starts}
        await self._check_output_partitions(starts)
        if self._stopping.is_set():
            return {}  # a stop that began during the check does not drain these partitions
        # A rebalance or a stop may have asked a partition back while the check ran. Then this
        # assignment of the partition is void. After a rebalance the group assigns the partition
        # anew.
        ours = [
            partition
            for partition in sorted(starts)
            if not self._leaving[partition] and self._asked_back[partition] == asked_back[partition]
        ]
        kept = [partition for partition in ours if self._goes_on(partition, starts[partition])]
        anew = [partition for partition in ours if partition not in kept]
        # If one of these partitions still has a suspended lane, the partition begins at another
        # position than the one that the lane had reached. So the work of that lane is dropped.
        self._open.end_soon(anew)
        first = self._open.generation + 1
        for partition in anew:
            self._open.start(partition, self._work(partition, starts[partition]))
        if anew and self._takeover is not None:
            self._takeover.pool.take_back_left()
        for partition in kept:
            self._lanes[partition].go_on()
        also = f"; {kept} go on" if kept else ""
        log.info("assigned partitions %s%s", _with_generations(anew, first), also)
        return {partition: self._lanes[partition].read_next for partition in kept}

    def _goes_on(self, partition: int, start: Commit) -> bool:
        """True if the partition's lane was suspended, and the committed position is still the one
        that the lane had reached.
        """
        lane = self._lanes.get(partition)
        return lane is not None and lane.suspended and lane.account.was_left_at(start)

    def _work(self, partition: int, start: Commit) -> Coroutine[Any, Any, None]:
        if self._takeover is None:
            return self._wiring.publish.lane_forever(self._open.begin(partition, start))
        if start == UNDECIDED:
            return self._takeover.live(partition)
        return self._takeover.live(partition, self._open.begin(partition, start))

    async def _check_output_partitions(self, partitions: Collection[int]) -> None:
        """Check the output topic again, because the input topic may have got partitions since the
        start. Raises `Fatal` if the output topic has too few.
        """
        wanted = max((self._source.where(n).partition for n in partitions), default=0) + 1
        if self._output_partitions is None or wanted <= self._output_partitions:
            return
        labels = self._settings.labels
        topic = labels.output_topic
        self._output_partitions = found = await self._wiring.adapters.sink.partitions(topic)
        if found < wanted:
            raise usage(
                f"{topic} has {found} partitions, {labels.input_topic} has {wanted} or more "
                "by now; add partitions, or set output.partitioning = 'stream'. Nothing is lost."
            )

    async def begin_again(self, partition: int) -> None:
        """Close the partition's lane and open a new one, as if the partition were handed back and
        came again.
        """
        asked_back = self._asked_back[partition]
        await self.revoked([partition])
        if self._stopping.is_set() or self._asked_back[partition] != asked_back + 1:
            return  # meanwhile a rebalance or a stop took the partition
        again = self._takeover.live if self._takeover is not None else self._live_again
        self._open.start(partition, again(partition))

    async def _live_again(self, partition: int) -> None:
        """Read the committed position, then publish a lane that begins there."""
        while True:
            try:
                start = (await self._source.rewind([partition])).get(partition)
            except Transient as error:
                where = self._source.where(partition)
                log.warning("%s: %s", where, error, extra=of_place(*where))
                await asyncio.sleep(REWIND_AGAIN_S)
                continue
            if start is not None:
                await self._wiring.publish.lane_forever(self._open.begin(partition, start))
            return

    # The group, or a stop, asks partitions back.

    async def suspended(self, partitions: Collection[int]) -> None:
        async with self._asking_back(partitions) as those:
            await self._handing_back.suspend(those)

    async def revoked(self, partitions: Collection[int]) -> None:
        async with self._asking_back(partitions) as those:
            await self._handing_back.drain_and_close(those)

    async def all_revoked(self) -> None:
        await self.revoked(self._open.partitions)

    @asynccontextmanager
    async def _asking_back(self, partitions: Collection[int]) -> AsyncIterator[Sequence[int]]:
        """Marks the partitions as being handed back, until the block ends or fails. The marks are
        needed because, while the block waits, a lane may end and this worker may take over its
        partition anew. If a rebalance comes during the drain of a stop, the rebalance waits for the
        drain, and then finds no lane.
        """
        those = tuple(partitions)  # the caller's collection may change meanwhile
        self._asked_back.update(those)
        self._leaving.update(those)
        try:
            async with self._busy:
                yield those
        finally:
            self._leaving -= Counter(those)


def _with_generations(partitions: Sequence[int], first: int) -> str:
    """A text that names the partitions and their generations. The first partition has the
    generation `first`; each further one has the next generation.
    """
    if not partitions:
        return "none"
    last = first + len(partitions) - 1
    return f"{partitions} as generation {first}{f' to {last}' if last > first else ''}"
