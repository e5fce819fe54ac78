"""The wiring, in flow order, and the life of the whole: start, rebalance, drain, stop.

Rule: every task has its parent here (one TaskGroup); the first failure ends all of them and is what
`run` raises. Revoke and stop are one drain: take nothing new, finish what fits into the budget of
time, commit, drop the rest.

    consume → download → expand → microbatch → predict → publish → settle
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from consumers.budget import Budget
from consumers.core.blocks import Ticket
from consumers.core.jobs import Share
from consumers.core.line import LineLimits, LineStop
from consumers.core.pace import Pace, Setting
from consumers.core.payload import Payload
from consumers.core.window import Window, WindowLimits
from consumers.dedupe import Dedupe
from consumers.ending import stopped_after
from consumers.errors import Fatal
from consumers.formats.base import RowOptions
from consumers.lane import Lane
from consumers.model_calls import ModelCalls
from consumers.outage import Outage
from consumers.ports import Adapters, Clock, Commit
from consumers.stages.consume import Consume, Intake
from consumers.stages.download import Download
from consumers.stages.expand import Expand, Offload, decode_in_thread
from consumers.stages.microbatch import Microbatch, Waiting
from consumers.stages.predict import Predict
from consumers.stages.publish import Labels, Publish
from consumers.stages.reject import Reject
from consumers.stages.settle import Settle
from consumers.takeover import Takeover, check_count
from consumers.telemetry import Telemetry
from consumers.watchdog import Watchdog

log = logging.getLogger(__name__)

# Above what an outlet takes to close, so that it is not disturbed.
ASK_AGAIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What the pipeline needs to know, as plain values; `app.py` makes it from the
    configuration.
    """

    labels: Labels
    dead_letter_topic: str
    dead_letter_partitions: int
    rows: RowOptions
    window: WindowLimits
    target_p99_s: float | None
    fetchers: int
    callers: int
    buffer_bytes: int
    in_flight_objects: int
    object_bytes: int | None
    pin: bool
    wait_for_object_s: float
    commit_interval_s: float
    drain_s: float
    patience_s: float | None
    line: LineLimits
    input_partitions: int
    commit_patience_s: float
    stall_s: float | None
    order_by_stream: bool = False
    canary: Payload | None = None
    dedupe: bool = False


def _stream_share(settings: Settings) -> Share | None:
    """A quarter: three streams that are stuck leave room for all the others."""
    if not settings.order_by_stream:
        return None
    return Share(max(1, settings.fetchers // 4), max(1, settings.in_flight_objects // 4))


class Pipeline:
    """`run` until `stop` is called or something fails. Implements `ports.Rebalance`. `luck` draws
    the jitter of retries.
    """

    def __init__(
        self,
        settings: Settings,
        adapters: Adapters,
        intake: Intake,
        partition_of: Callable[[Ticket], int],
        telemetry: Telemetry,
        *,
        offload: Offload = decode_in_thread,
        luck: Callable[[], float] = random.random,
    ) -> None:
        source, objects, model, sink, clock = (
            adapters.source, adapters.objects, adapters.model, adapters.sink, adapters.clock,
        )  # fmt: skip
        self._settings = settings
        self._source = source
        self._intake = intake
        self._telemetry = telemetry
        self.labels = settings.labels
        self.budget = Budget(settings.buffer_bytes)
        self.outages: list[Outage] = []
        self.lanes: dict[int, Lane] = {}
        self._generation = 0
        self._publishing: dict[int, asyncio.Task[None]] = {}
        self._stopping = asyncio.Event()
        self._revoking = asyncio.Lock()
        self._failure: Fatal | None = None
        self._has_joined = False

        self._consume = Consume(source, self.lanes, clock)
        window = settings.window
        fixed = Setting(window.max_rows, window.max_wait_s, settings.callers)
        pace = Pace(fixed, settings.target_p99_s) if settings.target_p99_s is not None else None
        self._microbatch = Microbatch(Window(window), clock, telemetry, calls=settings.callers)
        expand = Expand(settings.rows, self._microbatch, offload)
        dedupe = Dedupe(is_on=settings.dedupe)
        self._download = Download(
            objects,
            expand,
            self._microbatch,
            self.budget,
            clock,
            telemetry,
            self._outage("object store", clock),
            dedupe,
            luck,
            pin=settings.pin,
            wait_for_object_s=settings.wait_for_object_s,
            object_bytes=settings.object_bytes,
        )
        away = self._outage("model server", clock)
        self.calls = ModelCalls(
            model, settings.canary, settings.callers, clock, telemetry, away, luck
        )
        self._predict = Predict(self.calls, self._microbatch, fixed, pace, clock)
        reject = Reject(
            sink,
            input_topic=settings.labels.input_topic,
            topic=settings.dead_letter_topic,
            partitions=settings.dead_letter_partitions,
            model=settings.labels.model,
            clock=clock,
        )
        self._publish = Publish(
            sink, reject, settings.labels, partition_of, pace, dedupe, clock, telemetry
        )
        self._settle = Settle(
            source,
            self.lanes,
            telemetry,
            Outage("Kafka broker", clock, settings.commit_patience_s),
            clock,
            interval_s=settings.commit_interval_s,
        )
        self._watchdogs = (
            [Watchdog(self.lanes, clock, telemetry, limit_s=settings.stall_s)]
            if settings.stall_s is not None
            else []
        )
        self._takeover: Takeover | None = None
        if adapters.transactions is not None:
            self._takeover = Takeover(
                adapters.transactions,
                self._publish,
                self._begin,
                self._end,
                clock,
                telemetry,
                luck,
                idle_s=settings.commit_interval_s,
            )

    def _outage(self, service: str, clock: Clock) -> Outage:
        outage = Outage(service, clock, self._settings.patience_s)
        self.outages.append(outage)
        return outage

    def __repr__(self) -> str:
        return f"{len(self.lanes)} partitions; {self._microbatch!r}; {self.budget!r}"

    async def run(self) -> None:
        """Returns after a drain; raises the first failure of any task."""
        async with stopped_after(self._source.stop):
            await self._run()
            if self._failure is not None:
                raise self._failure

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            workers = [
                *(self._download.fetch_forever() for _ in range(self._settings.fetchers)),
                *(self._predict.call_forever() for _ in range(self._settings.callers)),
                *(watchdog.run() for watchdog in self._watchdogs),
            ]
            if self._takeover is None:
                workers.append(self._settle.run())
            running = [self._tasks.create_task(worker) for worker in workers]
            consuming = self._tasks.create_task(self._join_and_consume())
            await self._stopping.wait()
            self._consume.stop()
            if not self._has_joined:
                consuming.cancel()
            await asyncio.wait([consuming])
            await self.revoked(list(self._publishing))
            for task in running:
                task.cancel()

    async def _join_and_consume(self) -> None:
        await self._source.start(self)
        self._has_joined = True
        await self._consume.run()

    async def lags(self) -> dict[int, int]:
        """Records that are not committed yet, by partition of ours."""
        ends = await self._source.end_offsets()
        return {
            number: max(0, ends[number] - lane.committed.next_offset)
            for number, lane in self.lanes.items()
            if number in ends
        }

    @property
    def waiting(self) -> Waiting:
        """Rows that wait for a model call."""
        return self._microbatch.waiting

    @property
    def stopped(self) -> list[LineStop]:
        """Where lines stand still."""
        return [lane.stopped for lane in self.lanes.values() if lane.stopped is not None]

    def stop(self) -> None:
        """Drain and end. Safe to call from a signal handler of the loop."""
        self._stopping.set()

    async def assigned(self, starts: Mapping[int, Commit]) -> None:
        if self._stopping.is_set():
            return  # we are about to leave: whoever gets them next begins where they are committed
        if self._takeover is not None:
            check_count(len(starts))
        for partition, start in sorted(starts.items()):
            work = (
                self._takeover.live(partition)
                if self._takeover is not None
                else self._publish.lane_forever(self._begin(partition, start))
            )
            self._publishing[partition] = self._tasks.create_task(work)
        log.info("assigned partitions %s", sorted(starts) or "none")

    def _begin(self, partition: int, start: Commit) -> Lane:
        self._generation += 1
        lane = Lane(
            partition,
            self._generation,
            start,
            budget=self.budget,
            decode=self._intake.tickets,
            max_objects=self._settings.in_flight_objects,
            line=self._settings.line,
            stream_share=_stream_share(self._settings),
        )
        lane.on_jobs = self._download.offer
        lane.on_stopped = self._line_stopped
        self.lanes[partition] = lane
        self._telemetry.partitions.set(len(self.lanes))
        return lane

    def _end(self, lane: Lane) -> None:
        if self.lanes.get(lane.partition) is lane:
            log.info("closed %r", lane)
            lane.close()
            del self.lanes[lane.partition]
            self._microbatch.discard_dead()
            self._telemetry.partitions.set(len(self.lanes))

    def _line_stopped(self, lane: Lane) -> None:
        """The others go on. Where there are no others, in this worker or elsewhere, all ends."""
        log.error(
            "line stopped: %s. Mend the cause, then start the worker again: it goes on at this "
            "object. To have it answered by its error instead, start it with a higher limit, or 0",
            lane.stopped,
        )
        self._microbatch.discard_dead()
        self._source.pause(lane.partition)
        if len(self.stopped) == self._settings.input_partitions:
            self._failure = Fatal(
                f"every line is stopped, the last one at {lane.stopped}. Mend the cause, then "
                "start the worker again: it goes on where it stopped."
            )
            self.stop()

    async def revoked(self, partitions: Collection[int]) -> None:
        # A rebalance may come into the drain of a stop: it waits for that, and finds nothing left.
        async with self._revoking:
            await self._hand_back(partitions)

    async def _hand_back(self, partitions: Collection[int]) -> None:
        ours = [partition for partition in partitions if partition in self._publishing]
        await self._cancel([partition for partition in ours if partition not in self.lanes])
        lanes = [self.lanes[partition] for partition in ours if partition in self.lanes]
        if lanes:
            await self._drain(lanes)
            for lane in lanes:
                self._end(lane)
            await self._cancel([lane.partition for lane in lanes])

    async def _drain(self, lanes: Sequence[Lane]) -> None:
        self._microbatch.drain()
        for lane in lanes:
            lane.drain()
        try:
            async with asyncio.timeout(self._settings.drain_s):
                for lane in lanes:
                    await lane.drained()
        except TimeoutError:
            log.warning(
                "the drain took longer than %.1f s; the rest will be repeated",
                self._settings.drain_s,
            )
        if self._takeover is None:
            if self._stopping.is_set():
                await self._settle.commit_at_last(lanes)
            else:
                await self._settle.try_to_commit(lanes)
        if not self._stopping.is_set():
            self._microbatch.resume()

    async def _cancel(self, partitions: Sequence[int]) -> None:
        """What publishes for them ends; a transaction that is not finished is taken back."""
        publishing = {self._publishing.pop(partition) for partition in partitions}
        while publishing:
            for task in publishing:
                task.cancel()
            # Again: a client library that is closing may have taken the cancellation for its own.
            _, publishing = await asyncio.wait(publishing, timeout=ASK_AGAIN_S)
