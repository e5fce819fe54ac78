"""Which references of a job were answered by errors, according to the dead-letter topic.

Rule: what counts is the offset of a letter's reference: a repeated letter counts once, and a letter
of an earlier job does not count. Owner: the worker at its end, and `penstock progress`.
"""

from collections import Counter, defaultdict
from contextlib import aclosing

from penstock import config
from penstock.adapters.kafka.reader import Reader, offsets
from penstock.jobs.decided_end import Job
from penstock.messages.dead_letter import decode_dead_letter
from penstock.messages.reference import SchemaError
from penstock.ports import Where

# The clock of a worker may differ this much from the clock of the worker that decided the end.
CLOCKS_MS = 600_000


class AnsweredByErrors:
    """`job` None: all references count. `most`: no more letters than this are read at a time."""

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
        """How many references each error code has. A reference whose rows have several codes counts
        for each of them.
        """
        found: Counter[str] = Counter()
        for (code, _), of_part in self._seen.items():
            found[code] += len(of_part)
        return found

    async def read_on(self, reader: Reader) -> bool:
        """Read the letters that came since the last call. False: there are more than `most` of
        them, and they were not read.
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
