"""Reads the demo's topics while they are written, for the view and for the proof.

Rule: only topics are read, and no worker is asked. Before answers are judged, all references that
are on the topic are read, so that the reference of every answer is known. Each record is read once,
when it is new, because the broker drops old records. Owner: the demo.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
from msgspec import Struct

from penstock import config
from penstock.adapters.kafka.follower import Bite, Follower, following
from penstock.adapters.kafka.reader import open_reader
from penstock.messages.prediction import ObjectId
from penstock.ports import Commit
from penstock.tools.verify.findings import Report
from penstock.tools.verify.live import LiveJudge
from penstock.tools.verify.read_topics import scope_of

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
        self._found: list[Bite] = []
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

    async def report(self) -> Report:
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

    def _feed_references(self, found: Sequence[Bite]) -> None:
        for bite in found:
            self._judge.references(bite.partition, bite.records)

    async def _read_answers(self) -> None:
        while True:
            found = await self._answers.more(WAIT_MS)
            # This line and the `await` are separate, because `_judge_found` may replace the list
            # `_found` during the wait.
            self._found.extend(found)

    async def _judge_found(self) -> None:
        async with self._judging:
            found, self._found = self._found, []
            if found:
                await _reached(self._references, await self._references.ends())
                await self._judge_all(found)

    async def _judge_all(self, found: Sequence[Bite]) -> None:
        for topic, partition, records in found:
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
