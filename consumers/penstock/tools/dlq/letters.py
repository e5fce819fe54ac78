"""Reads from the dead-letter topic the letters that a user has chosen.

Rule: without a group, from the beginning to the present end, committed letters only, one fetch in
memory.
"""

import fnmatch
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from penstock import config
from penstock.messages.dead_letter import DeadLetter, decode_dead_letter
from penstock.messages.reference import RowRange, SchemaError

if TYPE_CHECKING:
    from penstock.adapters.kafka.reader import OnRead, Reader


class LetterPlace(NamedTuple):
    """A letter's place on the dead-letter topic. People write it as `partition/offset`."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class Choice:
    """Tells which letters are chosen: those that match every field, except fields that are empty or
    None. `since_ms` and `until_ms`, in epoch milliseconds: a letter matches if its `failed_at` is
    at or after `since_ms`, and before `until_ms`.
    """

    codes: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    places: tuple[LetterPlace, ...] = ()

    def takes(self, place: LetterPlace, letter: DeadLetter) -> bool:
        return (
            (not self.codes or letter.code in self.codes)
            and (not self.places or place in self.places)
            and (self.since_ms is None or letter.failed_at >= self.since_ms)
            and (self.until_ms is None or letter.failed_at < self.until_ms)
            and (
                not self.streams
                or any(fnmatch.fnmatchcase(letter.stream, glob) for glob in self.streams)
            )
        )


class Filed(NamedTuple):
    """A letter, with its place and its JSON."""

    place: LetterPlace
    letter: DeadLetter
    value: bytes


@dataclass(slots=True)
class Seen:
    """The counts of one reading: how many chosen letters each code has, and how many records are no
    letters.
    """

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
    cfg: config.Config, reader: "Reader", choice: Choice, seen: Seen, progress: "OnRead"
) -> AsyncGenerator[Filed]:
    """Yields the chosen letters; those of one partition come in offset order. Meanwhile `seen` is
    kept up to date.
    """
    # The command line imports this file for `Choice`, and must not load a Kafka client.
    from penstock.adapters.kafka.reader import ReadingProgress  # noqa: PLC0415

    topic = cfg.output.dead_letter_topic
    spans = await reader.spans(topic)
    reading = ReadingProgress(progress)
    reading.expect(spans)
    async with aclosing(reader.runs(topic, spans, reading.passed)) as runs:
        async for partition, records in runs:
            for record in records:
                place = LetterPlace(partition, record.offset)
                try:
                    letter = decode_dead_letter(record.value or b"")
                except SchemaError:
                    seen.no_letters += 1
                    continue
                if choice.takes(place, letter):
                    seen.by_code[letter.code] += 1
                    yield Filed(place, letter, record.value)


def rows_text(rows: tuple[RowRange, ...] | None) -> str:
    """The rows as a text for people: `17`, `17-19`, `20-`, or `all`."""
    if rows is None:
        return "all"
    return ", ".join(
        f"{start}-" if stop is None else f"{start}" if stop == start + 1 else f"{start}-{stop - 1}"
        for start, stop in rows
    )
