"""`penstock run --dry-run`: what a worker would publish for the next messages.

Rule: the worker's own pipeline, but read without joining the group, and into a sink that only
shows: nothing is written, no record, commit, result object or span.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from msgspec import structs

from penstock import config
from penstock.adapters.inputs.bounded_sources import Head, HeadSource, heads
from penstock.adapters.kafka.reader import open_reader
from penstock.adapters.memory import MemoryResults
from penstock.ports import Outgoing, Sink
from penstock.process.signals import StopSignal
from penstock.worker.open_worker import Variant, open_worker, stop_signal, until_services_answered

Show = Callable[[Outgoing], None]


class Rehearsed(NamedTuple):
    """The counts of a dry run: `messages` were read, from so many `partitions`; `idle` partitions
    had no messages.
    """

    messages: int
    partitions: int
    idle: int


async def dry_run(cfg: config.Config, most: int, show: Show) -> Rehearsed | None:
    """Answer the next `most` messages of each partition. `show`: a function that is called with all
    that would be published. Returns None if a signal ended the run before it answered anything.
    """
    with stop_signal(cfg) as stop:
        cfg = _harmless(cfg)
        async with open_reader(cfg.kafka, cfg.kafka.isolation) as reader:
            ahead = await heads(reader, most)
        busy = [head for head in ahead if head.records]
        if busy:
            await _answer(cfg, ahead, show, stop)
        return Rehearsed(sum(len(head.records) for head in busy), len(busy), len(ahead) - len(busy))
    return None


async def _answer(cfg: config.Config, ahead: list[Head], show: Show, stop: StopSignal) -> None:
    ended = asyncio.Event()
    variant = Variant(
        source=lambda _: HeadSource(ahead, ended.set),
        sink=lambda sink: _ShowingSink(sink, show),
        results=lambda cfg: None if cfg.output.objects is None else MemoryResults(),
    )
    async with open_worker(cfg, variant) as pipeline:
        await until_services_answered(cfg, pipeline)
        stop.then(pipeline.stop)
        await pipeline.run_until(ended.wait)


def _harmless(cfg: config.Config) -> config.Config:
    """The configuration without everything that reaches others or ends the run early. It has no
    shadow, which writes to a topic of its own; no transactions, which would fence those of live
    workers; no spans; and no limits of dead letters, at which a line would stop.
    """
    cfg = cfg.after_rekey().without_shadow()
    return structs.replace(
        cfg,
        delivery=structs.replace(cfg.delivery, guarantee="at_least_once"),
        limits=structs.replace(cfg.limits, dlq_ratio=0.0, dlq_consecutive=0),
        traces=structs.replace(cfg.traces, endpoint=None),
    )


class _ShowingSink:
    """A sink that only shows what it is given. Questions about topics go to the real sink."""

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
