"""The order of things: start, stream, drain, prove.

Rule: whatever ends the demo, nothing it started is left. The first Ctrl-C (or SIGTERM) ends the
streams early and the proof follows; the second one, or one before the streams began, ends it at
once.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from consumers.adapters.kafka_sink import KafkaSink
from consumers.clock import SystemClock
from consumers.demo import place as places
from consumers.demo.place import Place
from consumers.demo.progress import Progress, Stream
from consumers.demo.proof import prove
from consumers.demo.streams import Producers, forms, stream_name
from consumers.demo.tail import Tail
from consumers.demo.view import View
from consumers.demo.worker import Worker
from consumers.errors import Fatal

# After a kill the group waits 8 s for the dead member, twice if it rejoins too soon; then the
# backlog is read. Past this something is lost, and the proof tells what.
ANSWERED_WITHIN_S = 60.0
ANSWERED_POLL_S = 0.05
EXIT_INTERRUPTED = 130


@dataclass(frozen=True)
class Options:
    seconds: float
    streams: int
    rate_hz: float
    stack: bool
    config_path: Path | None


async def run_demo(options: Options) -> None:
    """Raises `Fatal` when something could not start (its own code) or the proof fails (1)."""
    console = Console()
    interrupts = Interrupts()
    try:
        async with interrupts, _place(options) as place:
            await _play(options, place, console, interrupts)
    except asyncio.CancelledError:
        raise Fatal(
            "stopped before the proof; nothing is left running", exit_code=EXIT_INTERRUPTED
        ) from None


async def _play(options: Options, place: Place, console: Console, interrupts: "Interrupts") -> None:
    progress = Progress(
        [Stream(stream_name(index), forms(index)) for index in range(options.streams)]
    )
    arguments = ["run", *(["--config", str(options.config_path)] if options.config_path else [])]
    worker = Worker(place.worker_url, arguments, place.environ, place.folder / "worker.log")
    async with _producer(place) as (sink, partitions), asyncio.TaskGroup() as tasks:
        tasks.create_task(worker.keep_running())
        with console.status("the worker joins its group"):
            tail = Tail(place.cfg, progress.answered)
            await asyncio.gather(tail.start(), worker.until_ready())
        producers = Producers(
            place,
            sink,
            streams=options.streams,
            rate_hz=options.rate_hz,
            partitions=partitions,
            on_sent=progress.sent,
        )
        title = f"{options.streams} streams at {options.rate_hz:g} Hz"
        view = View(console, progress, worker, title=title, seconds=options.seconds)
        watching = [tasks.create_task(tail.run()), tasks.create_task(view.show())]
        interrupts.spare()
        await producers.run(options.seconds, interrupts.stop)
        view.phase = "waiting for the last answers"
        await _all_answered(progress)
        worker.stop()
        for task in watching:
            task.cancel()
        await asyncio.wait(watching)
        await tail.stop()
    await prove(place.cfg, progress, worker.restarts, console)
