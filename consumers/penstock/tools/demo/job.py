"""Runs the demo from its start to its proof: services, worker, streams, drain, verdict.

Rule: however the demo ends, it leaves nothing running. The first Ctrl-C (or SIGTERM, SIGHUP) ends
the streams early, and the proof follows; a second, or one before the streams have begun, ends it at
once. Besides the judge's verdict the topics must have as many objects and rows as the producers
counted, and rows may be repeated only if a worker was killed.

The topics are read while they are written, because the broker drops old records; all references
before the answers that are judged.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.markup import escape

from penstock import config
from penstock.adapters.kafka.follower import Bite, Follower, following
from penstock.adapters.kafka.reader import open_reader
from penstock.errors import EXIT_CHECK_FAILED, Fatal
from penstock.messages.prediction import ObjectId
from penstock.ports import Commit
from penstock.terminal_text import tell
from penstock.tools.demo.progress import DemoProgress, DemoStream
from penstock.tools.demo.services import DemoPlace, embedded, on_stack, open_browser, say
from penstock.tools.demo.streams import (
    FRAME_FORM,
    DemoStreams,
    forms,
    frame,
    make,
    sending,
    stream_name,
)
from penstock.tools.demo.view import View
from penstock.tools.demo.worker import DemoWorker
from penstock.tools.verify.findings import VerifyReport, render
from penstock.tools.verify.read_topics import LiveJudge, scope_of

WAIT_MS = 100
# How many seconds pass between two rounds of judging. Each round asks once for the ends of the
# topics.
PAUSE_S = 0.05
# A task that waits for the progress of another, reading task looks at it again after this many
# seconds. The reading task is behind by one fetch at most.
LOOK_S = 0.02
# At most this many answers are judged at a time. They take about 1 ms; then the tasks of the
# streams get their turn.
SLICE = 400
# The demo's topics are new and grow, so they are read from 0 and have no known end.
NO_END = 1 << 62

# A function of an object's key, the number of its rows, and the time at which its last answer was
# written.
OnAnswered = Callable[[str, int, float], None]


class _Last(Struct):
    """The fields of an object's last record that the view shows."""

    object: ObjectId | None
    last: bool = False
    rows: int = 0


_decoder = msgspec.json.Decoder(_Last)


class Onlooker:
    """Calls `on_answered` for every object that is answered to its end. Start `run` as a task;
    `report` ends that task.
    """

    def __init__(
        self,
        cfg: config.Config,
        references: Follower,
        answers: Follower,
        output_partitions: int,
        committed: Callable[[], Awaitable[Mapping[int, Commit]]],
        on_answered: OnAnswered,
    ) -> None:
        self._cfg = cfg
        self._references = references
        self._answers = answers
        self._ask_committed = committed
        self._on_answered = on_answered
        self._bites: list[Bite] = []
        self._judging = asyncio.Lock()
        self._is_over = asyncio.Event()
        self._until: dict[int, int] = {}
        self._committed: dict[int, Commit] = {}
        spans = dict.fromkeys(references.partitions, (0, NO_END))
        self._judge = LiveJudge(
            scope_of(cfg, spans, self._until, self._committed, output_partitions)
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            reading = [
                tasks.create_task(self._read_references()),
                tasks.create_task(self._read_answers()),
            ]
            while not self._is_over.is_set():
                await asyncio.sleep(PAUSE_S)
                await self._judge_found()
            for task in reading:
                task.cancel()

    async def report(self) -> VerifyReport:
        """Ends `run`, and returns the verdict on all records that the topics hold. Call it only
        when no worker runs any more.
        """
        ends = await self._references.ends()
        self._until |= {part.partition: end for part, end in ends.items()}
        self._committed |= await self._ask_committed()
        await _reached(self._references, ends)
        await _reached(self._answers, await self._answers.ends())
        await self._judge_found()
        self._is_over.set()
        return self._judge.report()

    async def _read_references(self) -> None:
        while True:
            self._feed_references(await self._references.more(WAIT_MS))

    def _feed_references(self, bites: Sequence[Bite]) -> None:
        for bite in bites:
            self._judge.references(bite.partition, bite.records)

    async def _read_answers(self) -> None:
        while True:
            answers = await self._answers.more(WAIT_MS)
            # This line and the `await` are separate, because `_judge_found` may replace the list
            # `_bites` during the wait.
            self._bites.extend(answers)

    async def _judge_found(self) -> None:
        async with self._judging:
            bites, self._bites = self._bites, []
            if bites:
                await _reached(self._references, await self._references.ends())
                await self._judge_all(bites)

    async def _judge_all(self, bites: Sequence[Bite]) -> None:
        for topic, partition, records in bites:
            if topic == self._cfg.output.dead_letter_topic:
                self._judge.dead_letters(partition, records)
                continue
            for start in range(0, len(records), SLICE):
                part = records[start : start + SLICE]
                self._judge.answers(partition, part)
                self._see(part)
                await asyncio.sleep(0)

    def _see(self, records: Sequence[Any]) -> None:
        for record in records:
            if record.value is None or b'"last":true' not in record.value:
                continue
            seen = _decoder.decode(record.value)
            if seen.last and seen.object is not None:
                self._on_answered(seen.object.key, seen.rows, record.timestamp / 1000)


async def _reached(follower: Follower, ends: Mapping[Any, int]) -> None:
    """Wait until the task that reads through this follower has reached these ends."""
    while not await follower.has_reached(ends):  # noqa: ASYNC110 (the client has no event for it)
        await asyncio.sleep(LOOK_S)


@asynccontextmanager
async def looking_on(
    cfg: config.Config, partitions: Sequence[int], on_answered: OnAnswered
) -> AsyncIterator[Onlooker]:
    """Read the topics from their start. `partitions`: the number of partitions of the input, output
    and dead-letter topic.
    """
    asked, answered, letters = partitions
    isolation = cfg.delivery.isolation
    topics = {cfg.output.topic: answered, cfg.output.dead_letter_topic: letters}
    async with AsyncExitStack() as cleanup:
        references = await cleanup.enter_async_context(
            following(cfg.kafka, "read_uncommitted", {cfg.kafka.input_topic: asked})
        )
        answers = await cleanup.enter_async_context(following(cfg.kafka, isolation, topics))

        async def committed() -> Mapping[int, Commit]:
            async with open_reader(cfg.kafka, isolation) as reader:
                return await reader.committed(cfg.kafka.input_topic, references.partitions)

        yield Onlooker(cfg, references, answers, answered, committed, on_answered)


# If no answer comes for this long, something is lost, and the proof says what is lost. The time is
# this long because after a kill the group waits 8 s for the dead member, and 8 s more if the worker
# was killed while it joined.
ANSWERED_WITHIN_S = 60.0
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Shells report this code for a command that Ctrl-C ended.
EXIT_INTERRUPTED: Final = 130


@dataclass(frozen=True)
class JobOptions:
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


async def run_demo(options: JobOptions) -> None:
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


async def _play(
    options: JobOptions, place: DemoPlace, console: Console, interrupts: Interrupts
) -> None:
    say(place.cfg.http, console)
    tell(console, place.title, "dim")
    progress = DemoProgress(
        [
            DemoStream(stream_name(index), FRAME_FORM if options.frames else forms(index))
            for index in range(options.streams)
        ]
    )
    worker = DemoWorker(place, options.config_path)

    def answered(key: str, rows: int, written_s: float) -> None:
        progress.answered(key, rows, written_s)
        place.answered(key)

    async with sending(place) as sink:
        # The embedded broker creates a topic when a client asks for it. The stack's topics exist
        # already.
        partitions = [await sink.partitions(topic) for topic in place.cfg.topics]
        maker = frame if options.frames else make
        producers = DemoStreams(place, sink, progress, options.rate_hz, partitions[0], maker)
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


async def _all_answered(progress: DemoProgress) -> None:
    """Returns when all objects are answered, or when no answer has come for `ANSWERED_WITHIN_S`."""
    before = -1
    while progress.rows != before:
        before = progress.rows
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWERED_WITHIN_S):
                await progress.none_waits.wait()
                return


def prove(
    cfg: config.Config,
    report: VerifyReport,
    progress: DemoProgress,
    restarts: int,
    console: Console,
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


def broken(report: VerifyReport, progress: DemoProgress, restarts: int) -> list[str]:
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
        f"{report.duplicates:,} records were written twice, by one and the same worker": (
            restarts > 0 or report.duplicates == 0
        ),
    }
    return [fault for fault, is_well in checks.items() if not is_well]


def _takeovers(restarts: int) -> str:
    if not restarts:
        return ""
    times = "once" if restarts == 1 else f"{restarts} times"
    return f"; the worker was ended {times} and the next one took over"
