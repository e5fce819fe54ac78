"""Runs the demo from its start to its proof: services, worker, streams, drain, verdict.

Rule: however the demo ends, it leaves nothing running. The first Ctrl-C (or SIGTERM, or SIGHUP)
ends the streams early, and the proof follows. A second signal, or a signal before the streams have
begun, ends the demo at once. The judge makes the verdict from topics that are read while they grow.
The demo adds two checks: the topics must have as many objects and rows as the producers counted,
and rows may be repeated only if a worker was killed. Owner: the command.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from rich.console import Console
from rich.markup import escape

from penstock import config
from penstock.errors import EXIT_CHECK_FAILED, Fatal
from penstock.terminal_text import tell
from penstock.tools.demo.onlooker import looking_on
from penstock.tools.demo.progress import Progress, Stream
from penstock.tools.demo.services import Place, embedded, on_stack, open_browser, say
from penstock.tools.demo.streams import (
    FRAME_FORM,
    Producers,
    forms,
    frame,
    make,
    sending,
    stream_name,
)
from penstock.tools.demo.view import View
from penstock.tools.demo.worker import Worker
from penstock.tools.verify.findings import Report, render

# If no answer comes for this long, something is lost, and the proof says what is lost. The time is
# this long because after a kill the group waits 8 s for the dead member, and 8 s more if the worker
# was killed while it joined.
ANSWERED_WITHIN_S = 60.0
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Shells report this code for a command that Ctrl-C ended.
EXIT_INTERRUPTED: Final = 130


@dataclass(frozen=True)
class Options:
    """What a person may choose. `config_path`: the file with the worker's other settings."""

    seconds: float
    streams: int
    rate_hz: float
    stack: bool = False
    config_path: Path | None = None
    browser: bool = True
    frames: bool = False


class Interrupts:
    """Handles signals. Use `async with Interrupts() as interrupts:` around the work that signals
    may stop. While `gently` is set, the first signal only sets `stop`. Any other signal cancels the
    task that entered the block. The task is cancelled only once, so that nothing interrupts its
    cleaning up.
    """

    def __init__(self) -> None:
        self.gently = False
        self.stop = asyncio.Event()
        self._cancelled = False
        self._task: asyncio.Task[object] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        return self

    async def __aexit__(self, *_: object) -> None:
        for number in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _on_signal(self) -> None:
        if self.gently and not self.stop.is_set():
            self.stop.set()
        elif self._task is not None and not self._cancelled:
            self._cancelled = True
            self._task.cancel()


async def to_the_proof(play: Callable[[Interrupts], Awaitable[None]]) -> None:
    """Run `play` to its end. Raises `Fatal` if a signal ends it before the proof."""
    # The client's log lines would break the table. No error is lost, because the client also raises
    # each error that it logs.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    try:
        async with Interrupts() as interrupts:
            await play(interrupts)
    except asyncio.CancelledError:
        raise Fatal(
            "stopped before the proof; nothing is left running", exit_code=EXIT_INTERRUPTED
        ) from None


async def run_demo(options: Options) -> None:
    """Run the demo. Raises `Fatal` with the code of the part that could not start, or with code 1
    if the proof fails.
    """

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
            Stream(stream_name(index), FRAME_FORM if options.frames else forms(index))
            for index in range(options.streams)
        ]
    )
    worker = Worker(place, options.config_path)

    def answered(key: str, rows: int, written_s: float) -> None:
        progress.answered(key, rows, written_s)
        place.answered(key)

    async with sending(place) as sink:
        # The embedded broker creates a topic when a client asks for it. The stack's topics exist
        # already.
        partitions = [await sink.partitions(topic) for topic in place.cfg.topics]
        maker = frame if options.frames else make
        producers = Producers(place, sink, progress, options.rate_hz, partitions[0], maker)
        async with (
            looking_on(place.cfg, partitions, answered) as onlooker,
            asyncio.TaskGroup() as tasks,
        ):
            working = tasks.create_task(worker.keep_running())
            tasks.create_task(onlooker.run())
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
            report = await onlooker.report()
    prove(place.cfg, report, progress, worker.restarts, console)


async def _all_answered(progress: Progress) -> None:
    """Returns when all objects are answered, or when no answer has come for `ANSWERED_WITHIN_S`."""
    before = -1
    while progress.rows != before:
        before = progress.rows
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWERED_WITHIN_S):
                await progress.none_waits.wait()
                return


def prove(
    cfg: config.Config, report: Report, progress: Progress, restarts: int, console: Console
) -> None:
    """Print the verdict. Raises `Fatal` (exit 1) if a promise was broken."""
    faults = broken(report, progress, restarts)
    if faults:
        console.print(render(report))
        raise Fatal(f"the proof failed: {'; '.join(faults)}", exit_code=EXIT_CHECK_FAILED)
    if progress.left_out:
        missed = f"  {progress.left_out:,} objects were never announced"
        tell(console, f"{missed}: this machine is at its limit.", "yellow")
    topics = f"{cfg.kafka.input_topic}, {cfg.output.topic} and {cfg.output.dead_letter_topic}"
    tell(console, f"[bold green]✔ {escape(report.sentence())}[/]")
    tell(console, f"  Proved from the topics {escape(topics)} alone{_takeovers(restarts)}.", "dim")


def broken(report: Report, progress: Progress, restarts: int) -> list[str]:
    """The checks that failed, in words."""
    sent = sum(stream.sent for stream in progress.streams)
    checks = {
        "the topics break a promise": report.ok,
        f"{sent:,} objects were announced, the topics know {report.objects:,}": (
            report.objects == sent
        ),
        f"{progress.rows_sent:,} rows were written, {report.rows:,} were answered": (
            report.rows == progress.rows_sent
        ),
        f"{report.rejected:,} good rows were rejected": report.rejected == 0,
        f"{report.duplicates:,} rows were answered twice, by one and the same worker": (
            restarts > 0 or report.duplicates == 0
        ),
    }
    return [fault for fault, is_well in checks.items() if not is_well]


def _takeovers(restarts: int) -> str:
    if not restarts:
        return ""
    times = "once" if restarts == 1 else f"{restarts} times"
    return f"; the worker was ended {times} and the next one took over"
