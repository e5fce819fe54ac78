"""The life of a pipeline: start, rebalance, drain, stop.

Rule: every task has its parent here (one TaskGroup); the first failure ends all of them, and `run`
raises it. Revoke and stop are one drain: take no new records, finish the objects that fit into the
time budget, commit, drop the rest. The stages are made in wiring.py.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from penstock.core.order import operator_words
from penstock.core.order.line_stop import LineStop
from penstock.core.order.operator_words import Word
from penstock.core.rows.log_keys import of_place
from penstock.errors import EXIT_UNREACHABLE, EXIT_USAGE, Fatal, PenstockError, Transient
from penstock.lane.lane import Lane
from penstock.pipeline.backlog import Backlog, backlog_of
from penstock.pipeline.takeover import Takeover, check_count
from penstock.pipeline.wiring import Wiring
from penstock.ports import Commit
from penstock.process.stopping import stopped_after
from penstock.stages.microbatch import Waiting

log = logging.getLogger(__name__)

# How often operators' words about stopped lines are read.
WORDS_S = 2.0
# Longer than an outlet takes to close, so that a second cancellation does not disturb it.
ASK_AGAIN_S = 10.0
ASKS = 3


class Pipeline:
    """`run` until `stop` is called or something fails. Implements `ports.Rebalance`."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        adapters = wiring.adapters
        self._settings = wiring.settings
        self._lanes = wiring.lanes
        self._source = adapters.source
        self._sink = adapters.sink
        self._output_partitions = wiring.settings.output_partitions
        self._generation = 0
        self._publishing: dict[int, asyncio.Task[None]] = {}
        self._stopping = asyncio.Event()
        self._revoking = asyncio.Lock()
        # How often each partition was asked back, and the partitions that are being handed back.
        self._asked_back: Counter[int] = Counter()
        self._leaving: Counter[int] = Counter()
        self._failure: Fatal | None = None
        self.joined = asyncio.Event()  # the group, at the start
        self._line_stops = asyncio.Event()
        # The words that were acted on, and by partition the streams and records they let pass.
        self._heard: set[tuple[int, Word]] = set()
        self._passing: defaultdict[int, set[tuple[str, int]]] = defaultdict(set)
        self._takeover: Takeover | None = None
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

    def __repr__(self) -> str:
        windows = "; ".join(repr(track.microbatch) for track in self.wiring.tracks.values())
        return f"{len(self._lanes)} partitions; {windows}; {self.wiring.budget!r}"

    async def run(self) -> None:
        """Returns after a drain; raises the first failure of any task."""
        async with stopped_after(self._source.stop):
            await self._run()
            if self._failure is not None:
                raise self._failure

    async def end(self) -> None:
        """Called after `run`, when the partitions are handed over: gives a shadow a moment to write
        its comparison.
        """
        if self.wiring.shadow is not None:
            await self.wiring.shadow.end()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            workers = [
                *(
                    track.download.fetch_forever(store, fetchers)
                    for track in self.wiring.tracks.values()
                    for store, fetchers in self._settings.objects.stores.items()
                ),
                *(track.predict.run() for track in self.wiring.tracks.values()),
                *(watchdog.run() for watchdog in self.wiring.watchdogs),
                self._mind_lines(),
                self.wiring.reject.run(),
            ]
            if self._takeover is None:
                workers.append(self.wiring.settle.run())
            assist = self.wiring.assist
            if assist is not None:
                workers.append(assist.run(self))
            if self.wiring.shadow is not None:
                workers.append(self.wiring.shadow.run())
            running = [self._tasks.create_task(worker) for worker in workers]
            consuming = self._tasks.create_task(self._join_and_consume())
            await self._stopping.wait()
            self.wiring.consume.stop()
            if not self.joined.is_set():
                consuming.cancel()
            await asyncio.wait([consuming])
            if assist is not None:
                assist.stop()
                await assist.idle()
            await self.revoked(list(self._publishing))
            for task in running:
                task.cancel()

    async def _join_and_consume(self) -> None:
        await self._source.start(self)
        self.joined.set()
        await self.wiring.consume.run()

    @property
    def waiting(self) -> Waiting:
        """The rows that wait for a model call."""
        return self.wiring.waiting

    @property
    def backlog(self) -> Backlog:
        """What we have read and not answered yet."""
        return backlog_of(self._lanes.values(), self.wiring.adapters.clock.wall_ms())

    @property
    def stopped(self) -> list[LineStop]:
        """The places at which lines have been stopped."""
        return [stop for lane in self._lanes.values() for stop in lane.stops]

    def stop(self) -> None:
        """Drain and end. Safe to call from a signal handler of the loop."""
        self._stopping.set()

    async def assigned(self, starts: Mapping[int, Commit]) -> None:
        if self._stopping.is_set():
            return  # we are leaving: their next owner begins at the committed positions
        if self._takeover is not None:
            check_count(len(starts))
        asked_back = {partition: self._asked_back[partition] for partition in starts}
        await self._check_places(starts)
        # While a lost position is looked up, a rebalance or a stop may ask the partition back. A
        # rebalance then assigns it anew.
        ours = [
            partition
            for partition in sorted(starts)
            if not self._leaving[partition] and self._asked_back[partition] == asked_back[partition]
        ]
        first = self._generation + 1
        for partition in ours:
            start = starts[partition]
            work = (
                self._takeover.live(partition)
                if self._takeover is not None
                else self.wiring.publish.lane_forever(self._begin(partition, start))
            )
            self._start(partition, work)
        log.info("assigned partitions %s", _with_generations(ours, first))

    def _start(self, partition: int, work: Coroutine[Any, Any, None]) -> None:
        try:
            self._publishing[partition] = self._tasks.create_task(work)
        except RuntimeError:
            # A task has failed, so the worker ends: the next owner works on the partition.
            work.close()
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
            raise Fatal(
                f"{topic} has {found} partitions, {labels.input_topic} has {wanted} or more "
                "by now; add partitions, or set output.partitioning = 'stream'. Nothing is lost.",
                exit_code=EXIT_USAGE,
            )

    def _begin(self, partition: int, start: Commit) -> Lane:
        self._generation += 1
        passing = self._passing[partition]
        lane = self.wiring.lane(partition, self._generation, start, self._line_stopped, passing)
        self._lanes[partition] = lane
        self.wiring.telemetry.partitions.set(len(self._lanes))
        return lane

    def _end(self, lane: Lane) -> None:
        if self._lanes.get(lane.number) is lane:
            log.info("closed %r", lane, extra=of_place(lane.topic, lane.partition))
            lane.close()
            del self._lanes[lane.number]
            self.wiring.discard_dead()
            self.wiring.telemetry.partitions.set(len(self._lanes))

    def _line_stopped(self, lane: Lane, stop: LineStop) -> None:
        """Tell people that a line stopped; the other lines go on."""
        log.error(
            "line stopped: %s. Mend the cause, then start the worker again or say penstock dlq "
            "resume STREAM: it goes on at this object. To have it answered by its error instead, "
            "say penstock dlq skip STREAM",
            stop,
            extra={**of_place(lane.topic, lane.partition, stop.offset), **stop.keys},
        )
        self.wiring.discard_dead()
        if not lane.alive:
            self._source.pause(lane.number)
        self._line_stops.set()

    async def _mind_lines(self) -> None:
        """Look for operators' words while lines are stopped. If all lines are stopped, in this
        worker and elsewhere, and nobody says how to go on, the worker ends.
        """
        while True:
            await self._line_stops.wait()
            self._line_stops.clear()
            while self.stopped:
                if not await self._act_on_words():
                    self._end_if_all_stopped()
                with suppress(TimeoutError):
                    async with asyncio.timeout(WORDS_S):
                        await self._line_stops.wait()
                self._line_stops.clear()

    async def _act_on_words(self) -> bool:
        lanes = [lane for lane in self._lanes.values() if lane.stops]
        try:
            said = await self._source.words([lane.number for lane in lanes])
        except PenstockError as error:
            log.warning("what is said of stopped lines cannot be read: %s", error)
            return False
        acted = False
        for lane in lanes:
            words = self._news(lane, operator_words.decode(said.get(lane.number, "")))
            if words and self._lanes.get(lane.number) is lane:
                keys = of_place(lane.topic, lane.partition)
                log.info("partition %d goes on: %s", lane.number, words, extra=keys)
                await self._begin_again(lane.number)
                acted = True
        return acted

    def _news(self, lane: Lane, words: Sequence[Word]) -> list[str]:
        """New words about the lane's stops, each returned once. A record to skip passes from now
        on.
        """
        found: list[str] = []
        for stop in lane.stops:
            for word in words:
                if word.is_about(stop) and (lane.number, word) not in self._heard:
                    self._heard.add((lane.number, word))
                    found.append(f"{word.verb} stream {stop.stream!r} at offset {stop.offset}")
                    if word.verb == "skip":
                        self._passing[lane.number].add((stop.stream, stop.offset))
        return found

    async def _begin_again(self, partition: int) -> None:
        """Close the lane and open it anew, as if the partition were handed back and came again."""
        if self._leaving[partition]:
            return  # a rebalance or a stop is about to take it
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
                await asyncio.sleep(WORDS_S)
                continue
            if start is not None:
                await self.wiring.publish.lane_forever(self._begin(partition, start))
            return

    def _end_if_all_stopped(self) -> None:
        """Asks for the number of partitions anew, as some may have been added since the start."""
        stopped = [lane.stopped for lane in self._lanes.values() if lane.stopped is not None]
        if len(stopped) < max(self._settings.input_partitions, self._source.partitions()):
            return
        self._failure = Fatal(
            f"every line is stopped, the last one at {stopped[-1]}. Mend the cause, then "
            "start the worker again: it goes on where it stopped. To have that answered by its "
            "error instead, say penstock dlq skip STREAM before."
        )
        self.stop()

    async def revoked(self, partitions: Collection[int]) -> None:
        # A rebalance may come during the drain of a stop: it waits for that, then finds no lane.
        self._asked_back.update(partitions)
        self._leaving.update(partitions)
        try:
            async with self._revoking:
                await self._hand_back(partitions)
        finally:
            self._leaving -= Counter(partitions)

    async def _hand_back(self, partitions: Collection[int]) -> None:
        """Drain and close the lanes of these partitions. They are marked as being handed back until
        the end, even if a step fails: at every wait a lane may end and its partition be taken over
        anew.
        """
        ours = [partition for partition in partitions if partition in self._publishing]
        lanes = [self._lanes[partition] for partition in ours if partition in self._lanes]
        for partition in ours:
            if partition not in self._lanes:
                self._publishing[partition].cancel()
        try:
            if lanes:
                await self._drain(lanes)
        finally:
            is_late = self._takeover is None and any(lane.is_publishing for lane in lanes)
            self._end_all(ours)
            await self._cancel(ours)
            self._end_all(ours)
            if is_late and not self._lanes:
                await self._sink.forget()

    def _end_all(self, partitions: Collection[int]) -> None:
        for partition in partitions:
            if partition in self._lanes:
                self._end(self._lanes[partition])

    async def _drain(self, lanes: Sequence[Lane]) -> None:
        self.wiring.drain()
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
                await self.wiring.settle.commit_at_last(lanes)
            else:
                await self.wiring.settle.try_to_commit(lanes)
        if not self._stopping.is_set():
            self.wiring.resume()

    async def _cancel(self, partitions: Sequence[int]) -> None:
        """End the tasks that publish for these partitions; open transactions are aborted."""
        publishing = {self._publishing.pop(partition) for partition in partitions}
        for _ in range(ASKS):
            if not publishing:
                return
            for task in publishing:
                task.cancel()
            # Cancelled again: a client library that is closing may have swallowed the first one.
            _, publishing = await asyncio.wait(publishing, timeout=ASK_AGAIN_S)
        if publishing:
            raise Fatal(
                f"partitions {sorted(partitions)} could not be handed back: Kafka's client did not "
                f"let go of a producer within {ASKS * ASK_AGAIN_S:g} s.",
                exit_code=EXIT_UNREACHABLE,
            )


def _with_generations(partitions: Sequence[int], first: int) -> str:
    """The partitions with their generations, which count up from `first` in this order."""
    if not partitions:
        return "none"
    last = first + len(partitions) - 1
    return f"{partitions} as generation {first}{f' to {last}' if last > first else ''}"
