"""What Kafka knows about a job: its end, how far it is, and which of its references were answered
by errors.

Rule: the end of a job is where the input topics ended when its first worker started. This end is
decided once, and kept in Kafka as the commits of a group without members, `<group>.until-end`. The
committed offset of a partition is the job's end there; the metadata tells the offset and the time
at which the job began. So all workers of the group work to the same end, even if they are started
again, and other commands can tell how far the job is. When all is answered, the next worker that
starts decides a new end. Errors are counted by the offsets of the references that the dead letters
are about. So a repeated letter counts once, and a letter of an earlier job does not count. Owner:
`penstock run --until-end` and `penstock progress`.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import aclosing
from typing import NamedTuple

import msgspec
from msgspec import Struct

from penstock import config
from penstock.adapters.kafka.positions_from_outside import Groups
from penstock.adapters.kafka.reader import Reader, offsets
from penstock.errors import usage
from penstock.messages.dead_letter import decode_dead_letter
from penstock.messages.reference import SchemaError
from penstock.ports import Commit, Where
from penstock.tools.replay.decided_range import Span, Spans


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


class _Written(Struct, forbid_unknown_fields=True):
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
        written = _Written(1, begin, now_ms)
        commits[part] = Commit(end, msgspec.json.encode(written).decode())
    await groups.begin(ledger, commits)
    # Another worker may have decided at the same moment. Then both workers use the end
    # that Kafka has stored.
    decided = await _read(ledger, groups, parts)
    assert decided is not None, "it was written just now"
    return decided


async def held(reader: Reader) -> dict[Where, Span]:
    """For each input partition: its first offset, and the offset after its last record."""
    return {
        Where(topic, number): Span(*span)
        for topic in await reader.inputs()
        for number, span in (await reader.spans(topic)).items()
    }


async def _read(ledger: str, groups: Groups, parts: list[Where]) -> Job | None:
    written = await groups.positions(ledger, parts)
    if not written:
        return None
    try:
        said = {
            part: msgspec.json.decode(commit.metadata, type=_Written)
            for part, commit in written.items()
        }
    except (msgspec.MsgspecError, ValueError):
        raise usage(
            f"group {ledger} holds no end of a job; delete that group, or choose another "
            "kafka.group"
        ) from None
    spans = {part: Span(one.begin, written[part].next_offset) for part, one in said.items()}
    return Job(spans, min(one.begun_ms for one in said.values()), written)


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
        for (_, part), found in self._seen.items():
            by_part[part] |= found
        return sum(map(len, by_part.values()))

    @property
    def by_code(self) -> Counter[str]:
        """For each error code, the number of references with that code. A reference whose rows have
        several codes counts once for each of these codes.
        """
        found: Counter[str] = Counter()
        for (code, _), of_part in self._seen.items():
            found[code] += len(of_part)
        return found

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
