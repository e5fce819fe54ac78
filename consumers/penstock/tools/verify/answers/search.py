"""Finds the record about one row in a partition whose records are in the order of the input.

Rule: each read halves the range, so about fifteen reads search a million records. After a crash the
order jumps back, and a run of records is there twice. The order never jumps forward over a record,
so the search finds one of the two copies. Owner: `penstock trace`.
"""

import math
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from penstock.adapters.kafka.reader import Prober, Reader
from penstock.encodings.output_values import records_of
from penstock.messages.dead_letter import decode_dead_letter
from penstock.messages.prediction import Source
from penstock.messages.reference import SchemaError
from penstock.tools.verify.records_and_open_objects import id_of

# The pattern of an answer's id.
ANSWER = re.compile(
    r"(?P<topic>.+)/(?P<partition>\d+)/(?P<offset>\d+)/(?P<object>\d+)/(?P<row>[^/]+)"
)
# A range of at most this many offsets is not halved: it is read from its beginning.
NEAR = 400


class Place(NamedTuple):
    """The row of the input that a record is about. If the record ends an object, `row` is
    infinite.
    """

    offset: int
    object_index: int
    row: float


def place_of(offset: int, object_index: int, row: str) -> Place:
    return Place(offset, object_index, int(row) if row.isdecimal() else math.inf)


class Told(NamedTuple):
    """The first and the last row that a record is about. `value`: the value that `search` returns
    if it finds this record.
    """

    first: Place
    last: Place
    value: Any


Read = Callable[[int], Awaitable[Sequence[Any]]]
Tell = Callable[[Any], Iterable[Told]]


async def search(read: Read, tell: Tell, span: tuple[int, int], wanted: Place) -> Any | None:
    """The `value` of the record about the wanted row; None: there is no such record. `read`: a
    function that gives some records from an offset on. `tell`: a function that says which rows a
    record is about; it gives no rows if the record belongs to another input partition.
    """
    low, high = span
    while low < high:
        middle = low if high - low <= NEAR else (low + high) // 2
        told, after = await _told(read, tell, middle, high)
        for one in told:
            if one.first <= wanted <= one.last:
                return one.value
        if told and told[0].first < wanted:
            if told[-1].last > wanted:
                return None
            low = after
        elif middle == low and not told:
            return None
        else:
            high = middle
    return None


async def _told(read: Read, tell: Tell, at: int, end: int) -> tuple[list[Told], int]:
    """Read on from `at` until `tell` gives rows. Returns two things: these rows; and the offset
    after the records that were read.
    """
    while at < end:
        records = [record for record in await read(at) if record.offset < end]
        if not records:
            return [], end
        at = records[-1].offset + 1
        if told := [one for record in records for one in tell(record)]:
            return told, at
    return [], end


class Found(NamedTuple):
    """A record, with its place and the time at which Kafka got it."""

    where: str
    at_ms: int
    value: bytes
    headers: Sequence[tuple[str, bytes | None]] = ()


def found_at(topic: str, record: Any) -> Found:
    where = f"{topic}/{record.partition}/{record.offset}"
    return Found(where, record.timestamp, record.value or b"", record.headers or ())


@dataclass(frozen=True, slots=True)
class Near:
    """Searches the output partition to which the answers to a message go, and the partition to
    which its dead letters go.
    """

    reader: Reader
    prober: Prober
    source: Source

    async def find(self, topic: str, wanted: Place, tell: Tell) -> Found | None:
        """The record about this row. If there is none: the record that ends the object."""
        spans = await self.reader.spans(topic)
        partition = self.source.partition % len(spans)
        read = partial(self.prober.at, topic, partition)
        found = await search(read, tell, spans[partition], wanted)
        if found is None and wanted.row != math.inf:
            found = await search(read, tell, spans[partition], wanted._replace(row=math.inf))
        if found is None:
            return None
        record, value = found
        return found_at(topic, record)._replace(value=value)


def of_answer(source: Source, record: Any) -> Iterator[Told]:
    for value in records_of(record.value or b""):
        parts = ANSWER.fullmatch(id_of(value))
        if parts and (parts["topic"], int(parts["partition"])) == (source.topic, source.partition):
            place = place_of(int(parts["offset"]), int(parts["object"]), parts["row"])
            yield Told(place, place, (record, value))


def of_letter(source: Source, record: Any) -> Iterator[Told]:
    try:
        letter = decode_dead_letter(record.value or b"")
    except SchemaError:
        return
    about = letter.source
    if (about.topic, about.partition) != (source.topic, source.partition):
        return
    begin, end = (letter.rows[0][0], letter.rows[-1][1]) if letter.rows else (0, None)
    first = Place(about.offset, letter.object_index, begin)
    last = first._replace(row=math.inf if end is None else end - 1)
    yield Told(first, last, (record, record.value))
