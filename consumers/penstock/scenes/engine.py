"""A scenes worker on our own Kafka adapters: one loop re-keys predictions, another decides about
scenes.

Rule: a loop hands batches over in order and commits one when its results are delivered. Records of
an assignment that is over are dropped; the next one reads them again. A failure ends the process.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Protocol

import msgspec

from penstock import config
from penstock.adapters.kafka.keyed_writer import KeyedWriter
from penstock.adapters.kafka.source import KafkaSource
from penstock.core.progress.time_order import Merge
from penstock.errors import Transient
from penstock.ports import Commit, Followed, Record, Where
from penstock.process.asyncio_additions import SystemClock
from penstock.process.signals import on_stop
from penstock.scenes.changelog import Fits, Out
from penstock.scenes.core.decision_time import Behind
from penstock.scenes.ledger import Keyed, parts_of

log = logging.getLogger(__name__)

# How often the ledger looks for deadlines that are over.
TICK_S = 0.01
# A rebalance waits at most this long for batches in progress.
DRAIN_MS = 5_000


class Engine:
    """One worker. Each of its two loops reads one topic, in a group of its own."""

    def __init__(self, cfg: config.Config, fits: Fits) -> None:
        self._clock = SystemClock()
        self._writer = KeyedWriter(cfg.kafka, self._clock)
        self._backlog: Behind[Where] = Behind()
        parts = parts_of(cfg, self._writer, fits, self._clock, self._is_behind)
        self._names, self._rekeying, self.ledger = parts
        group = cfg.scenes.group
        self._input = _source(cfg.kafka, self._names.input, group, cfg.delivery.isolation)
        self._by_site = _source(cfg.kafka, self._names.by_site, f"{group}-sites")
        self._loops = (
            TopicLoop(self._input, self._rekey, _nothing, _nothing),
            TopicLoop(self._by_site, self._decide, self._take_over, self._give_up),
        )

    async def run(self) -> None:
        """Run until SIGTERM or Ctrl-C; then finish and commit the batches in progress."""
        stop = asyncio.Event()
        on_stop(stop.set)
        async with AsyncExitStack() as cleanup:
            for end in (self._writer.abandon, self._input.stop, self._by_site.stop):
                cleanup.push_async_callback(end)
            await self._writer.start(self._written)
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(loop.run(stop)) for loop in self._loops]
                ticking = tasks.create_task(self._tick())
                await asyncio.wait(running)
                ticking.cancel()
            await self._writer.stop()

    @property
    def _written(self) -> list[str]:
        """The topics that this worker writes to."""
        return [topic for topic in self._names if topic != self._names.input]

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            await self.ledger.tick()

    async def _rekey(self, records: Sequence[Record]) -> Awaitable[object]:
        """Copy records to the topic on which each site has one partition."""
        outs: list[Out] = []
        for each in records:
            name = f"{each.where}/{each.offset}"
            outs += self._rekeying.out(each.value, name, each.timestamp_ms)
        sent = await self._writer(outs)
        self._note(records)
        return sent

    async def _decide(self, records: Sequence[Record]) -> Awaitable[object]:
        await self.ledger.handle(
            Keyed(
                each.where.partition,
                (each.key or b"").decode(),
                each.value or b"",
                each.timestamp_ms,
                each.offset,
            )
            for each in records
        )
        self._note(records)
        return asyncio.sleep(0)

    async def _take_over(self, partitions: Collection[Where]) -> None:
        await self.ledger.take_over([where.partition for where in partitions])

    async def _give_up(self, _: Collection[Where]) -> None:
        self._backlog.forget()
        await self.ledger.give_up()

    def _note(self, records: Sequence[Record]) -> None:
        now = self._clock.wall_ms()
        last = {record.where: record for record in records}
        for where, record in last.items():
            self._backlog.handled(where, record.offset, record.timestamp_ms, now)

    def _is_behind(self) -> bool:
        return self._backlog.is_behind(self._ends(), self._clock.wall_ms())

    def _ends(self) -> Mapping[Where, int]:
        return {**self._input.known_ends(), **self._by_site.known_ends()}


def _source(
    kafka: config.Kafka, topic: str, group: str, isolation: str = "read_uncommitted"
) -> KafkaSource:
    ours = msgspec.structs.replace(kafka, input_topic=topic, group=group, instance_id=None)
    return KafkaSource(ours, drain_ms=DRAIN_MS, isolation=isolation)


async def _nothing(_: Collection[Where]) -> None:
    """Serves as `taken` or `given` of a loop that has nothing to do when partitions come or go."""


POLL_MS = 200
# Offsets are committed this often, so a crash repeats at most the records of this time. Repeats are
# recognised by their ids.
COMMIT_S = 0.5
# This many batches may be handed over before the results of the first one are delivered. So the
# next batches are read while the first one is worked on.
UNDER_WAY = 8
# The records of all partitions are merged by time. If the next records of a partition are not read
# yet, the records of the other partitions wait for them, at most this long. A broker that answers
# at all sends the next records much sooner.
PATIENCE_S = 1.0

Work = Callable[[Sequence[Record]], Awaitable[Awaitable[object]]]
Change = Callable[[Collection[Where]], Awaitable[None]]


class SceneSource(Followed, Protocol):
    """The methods of the Kafka source that a loop needs."""

    async def commit(self, commits: Mapping[Where, Commit]) -> None: ...


class TopicLoop:
    """Reads one topic. `work`: a function that takes a batch and returns an awaitable; the
    awaitable ends when the batch may be committed. The loop calls `taken` with new partitions,
    before their first record. At each rebalance the loop calls `given` with all its partitions,
    after their last record, and then `taken` again with the partitions that stay.
    """

    def __init__(self, source: SceneSource, work: Work, taken: Change, given: Change) -> None:
        self._source = source
        self._work = work
        self._taken = taken
        self._given = given
        self._ours: frozenset[Where] = frozenset()
        self._life = 0
        self._busy = asyncio.Lock()
        self._under_way: asyncio.Queue[tuple[Mapping[Where, Commit], Awaitable[object]]]
        self._under_way = asyncio.Queue(UNDER_WAY)
        self._safe: dict[Where, Commit] = {}
        self._merge = Merge(PATIENCE_S)

    async def assigned(self, starts: Mapping[Where, Commit]) -> Mapping[Where, int]:
        self._ours = frozenset(starts)  # records may come before `taken` returns
        await self._taken(starts)
        return {}

    async def revoked(self, partitions: Collection[Where]) -> None:
        if self._ours.intersection(partitions):
            await self.suspended(partitions)

    async def suspended(self, partitions: Collection[Where]) -> None:
        """A rebalance begins: finish the batches in progress, which are short, and give up all
        partitions.
        """
        self._ours = frozenset()
        self._life += 1
        self._merge.clear()
        async with self._busy:
            await self._under_way.join()
        await self._given(partitions)
        await self._commit()
        self._safe.clear()

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop`; then finish and commit the batches in progress, and leave the group."""
        await self._source.start(self)
        async with asyncio.TaskGroup() as tasks:
            beside = [tasks.create_task(self._settle()), tasks.create_task(self._commit_often())]
            while not stop.is_set():
                read = await self._source.poll(self._merge.room(self._ours), POLL_MS)
                # The records belong to the assignment that is current after the poll. If this
                # assignment ends while we wait for `_busy`, the records are dropped, and the next
                # assignment reads them again.
                life = self._life
                ours = [record for record in read if record.where in self._ours]
                async with self._busy:
                    if life == self._life:
                        await self._pass_on(ours)
            await self.suspended(self._ours)
            for task in beside:
                task.cancel()
        await self._source.stop()

    async def _pass_on(self, read: Sequence[Record]) -> None:
        self._merge.add(read)
        now_s = asyncio.get_running_loop().time()
        records = self._merge.take(self._source.reached(), self._source.known_ends(), now_s)
        if not records:
            return
        ends = {record.where: Commit(record.offset + 1) for record in records}
        await self._under_way.put((ends, await self._work(records)))

    async def _settle(self) -> None:
        while True:
            ends, safe = await self._under_way.get()
            await safe
            self._safe.update(ends)
            self._under_way.task_done()

    async def _commit_often(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_S)
            await self._commit()

    async def _commit(self) -> None:
        commits, self._safe = self._safe, {}
        if not commits:
            return
        try:
            await self._source.commit(commits)
        except Transient as error:
            log.warning("the commit failed and is tried again: %s", error)
            self._safe = commits | self._safe
