"""The partitions of a worker: opened, suspended in a rebalance, handed back.

Rule: a rebalance suspends lanes; it does not end them. What is on its way to the broker is awaited
(`delivery.drain_ms`), what is delivered is committed, and from then on nothing leaves. If a
partition comes back at the position where its lane stopped, the lane goes on with its work; if not,
the lane is closed and its work dropped. To hand back for good is a drain: finish the objects that
fit into the budget, commit, drop the rest. Owner: the pipeline.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from penstock.core.order.line_stop import LineStop
from penstock.core.rows.log_keys import of_place
from penstock.errors import Transient, usage
from penstock.lane.lane import Lane
from penstock.pipeline.publishing_tasks import PublishingTasks
from penstock.pipeline.takeover import Takeover
from penstock.pipeline.wiring import Wiring
from penstock.ports import UNDECIDED, Commit

log = logging.getLogger(__name__)

# Pause before the position of a line that goes on is read again.
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
        self._on_stopped = on_stopped
        self._stopping = stopping
        self._settings = wiring.settings
        self._lanes = wiring.lanes
        self._source = wiring.adapters.source
        self._sink = wiring.adapters.sink
        self._output_partitions = wiring.settings.output_partitions
        self._generation = 0
        self._publishing = PublishingTasks()
        self._busy = asyncio.Lock()
        # How often each partition was asked back, and the partitions that are being handed back.
        self._asked_back: Counter[int] = Counter()
        self._leaving: Counter[int] = Counter()
        # By partition the streams and records that an operator lets pass.
        self.passing: defaultdict[int, set[tuple[str, int]]] = defaultdict(set)
        self._takeover: Takeover | None = None
        adapters = wiring.adapters
        if adapters.transactions is not None:
            self._takeover = Takeover(
                adapters.transactions,
                wiring.publish,
                self._begin,
                self._end,
                adapters.clock,
                wiring.telemetry,
                wiring.jitter,
                idle_s=wiring.settings.times.commit_interval_s,
                patience_s=wiring.settings.times.broker_patience_s,
            )

    @property
    def exactly_once(self) -> bool:
        return self._takeover is not None

    def run_in(self, tasks: asyncio.TaskGroup) -> None:
        self._publishing.group = tasks
        if self._takeover is not None:
            self._takeover.pool.tasks = tasks

    def stop(self) -> None:
        """Once all partitions are handed back."""
        if self._takeover is not None:
            self._takeover.pool.stop()

    async def end(self) -> None:
        """Once no task runs any more."""
        if self._takeover is not None:
            await self._takeover.pool.close()

    def may_begin_again(self, lane: Lane) -> bool:
        """False if the lane is over, or while a rebalance or a stop may take the partition."""
        is_there = self._lanes.get(lane.number) is lane
        return is_there and not (self._leaving[lane.number] or lane.suspended)

    # Assigned.

    async def assigned(self, starts: Mapping[int, Commit]) -> Mapping[int, int]:
        if self._stopping.is_set():
            return {}  # we are leaving: their next owner begins at the committed positions
        if self._takeover is not None:
            self._takeover.pool.open()
        asked_back = {partition: self._asked_back[partition] for partition in starts}
        await self._check_places(starts)
        if self._stopping.is_set():
            return {}  # a stop began meanwhile: it does not know the new ones
        # While a lost position is looked up, a rebalance or a stop may ask the partition back. A
        # rebalance then assigns it anew.
        ours = [
            partition
            for partition in sorted(starts)
            if not self._leaving[partition] and self._asked_back[partition] == asked_back[partition]
        ]
        kept = [partition for partition in ours if self._goes_on(partition, starts[partition])]
        anew = [partition for partition in ours if partition not in kept]
        self._drop(anew)
        first = self._generation + 1
        for partition in anew:
            self._start(partition, self._work(partition, starts[partition]))
        if anew and self._takeover is not None:
            self._takeover.pool.take_back_left()
        for partition in kept:
            self._lanes[partition].go_on()
        also = f"; {kept} go on" if kept else ""
        log.info("assigned partitions %s%s", _with_generations(anew, first), also)
        return {partition: self._lanes[partition].read_next for partition in kept}

    def _goes_on(self, partition: int, start: Commit) -> bool:
        """Was the partition suspended, and did nobody get further with it meanwhile?"""
        lane = self._lanes.get(partition)
        return lane is not None and lane.suspended and lane.was_left_at(start)

    def _work(self, partition: int, start: Commit) -> Coroutine[Any, Any, None]:
        if self._takeover is None:
            return self._wiring.publish.lane_forever(self._begin(partition, start))
        if start == UNDECIDED:
            return self._takeover.live(partition)
        return self._takeover.live(partition, self._begin(partition, start))

    def _start(self, partition: int, work: Coroutine[Any, Any, None]) -> None:
        if not self._publishing.start(partition, work):
            # The worker ends: the next owner works on the partition.
            self._end_all([partition])

    async def _check_places(self, partitions: Collection[int]) -> None:
        """Check the output topic again: the input topic may have got partitions since the start."""
        wanted = max((self._source.where(n).partition for n in partitions), default=0) + 1
        if self._output_partitions is None or wanted <= self._output_partitions:
            return
        labels = self._settings.labels
        topic = labels.output_topic
        self._output_partitions = found = await self._sink.partitions(topic)
        if found < wanted:
            raise usage(
                f"{topic} has {found} partitions, {labels.input_topic} has {wanted} or more "
                "by now; add partitions, or set output.partitioning = 'stream'. Nothing is lost."
            )

    def _begin(self, partition: int, start: Commit) -> Lane:
        self._generation += 1
        passing = self.passing[partition]
        lane = self._wiring.lane(partition, self._generation, start, self._on_stopped, passing)
        self._lanes[partition] = lane
        self._wiring.telemetry.partitions.set(len(self._lanes))
        return lane

    def _end(self, lane: Lane) -> None:
        if self._lanes.get(lane.number) is lane:
            log.info("closed %r", lane, extra=of_place(lane.topic, lane.partition))
            lane.close()
            del self._lanes[lane.number]
            self._wiring.discard_dead()
            self._wiring.telemetry.partitions.set(len(self._lanes))

    async def begin_again(self, partition: int) -> None:
        """Close the lane and open it anew, as if the partition were handed back and came again."""
        asked_back = self._asked_back[partition]
        await self.revoked([partition])
        if self._stopping.is_set() or self._asked_back[partition] != asked_back + 1:
            return  # a rebalance or a stop took it meanwhile
        again = self._takeover.live if self._takeover is not None else self._live_again
        self._start(partition, again(partition))

    async def _live_again(self, partition: int) -> None:
        while True:
            try:
                start = (await self._source.rewind([partition])).get(partition)
            except Transient as error:
                keys = of_place(*self._source.where(partition))
                log.warning("partition %d: %s", partition, error, extra=keys)
                await asyncio.sleep(REWIND_AGAIN_S)
                continue
            if start is not None:
                await self._wiring.publish.lane_forever(self._begin(partition, start))
            return

    # Handed back.

    async def suspended(self, partitions: Collection[int]) -> None:
        async with self._asking_back(partitions):
            await self._suspend(partitions)

    async def revoked(self, partitions: Collection[int]) -> None:
        async with self._asking_back(partitions):
            await self._hand_back(partitions)

    async def all_revoked(self) -> None:
        await self.revoked(self._publishing.partitions)

    @asynccontextmanager
    async def _asking_back(self, partitions: Collection[int]) -> AsyncIterator[None]:
        """A rebalance may come during the drain of a stop: it waits for that, then finds no
        lane.
        """
        partitions = tuple(partitions)  # the caller's may change meanwhile
        self._asked_back.update(partitions)
        self._leaving.update(partitions)
        try:
            async with self._busy:
                yield
        finally:
            self._leaving -= Counter(partitions)

    async def _suspend(self, partitions: Collection[int]) -> None:
        """Lanes that cannot be suspended are closed: those that stopped, and those whose records
        the broker does not acknowledge in time.
        """
        ours = self._publishing.of(partitions)
        lanes = [self._lanes[partition] for partition in ours if partition in self._lanes]
        self._stop_takeovers(ours)
        for lane in lanes:
            lane.suspend()
        late = await self._late(lanes)
        if self._takeover is None:
            await self._wiring.settle.try_to_commit(lanes)
        kept = {
            lane.number
            for lane in lanes
            if lane.alive and lane not in late and self._lanes.get(lane.number) is lane
        }
        await self._close([partition for partition in ours if partition not in kept], late)

    def _stop_takeovers(self, partitions: Collection[int]) -> None:
        for partition in partitions:
            if partition not in self._lanes:
                self._publishing.cancel(partition)

    async def _late(self, lanes: Sequence[Lane]) -> Collection[Lane]:
        """Wait until nothing of these lanes is on its way to the broker. Returns those of which
        something is after all the time that there is.
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

    async def _hand_back(self, partitions: Collection[int]) -> None:
        """Drain and close the lanes of these partitions. They are marked as being handed back until
        the end, even if a step fails: at every wait a lane may end and its partition be taken over
        anew.
        """
        ours = self._publishing.of(partitions)
        held = [self._lanes[partition] for partition in ours if partition in self._lanes]
        # A suspended lane may deliver nothing more, and what it delivered is committed.
        lanes = [lane for lane in held if not lane.suspended]
        self._drop([lane.number for lane in held if lane.suspended])
        ours = self._publishing.of(ours)
        self._stop_takeovers(ours)
        try:
            if lanes:
                await self._drain(lanes)
        finally:
            await self._close(ours, [lane for lane in lanes if lane.is_publishing])

    async def _close(self, partitions: Sequence[int], late: Collection[Lane]) -> None:
        """`late`: the lanes whose records may not all have reached the broker."""
        self._end_all(partitions)
        await self._publishing.end(partitions)
        self._end_all(partitions)
        # Other lanes may have records with the producer only while they are not suspended.
        is_idle = all(lane.suspended for lane in self._lanes.values())
        if late and self._takeover is None and is_idle:
            await self._sink.forget()

    def _drop(self, partitions: Sequence[int]) -> None:
        """Close suspended lanes. Nothing of them can leave any more, so what takes time, as the
        end of a transaction does, is not waited for: a rebalance goes on meanwhile.
        """
        self._end_all(partitions)
        self._publishing.end_soon(partitions)

    def _end_all(self, partitions: Collection[int]) -> None:
        for partition in partitions:
            if partition in self._lanes:
                self._end(self._lanes[partition])

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
        if self._takeover is None:
            if self._stopping.is_set():
                await self._wiring.settle.commit_at_last(lanes)
            else:
                await self._wiring.settle.try_to_commit(lanes)
        if not self._stopping.is_set():
            self._wiring.resume()


def _with_generations(partitions: Sequence[int], first: int) -> str:
    """The partitions with their generations, which count up from `first` in this order."""
    if not partitions:
        return "none"
    last = first + len(partitions) - 1
    return f"{partitions} as generation {first}{f' to {last}' if last > first else ''}"
