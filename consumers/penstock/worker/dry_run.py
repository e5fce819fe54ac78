"""`penstock run --dry-run`: what a worker would publish for the next messages, published nowhere.

Rule: the pipeline is the worker's own, opened by the application. Its records are read without the
group and its sink only shows, so that no worker notices it and nothing is written: no record, no
commit, no result object, no span. Owner: the command.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from msgspec import structs

from penstock import config
from penstock.adapters.inputs.heads import Head, HeadSource, heads
from penstock.adapters.kafka.reader import open_reader
from penstock.adapters.memory.results import MemoryResults
from penstock.ports import Outgoing, Sink
from penstock.process.signals import StopSignal
from penstock.worker.app import LAST_RESORT_S, open_worker, until_services_answered
from penstock.worker.part import Part

Show = Callable[[Outgoing], None]


class Rehearsed(NamedTuple):
    """What was read: messages, and of how many partitions; `idle`: those that have none."""

    messages: int
    partitions: int
    idle: int


async def dry_run(cfg: config.Config, most: int, show: Show) -> Rehearsed:
    """Answer the next `most` messages of each partition; `show` gets what would be published."""
    stop = StopSignal(cfg.delivery.drain_ms / 1000 + LAST_RESORT_S)
    cfg = _harmless(cfg)
    async with open_reader(cfg.kafka, cfg.kafka.isolation) as reader:
        found = await heads(reader, most)
    busy = [head for head in found if head.records]
    if busy:
        await _answer(cfg, found, show, stop)
    return Rehearsed(sum(len(head.records) for head in busy), len(busy), len(found) - len(busy))


async def _answer(cfg: config.Config, found: list[Head], show: Show, stop: StopSignal) -> None:
    ended = asyncio.Event()
    part = Part(
        source=lambda _: HeadSource(found, ended.set),
        sink=lambda sink: _Shown(sink, show),
        results=lambda cfg: None if cfg.output.objects is None else MemoryResults(),
    )
    async with open_worker(cfg, part) as pipeline:
        await until_services_answered(cfg, pipeline)
        stop.then(pipeline.stop)
        await pipeline.run_until(ended)


def _harmless(cfg: config.Config) -> config.Config:
    """Without a shadow, whose answers go out on their own; without transactions, which would fence
    the live workers'; without spans; and without a stop of a line, as all messages are wanted.
    """
    cfg = cfg.after_rekey().without_shadow()
    return structs.replace(
        cfg,
        delivery=structs.replace(cfg.delivery, guarantee="at_least_once"),
        limits=structs.replace(cfg.limits, dlq_ratio=0.0, dlq_consecutive=0),
        traces=structs.replace(cfg.traces, endpoint=None),
    )


class _Shown:
    """Passes questions about the topics on to the real sink, and shows what it is to send."""

    def __init__(self, sink: Sink, show: Show) -> None:
        self._sink = sink
        self._show = show

    async def start(self) -> None:
        await self._sink.start()

    async def partitions(self, topic: str) -> int:
        return await self._sink.partitions(topic)

    async def send(self, outgoing: Outgoing) -> Awaitable[None]:
        self._show(outgoing)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def fits(self, topic: str, key: bytes | None, value_bytes: int) -> bool:
        return self._sink.fits(topic, key, value_bytes)

    async def forget(self) -> None:
        return

    async def stop(self) -> None:
        await self._sink.stop()
