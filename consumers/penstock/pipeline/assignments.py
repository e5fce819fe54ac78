"""Opens, suspends, drains and closes the lanes of the partitions that the group gives to the worker
and takes from it. Each open lane has a task that publishes its answers.

Rule: a rebalance suspends a lane, which keeps its work. If the partition comes back at the position
that the lane has reached, the lane goes on; if not, it is closed, and a new lane begins at the
position that the group names. If a partition goes for good, its lane is drained. In both cases the
worker waits, `delivery.drain_ms` at most, until the records on their way have reached the broker,
and commits. A lane is closed first, then its task is cancelled and waited for: until the task has
ended, records of its partition may still leave. With exactly once, a partition that is being taken
over has a task, but no lane yet.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from penstock.core.progress.line_stop import LineStop, Passing
from penstock.core.rows.log_keys import of_place
from penstock.errors import EXIT_UNREACHABLE, Fatal, Transient, usage
from penstock.lane.lane import Lane
from penstock.pipeline.takeover import Takeover
from penstock.pipeline.wiring import Wiring
from penstock.ports import UNDECIDED, Commit, Where

log = logging.getLogger(__name__)

# A partition is to begin again, but its position could not be read: the position is read again
# after this time.
REWIND_AGAIN_S = 2.0

# If a cancelled task has not ended after this time, the task is cancelled again. The end of a
# transaction takes less time, so a second cancellation does not disturb a transaction.
CANCEL_AGAIN_S = 10.0
CANCELLATIONS = 3


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
        # Held while partitions are suspended or handed back, so that one such request runs at a
        # time.
        self._busy = asyncio.Lock()
        # `_asked_back`: for each partition, how often it was asked back. `_leaving`: for each
        # partition, how many requests are handing it back now.
        self._asked_back: Counter[Where] = Counter()
        self._leaving: Counter[Where] = Counter()

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
        is_there = self._lanes.get(lane.where) is lane
        return is_there and not (self._leaving[lane.where] or lane.suspended)

    def let_pass(self, partition: Where, passing: Passing) -> None:
        """An operator wants these records to be answered by their errors. From now on neither the
        partition nor the stream stops at them.
        """
        self._open.passing[partition].add(passing)

    # The group assigns partitions.

    async def assigned(self, starts: Mapping[Where, Commit]) -> Mapping[Where, int]:
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
        also = f"; {_names(kept)} go on" if kept else ""
        log.info("assigned partitions %s%s", _with_generations(anew, first), also)
        return {partition: self._lanes[partition].read_next for partition in kept}

    def _goes_on(self, partition: Where, start: Commit) -> bool:
        """True if the partition's lane was suspended, and the committed position is still the one
        that the lane had reached.
        """
        lane = self._lanes.get(partition)
        return lane is not None and lane.suspended and lane.account.was_left_at(start)

    def _work(self, partition: Where, start: Commit) -> Coroutine[Any, Any, None]:
        if self._takeover is None:
            return self._wiring.publish.lane_forever(self._open.begin(partition, start))
        if start == UNDECIDED:
            return self._takeover.live(partition)
        return self._takeover.live(partition, self._open.begin(partition, start))

    async def _check_output_partitions(self, partitions: Collection[Where]) -> None:
        """Check the output topic again, because the input topic may have got partitions since the
        start. Raises `Fatal` if the output topic has too few.
        """
        wanted = max((where.partition for where in partitions), default=0) + 1
        if self._output_partitions is None or wanted <= self._output_partitions:
            return
        labels = self._settings.labels
        topic = labels.output_topic
        self._output_partitions = count = await self._wiring.adapters.sink.partitions(topic)
        if count < wanted:
            raise usage(
                f"{topic} has {count} partitions, {labels.input_topic} has {wanted} or more "
                "by now; add partitions, or set output.partitioning = 'stream'. Nothing is lost."
            )

    async def begin_again(self, partition: Where) -> None:
        """Close the partition's lane and open a new one, as if the partition were handed back and
        came again.
        """
        asked_back = self._asked_back[partition]
        await self.revoked([partition])
        if self._stopping.is_set() or self._asked_back[partition] != asked_back + 1:
            return  # meanwhile a rebalance or a stop took the partition
        again = self._takeover.live if self._takeover is not None else self._live_again
        self._open.start(partition, again(partition))

    async def _live_again(self, partition: Where) -> None:
        """Read the committed position, then publish a lane that begins there."""
        while True:
            try:
                start = (await self._source.rewind([partition])).get(partition)
            except Transient as error:
                log.warning("%s: %s", partition, error, extra=of_place(partition))
                await asyncio.sleep(REWIND_AGAIN_S)
                continue
            if start is not None:
                await self._wiring.publish.lane_forever(self._open.begin(partition, start))
            return

    # The group, or a stop, asks partitions back.

    async def suspended(self, partitions: Collection[Where]) -> None:
        async with self._asking_back(partitions) as those:
            await self._suspend(those)

    async def revoked(self, partitions: Collection[Where]) -> None:
        async with self._asking_back(partitions) as those:
            await self._drain_and_close(those)

    async def all_revoked(self) -> None:
        await self.revoked(self._open.partitions)

    @asynccontextmanager
    async def _asking_back(self, partitions: Collection[Where]) -> AsyncIterator[Sequence[Where]]:
        """Marks the partitions as being handed back, until the block ends or fails. The marks are
        needed because, while the block waits, a lane may end and this worker may take over its
        partition anew. If a rebalance comes during the drain of a stop, the rebalance waits for the
        drain, and then finds no lane.
        """
        # In their order, because sets have none; and the caller's collection may change meanwhile.
        those = sorted(partitions)
        self._asked_back.update(those)
        self._leaving.update(those)
        try:
            async with self._busy:
                yield those
        finally:
            self._leaving -= Counter(those)

    async def _suspend(self, partitions: Collection[Where]) -> None:
        """Suspend the lanes of these partitions. Two kinds of lanes are closed instead: those that
        have stopped, and those whose records the broker does not acknowledge in time.
        """
        ours = self._open.of(partitions)
        lanes = [self._lanes[partition] for partition in ours if partition in self._lanes]
        self._open.cancel_takeovers(ours)
        for lane in lanes:
            lane.suspend()
        late = await self._late(lanes)
        if not self.exactly_once:
            await self._wiring.settle.try_to_commit(lanes)
        # A lane may have been closed, or begun anew, during the waits above.
        kept = {
            lane.where
            for lane in lanes
            if lane.alive and lane not in late and self._lanes.get(lane.where) is lane
        }
        await self._close([partition for partition in ours if partition not in kept], late)

    async def _drain_and_close(self, partitions: Collection[Where]) -> None:
        """Drain the lanes of these partitions, then close them, even if the drain fails."""
        ours = self._open.of(partitions)
        held = [self._lanes[partition] for partition in ours if partition in self._lanes]
        # A suspended lane may deliver nothing more, and all that it delivered is committed, so it
        # is not drained. Its last transaction may take long to end, so the rebalance does not wait
        # for that.
        lanes = [lane for lane in held if not lane.suspended]
        self._open.end_soon([lane.where for lane in held if lane.suspended])
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
            async with asyncio.timeout(self._settings.times.drain_s):
                for lane in lanes:
                    await lane.at_rest()
        except TimeoutError:
            late = [lane for lane in lanes if not lane.is_at_rest]
            log.warning(
                "what was on its way to Kafka or to the results' store from %d partitions did not "
                "arrive within %.1f s of a rebalance; their work begins again at the last commit",
                len(late),
                self._settings.times.drain_s,
            )
            return late
        return ()

    async def _close(self, partitions: Sequence[Where], late: Collection[Lane]) -> None:
        """Close the lanes of these partitions. `late`: lanes whose records may not all have reached
        the broker.
        """
        await self._open.end(partitions)
        # If a record of a late lane arrived after the partition's next owner began, it would be
        # published twice. So the producer drops all records that it holds, but only while all open
        # lanes are suspended: otherwise it may hold records of other lanes.
        is_idle = all(lane.suspended for lane in self._lanes.values())
        if late and not self.exactly_once and is_idle:
            await self._wiring.adapters.sink.forget()

    async def _drain(self, lanes: Sequence[Lane]) -> None:
        self._wiring.drain()
        for lane in lanes:
            lane.drain()
        try:
            async with asyncio.timeout(self._settings.times.drain_s):
                for lane in lanes:
                    await lane.drained()
        except TimeoutError:
            log.warning(
                "the drain took longer than %.1f s; the rest will be repeated",
                self._settings.times.drain_s,
            )
        if not self.exactly_once:
            # After a stop there is no later commit that would make up for a failed one.
            if self._stopping.is_set():
                await self._wiring.settle.commit_at_last(lanes)
            else:
                await self._wiring.settle.try_to_commit(lanes)
        if not self._stopping.is_set():
            self._wiring.resume()


def _with_generations(partitions: Sequence[Where], first: int) -> str:
    """A text that names the partitions and their generations. The first partition has the
    generation `first`; each further one has the next generation.
    """
    if not partitions:
        return "none"
    last = first + len(partitions) - 1
    return f"{_names(partitions)} as generation {first}{f' to {last}' if last > first else ''}"


def _names(partitions: Sequence[Where]) -> str:
    return f"[{', '.join(map(str, partitions))}]"


class OpenLanes:
    """`tasks_in`: the task group in which lanes publish; set before the first `start`."""

    tasks_in: asyncio.TaskGroup

    def __init__(self, wiring: Wiring, on_stopped: Callable[[Lane, LineStop], None]) -> None:
        self._wiring = wiring
        self._on_stopped = on_stopped
        self._lanes = wiring.lanes
        self._tasks: dict[Where, asyncio.Task[None]] = {}
        # The generation of the lane that was opened last: how many lanes have been opened so far.
        self.generation = 0
        # For each partition: the records whose dead letters an operator lets pass.
        self.passing: defaultdict[Where, set[Passing]] = defaultdict(set)

    @property
    def partitions(self) -> list[Where]:
        """All partitions that have a publishing task."""
        return list(self._tasks)

    def of(self, partitions: Collection[Where]) -> list[Where]:
        """Those of `partitions` that have a publishing task."""
        return [partition for partition in partitions if partition in self._tasks]

    def begin(self, partition: Where, start: Commit) -> Lane:
        """Open a lane of a new generation at this position."""
        self.generation += 1
        passing = self.passing[partition]
        lane = self._wiring.lane(partition, self.generation, start, self._on_stopped, passing)
        self._lanes[partition] = lane
        self._wiring.telemetry.partitions.set(len(self._lanes))
        return lane

    def close(self, lane: Lane) -> None:
        """Close the lane and drop its work. A second call changes nothing."""
        if self._lanes.get(lane.where) is lane:
            log.info("closed %r", lane, extra=of_place(lane.where))
            lane.close()
            del self._lanes[lane.where]
            self._wiring.discard_dead()
            self._wiring.telemetry.partitions.set(len(self._lanes))

    def close_all(self, partitions: Collection[Where]) -> None:
        for partition in partitions:
            if partition in self._lanes:
                self.close(self._lanes[partition])

    def start(self, partition: Where, work: Coroutine[Any, Any, None]) -> None:
        """Run the partition's publishing task."""
        try:
            self._tasks[partition] = self.tasks_in.create_task(work)
        except RuntimeError:
            # Another task has failed, so the task group takes no more tasks, and the worker ends.
            # The partition's next owner does the work.
            work.close()
            self.close_all([partition])

    def cancel_takeovers(self, partitions: Collection[Where]) -> None:
        """Cancel the takeovers of these partitions. A takeover is the task of a partition that has
        no lane yet.
        """
        for partition in partitions:
            if partition not in self._lanes:
                self._tasks[partition].cancel()

    async def end(self, partitions: Collection[Where]) -> None:
        """Close the lanes and end their tasks; open transactions are aborted."""
        self.close_all(partitions)
        await _end(self._taken(partitions))
        # The task of a takeover may have opened a lane before the task ended.
        self.close_all(partitions)

    def end_soon(self, partitions: Collection[Where]) -> None:
        """Close the lanes now; their tasks end in the background."""
        self.close_all(partitions)
        if taken := self._taken(partitions):
            work = _end(taken)
            try:
                self.tasks_in.create_task(work)
            except RuntimeError:
                work.close()  # another task has failed: the group ends all of them

    def _taken(self, partitions: Collection[Where]) -> set[asyncio.Task[None]]:
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
