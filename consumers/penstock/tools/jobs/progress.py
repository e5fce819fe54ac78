"""`penstock progress`: tells how far a group is, from the topics and the group's commits alone.

Rule: the command joins no group, so no worker notices it. A worker commits all its partitions at
once, and only twice a second. So the rate is measured between two changes of the commits, not
between two looks at them. Owner: the command.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping

from penstock import config
from penstock.adapters.kafka.positions_from_outside import Groups, open_groups
from penstock.adapters.kafka.reader import Reader, open_reader
from penstock.core.progress.cursor import decode, without_stop
from penstock.messages.command_json import Progress, StoppedLine
from penstock.ports import Commit, Where
from penstock.process.clock import SystemClock
from penstock.tools.jobs.job_state import AnsweredByErrors, Job, held, known_job
from penstock.tools.replay.decided_range import Spans

# The first picture of the progress takes this long, because a rate needs some commits of each
# worker.
SAMPLE_S = 5.0
LOOK_S = 0.25
# With `--watch`, the rate is measured over this much of the past.
PAST_S = 60.0
# At most this many dead letters are read, which takes about two seconds.
MOST_LETTERS = 200_000


class Rate:
    """Measures how much is done a second, between the first and the last change of the commits in
    the past minute.
    """

    def __init__(self) -> None:
        self._changes: deque[tuple[float, int]] = deque()
        self._before: int | None = None

    def look(self, now_s: float, done: int) -> None:
        if self._before is not None and done != self._before:
            self._changes.append((now_s, done))
        self._before = done
        while self._changes and now_s - self._changes[0][0] > PAST_S:
            self._changes.popleft()

    @property
    def a_second(self) -> float:
        if len(self._changes) < 2:
            return 0.0
        (first_s, first), (last_s, last) = self._changes[0], self._changes[-1]
        return (last - first) / (last_s - first_s)


async def progress(cfg: config.Config, *, every_s: float) -> AsyncGenerator[Progress]:
    """Yields the first picture of the progress after `SAMPLE_S`, and then one every `every_s`
    seconds, until all is answered.
    """
    async with (
        open_groups(cfg.kafka) as groups,
        open_reader(cfg.kafka, cfg.delivery.isolation) as reader,
    ):
        looking = _Looking(cfg, groups, reader)
        await looking.begin()
        wait_s = SAMPLE_S
        while True:
            await looking.sample(wait_s)
            found = await looking.picture()
            yield found
            if not found.left:
                return
            wait_s = every_s


class _Looking:
    """Looks at one group. Call `begin` first, then `sample` and `picture` in turns."""

    def __init__(self, cfg: config.Config, groups: Groups, reader: Reader) -> None:
        self._cfg = cfg
        self._groups = groups
        self._reader = reader
        self._clock = SystemClock()
        self._rate = Rate()
        self._job: Job | None = None
        self._spans: Spans = {}
        self._positions: Mapping[Where, Commit] = {}

    async def begin(self) -> None:
        """Decide what the pictures are about: the job. If there is no job, or if it is done and
        more was announced after its end, they are about everything that the topics hold.
        """
        kafka = self._cfg.kafka
        self._spans = await held(self._reader)
        job = await known_job(kafka, self._groups, self._reader)
        if job is not None:
            positions = await self._groups.positions(kafka.group, list(self._spans))
            ends = {part: span.end for part, span in job.spans.items()}
            now = {part: span.end for part, span in self._spans.items()}
            if not job.is_answered(positions) or ends == now:
                self._job, self._spans = job, job.spans
        self._errors = AnsweredByErrors(self._cfg, self._job, most=MOST_LETTERS)

    async def sample(self, for_s: float) -> None:
        """Look at the commits for `for_s` seconds, or until all is answered."""
        if self._job is None:
            self._spans = await held(self._reader)
        until_s = self._clock.now() + for_s
        while True:
            group, parts = self._cfg.kafka.group, list(self._spans)
            self._positions = await self._groups.positions(group, parts)
            self._rate.look(self._clock.now(), self._answered)
            if self._clock.now() >= until_s or self._answered == self._references:
                return
            await asyncio.sleep(LOOK_S)

    async def picture(self) -> Progress:
        answered, job = self._answered, self._job
        left = self._references - answered
        rate = self._rate.a_second
        average: float | None = None
        if job is not None:
            took_s = max(1.0, (self._clock.wall_ms() - job.begun_ms) / 1000)
            average = answered / took_s
        pace = rate if average is None else average
        is_read = await self._errors.read_on(self._reader)
        return Progress(
            group=self._cfg.kafka.group,
            begun_ms=None if job is None else job.begun_ms,
            references=self._references,
            answered=answered,
            left=left,
            rate=round(rate, 1),
            average=None if average is None else round(average, 1),
            left_s=0.0 if not left else round(left / pace, 1) if pace else None,
            answered_by_errors=self._errors.references if is_read else None,
            errors=dict(self._errors.by_code.most_common()) if is_read else None,
            stopped=list(self._stopped()),
        )

    @property
    def _references(self) -> int:
        return sum(span.end - span.begin for span in self._spans.values())

    @property
    def _answered(self) -> int:
        """How many references are answered. With order by stream, answered references may also lie
        beyond the committed offset of their partition; the commit's metadata lists these.
        """
        found = 0
        for part, commit in self._positions.items():
            span = self._spans[part]
            beyond, _ = decode(without_stop(commit.metadata)[0], commit.next_offset)
            ahead = beyond.completed.within(commit.next_offset, span.end)
            found += span.done(commit.next_offset) + sum(stop - start for start, stop in ahead)
        return found

    def _stopped(self) -> list[StoppedLine]:
        return [
            StoppedLine(part.topic, part.partition, commit.next_offset + beyond)
            for part, commit in sorted(self._positions.items())
            if (mark := without_stop(commit.metadata)[1]) is not None
            for beyond in mark.beyond
        ]
