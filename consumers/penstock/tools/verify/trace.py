"""Follows one answer back through the topics, from a scene to its frames, or from a row to its
object and its dead letter.

Rule: nothing is committed. In a partition in the order of the input about fifteen reads by halves
find a row among a million: after a crash the order jumps back, never forward over a record, so one
of two copies is found. In another order all records since the message are read.
"""

import math
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from penstock import config
from penstock.adapters.http.running_worker import ReportedWay, way_of
from penstock.adapters.kafka.reader import Prober, Reader, Spans, open_reader
from penstock.encodings.output_values import records_of
from penstock.errors import usage
from penstock.messages.dead_letter import decode_dead_letter
from penstock.messages.prediction import Source, decode_prediction
from penstock.messages.reference import SchemaError
from penstock.messages.scene import Scene, decode_scene
from penstock.messages.traceparent import in_headers, read
from penstock.tools.verify.records_and_open_objects import id_of

# The pattern of an answer's id.
ANSWER = re.compile(
    r"(?P<topic>.+)/(?P<partition>\d+)/(?P<offset>\d+)/(?P<object>\d+)/(?P<row>[^/]+)"
)
# A range of at most this many offsets is not halved: it is read from its beginning.
NEAR = 400


class TracedRow(NamedTuple):
    """The row of the input that a record is about. If the record ends an object, `row` is
    infinite.
    """

    offset: int
    object_index: int
    row: float


def place_of(offset: int, object_index: int, row: str) -> TracedRow:
    return TracedRow(offset, object_index, int(row) if row.isdecimal() else math.inf)


class TracedRows(NamedTuple):
    """The first and the last row that a record is about. `value`: the value that `search` returns
    if it finds this record.
    """

    first: TracedRow
    last: TracedRow
    value: Any


Read = Callable[[int], Awaitable[Sequence[Any]]]
Tell = Callable[[Any], Iterable[TracedRows]]


async def search(read: Read, tell: Tell, span: tuple[int, int], wanted: TracedRow) -> Any | None:
    """The `value` of the record about the wanted row; None: there is no such record. `read`: a
    function that gives some records from an offset on. `tell`: a function that says which rows a
    record is about; it gives no rows if the record belongs to another input partition.
    """
    low, high = span
    while low < high:
        middle = low if high - low <= NEAR else (low + high) // 2
        traced, after = await _told(read, tell, middle, high)
        for rows in traced:
            if rows.first <= wanted <= rows.last:
                return rows.value
        if traced and traced[0].first < wanted:
            if traced[-1].last > wanted:
                return None
            low = after
        elif middle == low and not traced:
            return None
        else:
            high = middle
    return None


async def _told(read: Read, tell: Tell, at: int, end: int) -> tuple[list[TracedRows], int]:
    """Read on from `at` until `tell` gives rows. Returns two things: these rows; and the offset
    after the records that were read.
    """
    while at < end:
        records = [record for record in await read(at) if record.offset < end]
        if not records:
            return [], end
        at = records[-1].offset + 1
        if traced := [rows for record in records for rows in tell(record)]:
            return traced, at
    return [], end


class FoundRecord(NamedTuple):
    """A record, with its place and the time at which Kafka got it."""

    where: str
    at_ms: int
    value: bytes
    headers: Sequence[tuple[str, bytes | None]] = ()


def found_at(topic: str, record: Any) -> FoundRecord:
    where = f"{topic}/{record.partition}/{record.offset}"
    return FoundRecord(where, record.timestamp, record.value or b"", record.headers or ())


@dataclass(frozen=True, slots=True)
class Near:
    """Searches the output partition to which the answers to a message go, and the partition to
    which its dead letters go.
    """

    reader: Reader
    prober: Prober
    source: Source

    async def find(self, topic: str, wanted: TracedRow, tell: Tell) -> FoundRecord | None:
        """The record about this row. If there is none: the record that ends the object."""
        spans = await self.reader.spans(topic)
        partition = self.source.partition % len(spans)
        read = partial(self.prober.at, topic, partition)
        hit = await search(read, tell, spans[partition], wanted)
        if hit is None and wanted.row != math.inf:
            hit = await search(read, tell, spans[partition], wanted._replace(row=math.inf))
        if hit is None:
            return None
        record, value = hit
        return found_at(topic, record)._replace(value=value)


def of_answer(source: Source, record: Any) -> Iterator[TracedRows]:
    for value in records_of(record.value or b""):
        parts = ANSWER.fullmatch(id_of(value))
        if parts and (parts["topic"], int(parts["partition"])) == (source.topic, source.partition):
            place = place_of(int(parts["offset"]), int(parts["object"]), parts["row"])
            yield TracedRows(place, place, (record, value))


def of_letter(source: Source, record: Any) -> Iterator[TracedRows]:
    try:
        letter = decode_dead_letter(record.value or b"")
    except SchemaError:
        return
    about = letter.source
    if (about.topic, about.partition) != (source.topic, source.partition):
        return
    begin, end = (letter.rows[0][0], letter.rows[-1][1]) if letter.rows else (0, None)
    first = TracedRow(about.offset, letter.object_index, begin)
    last = first._replace(row=math.inf if end is None else end - 1)
    yield TracedRows(first, last, (record, record.value))


_SCENE = re.compile(r".+/(?P<time>-?\d+)")
# The search for frames begins this long before the time of their scene. The search for a scene
# begins this long before the time that the scene shows. Deadlines and differences between clocks
# are shorter than this.
MARGIN_MS = 60_000


class Frame(NamedTuple):
    """A member of a scene, with the answer to the frame that it sent."""

    member: str
    status: str
    id: str | None
    answer: FoundRecord | None


class AnswerTrace(NamedTuple):
    """`asked`: the input record that was answered. `scene`: the scene whose id was given, or the
    scene that was the input record. `next_offset`: the group's next offset in the input partition
    of `asked`. `trace_id`: the id of the trace that has the object's spans, if the answer names it.
    `way`: the object's times in each stage, as the worker remembers them; or the reason why no
    worker told them.
    """

    id: str
    answer: FoundRecord | None
    asked: FoundRecord | None
    scene: FoundRecord | None
    frames: list[Frame]
    letter: FoundRecord | None = None
    next_offset: int | None = None
    trace_id: str | None = None
    way: ReportedWay | str | None = None


async def trace(cfg: config.Config, id: str) -> AnswerTrace:
    """Follow the answer or the scene with this id. Raises `Fatal` (exit 2) if the text is no id, or
    if no topic has the record.
    """
    async with open_reader(cfg.kafka, cfg.delivery.isolation) as reader:
        if match := ANSWER.fullmatch(id):
            return await _answer(cfg, reader, id, match)
        if match := _SCENE.fullmatch(id):
            scene = await _scene(cfg, reader, id, int(match["time"]))
            return AnswerTrace(id, None, None, scene, await _frames(cfg, reader, scene))
    raise usage(
        f"{id} is not an id: an answer's is topic/partition/offset/object/row, a scene's site/time"
    )


async def _answer(cfg: config.Config, reader: Reader, id: str, parts: re.Match[str]) -> AnswerTrace:
    source = Source(parts["topic"], int(parts["partition"]), int(parts["offset"]))
    wanted = place_of(source.offset, int(parts["object"]), parts["row"])
    async with reader.prober() as prober:
        asked = await _asked(reader, prober, source)
        near = Near(reader, prober, source)
        answer = await near.find(cfg.output.topic, wanted, partial(of_answer, source))
        if answer is None and _may_be_elsewhere(cfg):
            ids = {id, f"{id.rpartition('/')[0]}/-"}
            since = await reader.spans_since(cfg.output.topic, asked.at_ms)
            answers = await _by_id(reader, cfg.output.topic, since, ids)
            answer = answers.get(id) or next(iter(answers.values()), None)
        letter = None
        if answer is None or decode_prediction(answer.value).error is not None:
            topic = cfg.output.dead_letter_topic
            letter = await near.find(topic, wanted, partial(of_letter, source))
    committed = (await reader.committed(source.topic, [source.partition])).get(source.partition)
    scene = asked if _as_scene(asked.value) is not None else None
    return AnswerTrace(
        id,
        answer,
        asked,
        scene,
        await _frames(cfg, reader, asked) if scene is not None else [],
        letter,
        None if committed is None else committed.next_offset,
        _trace_id(answer),
        await _way(cfg, id, answer),
    )


async def _asked(reader: Reader, prober: Prober, source: Source) -> FoundRecord:
    topic, partition, offset = source.topic, source.partition, source.offset
    begin, end = (await reader.spans(topic)).get(partition, (0, 0))
    if begin <= offset < end:
        for record in await prober.at(topic, partition, offset):
            if record.offset == offset:
                return found_at(topic, record)
    raise usage(f"{topic} has no record {partition}/{offset}")


def _may_be_elsewhere(cfg: config.Config) -> bool:
    """True if answers may be in another partition, or in another order, than their messages."""
    return cfg.output.partitioning != "same" or cfg.output.order != "partition"


async def _way(cfg: config.Config, id: str, answer: FoundRecord | None) -> ReportedWay | str | None:
    if answer is None:
        return None
    model = decode_prediction(answer.value).model
    return await way_of(cfg.http, id, model, cfg.output.topic)


def _trace_id(answer: FoundRecord | None) -> str | None:
    text = in_headers(answer.headers) if answer is not None else None
    caller = read(text) if text else None
    return None if caller is None else f"{caller.trace_id:032x}"


async def _scene(cfg: config.Config, reader: Reader, id: str, time: int) -> FoundRecord:
    """Look near the time that the scene shows. If the scene is not there, look on the whole topic:
    a scene made from a replay of old records was written much later than the time that it shows.
    """
    topic = cfg.scenes.topic
    for spans in (await reader.spans_since(topic, time - MARGIN_MS), await reader.spans(topic)):
        records = await _by_id(reader, topic, spans, {id})
        if records:
            return records[id]
    raise usage(f"{topic} has no scene {id}")


async def _frames(cfg: config.Config, reader: Reader, record: FoundRecord) -> list[Frame]:
    scene = _as_scene(record.value)
    assert scene is not None
    topic = cfg.scenes.input_topic
    ids = {seat.id for seat in scene.members.values() if seat.id is not None}
    since = await reader.spans_since(topic, record.at_ms - MARGIN_MS)
    answers = await _by_id(reader, topic, since, ids)
    return [
        Frame(name, seat.status, seat.id, answers.get(seat.id or ""))
        for name, seat in scene.members.items()
    ]


async def _by_id(
    reader: Reader, topic: str, spans: Spans, ids: Collection[str]
) -> dict[str, FoundRecord]:
    """For each of the ids that is found: the first record with this id."""
    records_found: dict[str, FoundRecord] = {}
    async with aclosing(reader.records(topic, spans)) as records:
        async for record in records:
            for value in records_of(record.value or b""):
                id = id_of(value)
                if id in ids and id not in records_found:
                    records_found[id] = found_at(topic, record)._replace(value=value)
            if len(records_found) == len(ids):
                break
    return records_found


def _as_scene(value: bytes) -> Scene | None:
    try:
        return decode_scene(value)
    except SchemaError:
        return None
