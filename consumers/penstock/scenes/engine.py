"""A scenes worker on our own Kafka adapters: one line re-keys predictions, another line decides
about scenes.

Rule: the engine holds the parts that both lines share, and runs the lines from start to stop. A
failure ends the process; work that is not committed is then done again. Owner: `penstock scenes`.
"""

import asyncio
from collections.abc import Awaitable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack

import msgspec

from penstock import config
from penstock.adapters.kafka.keyed_writers import KeyedWriter
from penstock.adapters.kafka.source import KafkaSource
from penstock.ports import Record
from penstock.process.clock import SystemClock
from penstock.process.signals import on_stop
from penstock.scenes.backlog import Backlog
from penstock.scenes.ledger import Keyed
from penstock.scenes.ledger_ports import Fits, Out
from penstock.scenes.line import Line
from penstock.scenes.shared_parts import parts_of

# How often the ledger looks for deadlines that are over.
TICK_S = 0.01
# How long a rebalance waits for batches in progress.
DRAIN_MS = 5_000


class Engine:
    """One worker. Each of its two lines reads one topic, in a group of its own."""

    def __init__(self, cfg: config.Config, fits: Fits) -> None:
        self._clock = SystemClock()
        self._writer = KeyedWriter(cfg.kafka, self._clock)
        self._backlog: Backlog[tuple[str, int]] = Backlog()
        parts = parts_of(cfg, self._writer, fits, self._clock, self._is_behind)
        self._names, self._rekeying, self.ledger = parts
        group = cfg.scenes.group
        self._input = _source(cfg.kafka, self._names.input, group, cfg.delivery.isolation)
        self._by_site = _source(cfg.kafka, self._names.by_site, f"{group}-sites")
        self._lines = (
            Line(self._input, self._rekey, _nothing, _nothing),
            Line(self._by_site, self._decide, self.ledger.take_over, self._give_up),
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
                running = [tasks.create_task(line.run(stop)) for line in self._lines]
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
        topic = self._names.input
        outs: list[Out] = []
        for each in records:
            where = f"{topic}/{each.partition}/{each.offset}"
            outs += self._rekeying.out(each.value, where, each.timestamp_ms)
        sent = await self._writer(outs)
        self._note(topic, records)
        return sent

    async def _decide(self, records: Sequence[Record]) -> Awaitable[object]:
        await self.ledger.handle(
            Keyed(
                each.partition,
                (each.key or b"").decode(),
                each.value or b"",
                each.timestamp_ms,
                each.offset,
            )
            for each in records
        )
        self._note(self._names.by_site, records)
        return asyncio.sleep(0)

    async def _give_up(self, _: Collection[int]) -> None:
        self._backlog.forget()
        await self.ledger.give_up()

    def _note(self, topic: str, records: Sequence[Record]) -> None:
        now = self._clock.wall_ms()
        last = {record.partition: record for record in records}
        for record in last.values():
            self._backlog.handled(
                (topic, record.partition), record.offset, record.timestamp_ms, now
            )

    def _is_behind(self) -> bool:
        return self._backlog.is_behind(self._ends(), self._clock.wall_ms())

    def _ends(self) -> Mapping[tuple[str, int], int]:
        ours = self._names
        ends = {(ours.input, each): end for each, end in self._input.known_ends().items()}
        for each, end in self._by_site.known_ends().items():
            ends[ours.by_site, each] = end
        return ends


def _source(
    kafka: config.Kafka, topic: str, group: str, isolation: str = "read_uncommitted"
) -> KafkaSource:
    ours = msgspec.structs.replace(kafka, input_topic=topic, group=group, instance_id=None)
    return KafkaSource(ours, drain_ms=DRAIN_MS, isolation=isolation)


async def _nothing(_: Collection[int]) -> None:
    """The callback of a line that has nothing to do when partitions come or go."""
