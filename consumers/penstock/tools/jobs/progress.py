"""`penstock progress`: how far a group or a job is, from the topics and the group's commits alone.

Rule: a worker commits all its partitions at once, twice a second, so the rate is measured between
two changes of the commits, not between two looks.

A job ends where the input topics ended when its first worker started. That is kept as the commits
of a group without members, `<group>.until-end`; their metadata tells the begin. When all is
answered, the next worker that starts decides a new end. Errors are counted by the offsets of the
references that dead letters are about: a repeated letter counts once, one of an earlier job does
not.
"""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import NamedTuple

import msgspec
from msgspec import Struct

from penstock import config
from penstock.adapters.kafka.positions_from_outside import Groups, open_groups
from penstock.adapters.kafka.reader import Reader, offsets, open_reader
from penstock.core.progress.cursor import Position
from penstock.errors import usage
from penstock.messages.command_json import Progress, StoppedLine
from penstock.messages.dead_letter import decode_dead_letter
from penstock.messages.reference import SchemaError
from penstock.ports import Commit, Where
from penstock.process.asyncio_additions import SystemClock
from penstock.tools.replay.decided_range import OffsetSpan, Spans


class Job(NamedTuple):
    """`spans`: the offsets that must be answered. `begun_ms`: when the job's first worker started.
    `written`: the commits that keep both in Kafka.
    """

    spans: Spans
    begun_ms: int
    written: Mapping[Where, Commit]

    def is_answered(self, positions: Mapping[Where, Commit]) -> bool:
        return self.done(positions) == self.total

    def done(self, positions: Mapping[Where, Commit]) -> int:
        """The number of the job's offsets that lie before the group's positions."""
        return sum(
            self.spans[part].done(commit.next_offset)
            for part, commit in positions.items()
            if part in self.spans
        )

    @property
    def total(self) -> int:
        return sum(span.end - span.begin for span in self.spans.values())


class _JobEnd(Struct, forbid_unknown_fields=True):
    """The metadata of the commit that keeps the job's end in a partition."""

    v: int
    begin: int
    begun_ms: int


def group_of_end(kafka: config.Kafka) -> str:
    return f"{kafka.group}.until-end"


async def known_job(kafka: config.Kafka, groups: Groups, reader: Reader) -> Job | None:
    """The job whose end was decided last. None: no end was ever decided."""
    return await _read(group_of_end(kafka), groups, list(await held(reader)))


async def decide(kafka: config.Kafka, groups: Groups, reader: Reader, now_ms: int) -> Job:
    """The job that is under way. If there is none, this begins a new job, which ends where the
    input topics end now.
    """
    ledger, there = group_of_end(kafka), await held(reader)
    parts = list(there)
    positions = await groups.positions(kafka.group, parts)
    known = await _read(ledger, groups, parts)
    if known is not None and not known.is_answered(positions):
        return known
    commits: dict[Where, Commit] = {}
    for part, (first, end) in there.items():
        committed = positions.get(part)
        begin = first if committed is None else min(max(first, committed.next_offset), end)
        written = _JobEnd(1, begin, now_ms)
        commits[part] = Commit(end, msgspec.json.encode(written).decode())
    await groups.begin(ledger, commits)
    # Another worker may have decided at the same moment. Then both workers use the end
    # that Kafka has stored.
    decided = await _read(ledger, groups, parts)
    assert decided is not None, "it was written just now"
    return decided


async def held(reader: Reader) -> dict[Where, OffsetSpan]:
    """For each input partition: its first offset, and the offset after its last record."""
    return {
        Where(topic, number): OffsetSpan(*span)
        for topic in await reader.inputs()
        for number, span in (await reader.spans(topic)).items()
    }


async def _read(ledger: str, groups: Groups, parts: list[Where]) -> Job | None:
    written = await groups.positions(ledger, parts)
    if not written:
        return None
    try:
        starts = {
            part: msgspec.json.decode(commit.metadata, type=_JobEnd)
            for part, commit in written.items()
        }
    except (msgspec.MsgspecError, ValueError):
        raise usage(
            f"group {ledger} holds no end of a job; delete that group, or choose another "
            "kafka.group"
        ) from None
    spans = {
        part: OffsetSpan(start.begin, written[part].next_offset) for part, start in starts.items()
    }
    return Job(spans, min(start.begun_ms for start in starts.values()), written)


# The clock of a worker may differ by this much from the clock of the worker that decided the end.
CLOCKS_MS = 600_000


class AnsweredByErrors:
    """Counts the references of a job that were answered by errors. `job`: None if all references
    count. `most`: the most letters that are read at a time.
    """

    def __init__(self, cfg: config.Config, job: Job | None, *, most: float = float("inf")) -> None:
        self._most = most
        self._topic = cfg.output.dead_letter_topic
        self._job = job
        self._at: dict[int, int] = {}
        self._seen: defaultdict[tuple[str, Where], set[int]] = defaultdict(set)

    @property
    def references(self) -> int:
        by_part: defaultdict[Where, set[int]] = defaultdict(set)
        for (_, part), answered in self._seen.items():
            by_part[part] |= answered
        return sum(map(len, by_part.values()))

    @property
    def by_code(self) -> Counter[str]:
        """For each error code, the number of references with that code. A reference whose rows have
        several codes counts once for each of these codes.
        """
        codes: Counter[str] = Counter()
        for (code, _), of_part in self._seen.items():
            codes[code] += len(of_part)
        return codes

    async def read_on(self, reader: Reader) -> bool:
        """Read the letters that came since the last call. Returns False, and reads none, if there
        are more than `most`.
        """
        spans = await reader.spans(self._topic)
        if not self._at and self._job is not None:
            since_ms = self._job.begun_ms - CLOCKS_MS
            spans = await reader.spans_since(self._topic, since_ms)
        wanted = {n: (max(first, self._at.get(n, 0)), end) for n, (first, end) in spans.items()}
        if offsets(wanted.values()) > self._most:
            return False
        self._at = {number: end for number, (_, end) in spans.items()}
        async with aclosing(reader.records(self._topic, wanted)) as records:
            async for record in records:
                self._take(record.value)
        return True

    def _take(self, value: bytes | None) -> None:
        try:
            letter = decode_dead_letter(value or b"")
        except SchemaError:
            return
        part = Where(letter.source.topic, letter.source.partition)
        if self._job is not None:
            span = self._job.spans.get(part)
            if span is None or not span.begin <= letter.source.offset < span.end:
                return
        self._seen[letter.code, part].add(letter.source.offset)


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
            picture = await looking.picture()
            yield picture
            if not picture.left:
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
        workers = await self._groups.workers()
        left_s = round(left / pace, 1) if pace and workers != 0 else None
        is_read = await self._errors.read_on(self._reader)
        return Progress(
            group=self._cfg.kafka.group,
            begun_ms=None if job is None else job.begun_ms,
            references=self._references,
            answered=answered,
            left=left,
            rate=round(rate, 1),
            average=None if average is None else round(average, 1),
            left_s=left_s if left else 0.0,
            workers=workers,
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
        rows = 0
        for part, commit in self._positions.items():
            span = self._spans[part]
            progress = Position.of(commit).progress
            ahead = progress.completed.within(commit.next_offset, span.end)
            rows += span.done(commit.next_offset) + sum(stop - start for start, stop in ahead)
        return rows

    def _stopped(self) -> list[StoppedLine]:
        return [
            StoppedLine(*part, offset)
            for part, commit in sorted(self._positions.items())
            for offset in Position.of(commit).stopped_at
        ]
