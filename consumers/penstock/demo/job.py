"""The order of things: start, stream, drain, prove.

Rule: however the demo ends, it leaves nothing running. The first Ctrl-C (or SIGTERM) ends the
streams early, and the proof follows. A second one, or one before the streams began, ends the demo
at once. Owner: the command.
"""

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from penstock.demo.ctrl_c import Interrupts, to_the_proof
from penstock.demo.frames import FORM, frame
from penstock.demo.onlooker import looking_on
from penstock.demo.page import open_browser, say
from penstock.demo.progress import Progress, Stream
from penstock.demo.proof import prove
from penstock.demo.services import Place, embedded, on_stack
from penstock.demo.streams import Producers, forms, make, sending, stream_name
from penstock.demo.view import View
from penstock.demo.worker import Worker
from penstock.terminal_text import tell

# After a kill the group waits 8 s for the dead member, and as long again if the worker was killed
# while joining. If no answer came for longer, something is lost, and the proof says what.
ANSWERED_WITHIN_S = 60.0


@dataclass(frozen=True)
class Options:
    """What a person may choose; `config_path`: for the other settings of the worker."""

    seconds: float
    streams: int
    rate_hz: float
    stack: bool = False
    config_path: Path | None = None
    browser: bool = True
    frames: bool = False


async def run_demo(options: Options) -> None:
    """Raises `Fatal` when something could not start (its own code) or the proof fails (1)."""

    async def play(interrupts: Interrupts) -> None:
        console, path = Console(), options.config_path
        async with AsyncExitStack() as cleanup:
            with console.status("starting"):
                place = await cleanup.enter_async_context(
                    on_stack(path) if options.stack else embedded(path, frames=options.frames)
                )
            await _play(options, place, console, interrupts)

    await to_the_proof(play)


async def _play(options: Options, place: Place, console: Console, interrupts: Interrupts) -> None:
    say(place.cfg.http, console)
    tell(console, place.title, "dim")
    progress = Progress(
        [
            Stream(stream_name(index), FORM if options.frames else forms(index))
            for index in range(options.streams)
        ]
    )
    worker = Worker(place, options.config_path)

    def answered(key: str, rows: int, written_s: float) -> None:
        progress.answered(key, rows, written_s)
        place.answered(key)

    async with sending(place) as sink:
        # The embedded broker creates a topic when it is asked for; the stack's topics exist
        # already.
        partitions = [await sink.partitions(topic) for topic in place.cfg.topics]
        maker = frame if options.frames else make
        producers = Producers(place, sink, progress, options.rate_hz, partitions[0], maker)
        async with (
            looking_on(place.cfg, partitions, answered) as tail,
            asyncio.TaskGroup() as tasks,
        ):
            working = tasks.create_task(worker.keep_running())
            tasks.create_task(tail.run())
            with console.status("the worker joins its group"):
                await worker.until_ready()
            if options.browser:
                open_browser(place.cfg.http, console)
            view = View(console, progress, worker, seconds=options.seconds)
            watching = tasks.create_task(view.show())
            interrupts.gently = True
            await producers.run(options.seconds, interrupts.stop)
            view.phase = "waiting for the last answers"
            await _all_answered(progress)
            watching.cancel()
            await asyncio.wait([watching])
            worker.stop()
            await working
            report = await tail.report()
    prove(place.cfg, report, progress, worker.restarts, console)


async def _all_answered(progress: Progress) -> None:
    """Returns when no object waits for answers, or none has come for long."""
    before = -1
    while progress.rows != before:
        before = progress.rows
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWERED_WITHIN_S):
                await progress.none_waits.wait()
                return
