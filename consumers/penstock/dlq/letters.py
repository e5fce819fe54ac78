"""Reads the chosen dead letters from their topic.

Rule: the topic is read without a group, from its beginning to the end that it has when the reading
begins. Letters of aborted transactions are left out. Memory holds one fetch. Owner: the command.
"""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock import config
from penstock.adapters.kafka.reader import OnRead, Progress, Reader
from penstock.dlq.choice import Choice, Place
from penstock.messages.dead_letter import DeadLetter, decode_dead_letter
from penstock.messages.reference import RowRange, SchemaError


class Filed(NamedTuple):
    """A letter, its place, and its JSON."""

    place: Place
    letter: DeadLetter
    value: bytes


@dataclass(slots=True)
class Seen:
    """The counts of one reading: chosen letters by code, and records that are no letters."""

    by_code: Counter[str] = field(default_factory=Counter)
    no_letters: int = 0

    def sentence(self) -> str:
        count = self.by_code.total()
        codes = ", ".join(f"{code} {number:,}" for code, number in self.by_code.most_common())
        sentence = f"{count:,} dead letter{'' if count == 1 else 's'}" + (
            f": {codes}" if codes else ""
        )
        strange = f"; {self.no_letters:,} records are not dead letters" if self.no_letters else ""
        return sentence + strange


async def letters(
    cfg: config.Config, reader: Reader, choice: Choice, seen: Seen, progress: OnRead
) -> AsyncGenerator[Filed]:
    """The chosen letters, in the order of each partition. `seen` is kept up to date meanwhile."""
    topic = cfg.output.dead_letter_topic
    spans = await reader.spans(topic)
    reading = Progress(progress)
    reading.expect(spans)
    async with aclosing(reader.runs(topic, spans, reading.passed)) as runs:
        async for partition, records in runs:
            for record in records:
                place = Place(partition, record.offset)
                try:
                    letter = decode_dead_letter(record.value or b"")
                except SchemaError:
                    seen.no_letters += 1
                    continue
                if choice.takes(place, letter):
                    seen.by_code[letter.code] += 1
                    yield Filed(place, letter, record.value)


def rows_text(rows: tuple[RowRange, ...] | None) -> str:
    """For people: `17`, `17-19`, `20-`, or `all`."""
    if rows is None:
        return "all"
    return ", ".join(
        f"{start}-" if stop is None else f"{start}" if stop == start + 1 else f"{start}-{stop - 1}"
        for start, stop in rows
    )
