"""The order of things: start, stream, drain, prove.

Rule: whatever ends the demo, nothing it started is left. The first Ctrl-C (or SIGTERM) ends the
streams early and the proof follows; a second one, or one before the streams began, ends it at once.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from consumers.adapters.kafka_sink import KafkaSink
from consumers.clock import SystemClock
from consumers.demo.interrupts import Interrupts
from consumers.demo.place import Place, embedded, on_stack
from consumers.demo.progress import Progress, Stream
from consumers.demo.proof import prove
from consumers.demo.streams import Producers, forms, stream_name
from consumers.demo.tail import Tail
from consumers.demo.view import View
from consumers.demo.worker import Worker
from consumers.errors import Fatal
from consumers.process.stopping import stopped_after

# After a kill the group waits 8 s for the dead member; a worker killed while it joins costs as much
# again. Past this something is lost, and the proof tells what.
ANSWERED_WITHIN_S = 60.0
# What shells report for a command that Ctrl-C ended.
EXIT_INTERRUPTED = 130


@dataclass(frozen=True)
class Options:
    """What a person may choose; `config_path` is for the worker's own settings."""

    seconds: float
    streams: int
    rate_hz: float
    stack: bool = False
    config_path: Path | None = None


async def run_demo(options: Options) -> None:
    """Raises `Fatal` when something could not start (its own code) or the proof fails (1)."""
    # What the client logs it raises as well; its lines would tear the table.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    console = Console()
    try:
        async with Interrupts() as interrupts, AsyncExitStack() as cleanup:
            with console.status("starting"):
                choose = on_stack if options.stack else embedded
                place = await cleanup.enter_async_context(choose(options.config_path))
            await _play(options, place, console, interrupts)
    except asyncio.CancelledError:
        raise Fatal(
            "stopped before the proof; nothing is left running", exit_code=EXIT_INTERRUPTED
        ) from None


async def _play(options: Options, place: Place, console: Console, interrupts: Interrupts) -> None:
    console.print(place.title, style="dim", highlight=False, soft_wrap=True)
    streams = [Stream(stream_name(index), forms(index)) for index in range(options.streams)]
    progress = Progress(streams)
    worker = Worker(place, options.config_path)
    async with (
        _sink(place) as sink,
        _tail(place, progress) as tail,
        asyncio.TaskGroup() as tasks,
    ):
        producers = Producers(place, sink, options.streams, options.rate_hz, progress.sent)
        await producers.create_topics()
        tasks.create_task(worker.keep_running())
        with console.status("the worker joins its group"):
            await asyncio.gather(tail.start(), worker.until_ready())
        view = View(console, progress, worker, seconds=options.seconds)
        watching = [tasks.create_task(tail.run()), tasks.create_task(view.show())]
        interrupts.gently = True
        await producers.run(options.seconds, interrupts.stop)
        view.phase = "waiting for the last answers"
        await _all_answered(progress)
        for task in watching:
            task.cancel()
        await asyncio.wait(watching)
        worker.stop()
    await prove(place.cfg, progress, worker.restarts, console)


@asynccontextmanager
async def _sink(place: Place) -> AsyncIterator[KafkaSink]:
    sink = KafkaSink(place.cfg.kafka, SystemClock())
    async with stopped_after(sink.stop):
        await sink.start()
        yield sink


@asynccontextmanager
async def _tail(place: Place, progress: Progress) -> AsyncIterator[Tail]:
    tail = Tail(place.cfg, progress.answered)
    async with stopped_after(tail.stop):
        yield tail


async def _all_answered(progress: Progress) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(ANSWERED_WITHIN_S):
            await progress.none_waits.wait()
