"""Follows one answer back through the topics: from a scene to its frames, from a row to its object,
with the times at which Kafka got each record.

Rule: no worker is asked and nothing is committed. It begins to read at about the time of the record
and stops when it has found it. Owner: `penstock trace`.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from penstock import config
from penstock.adapters.kafka.reader import Reader, Spans, open_reader
from penstock.encodings.blocks import records_of
from penstock.errors import EXIT_USAGE, Fatal
from penstock.messages.errors import SchemaError
from penstock.messages.prediction import decode_prediction
from penstock.messages.scene import Scene, decode_scene
from penstock.verify.words import object_text, said

_ANSWER = re.compile(r"(?P<topic>.+)/(?P<partition>\d+)/(?P<offset>\d+)/\d+/[^/]+")
_SCENE = re.compile(r".+/(?P<time>-?\d+)")
# How long before a scene its frames may have been predicted, or a scene before the time that it
# shows: allows for deadlines, and for clocks that differ a little.
MARGIN_MS = 60_000


class Found(NamedTuple):
    """A record, its place, and when Kafka got it."""

    where: str
    at_ms: int
    value: bytes


class Frame(NamedTuple):
    """A member of a scene, and the answer that the scene has of it."""

    member: str
    status: str
    id: str | None
    answer: Found | None


class Trace(NamedTuple):
    """`asked`: the input record that the answer belongs to. `scene`: the scene whose id was given,
    or that was the input of the answer.
    """

    id: str
    answer: Found | None
    asked: Found | None
    scene: Found | None
    frames: list[Frame]


async def trace(cfg: config.Config, id: str) -> Trace:
    """Follow the answer or scene with this id. Raises `Fatal` (exit 2) if `id` is not an id, or if
    no topic has it.
    """
    async with open_reader(cfg.kafka, "read_uncommitted") as reader:
        if found := _ANSWER.fullmatch(id):
            return await _answer(cfg, reader, id, found)
        if found := _SCENE.fullmatch(id):
            scene = await _scene(cfg, reader, id, int(found["time"]))
            return Trace(id, None, None, scene, await _frames(cfg, reader, scene))
    raise Fatal(
        f"{id} is not an id: an answer's is topic/partition/offset/object/row, a scene's site/time",
        exit_code=EXIT_USAGE,
    )


async def _answer(cfg: config.Config, reader: Reader, id: str, parts: re.Match[str]) -> Trace:
    topic, partition, offset = parts["topic"], int(parts["partition"]), int(parts["offset"])
    begin, end = (await reader.spans(topic)).get(partition, (0, 0))
    span = {partition: (offset, offset + 1 if begin <= offset < end else offset)}
    at_offset = [record async for record in _records(reader, topic, span)]
    if not at_offset:
        raise Fatal(f"{topic} has no record {partition}/{offset}", exit_code=EXIT_USAGE)
    asked = at_offset[0]
    since = await reader.spans_since(cfg.output.topic, asked.at_ms)
    answer = (await _by_id(reader, cfg.output.topic, since, {id})).get(id)
    if answer is None:
        marker = f"{id.rpartition('/')[0]}/-"
        answer = (await _by_id(reader, cfg.output.topic, since, {marker})).get(marker)
    scene = asked if _as_scene(asked.value) is not None else None
    frames = await _frames(cfg, reader, asked) if scene is not None else []
    return Trace(id, answer, asked, scene, frames)


async def _scene(cfg: config.Config, reader: Reader, id: str, time: int) -> Found:
    """Look near the time that the scene shows, then on the whole topic: a scene made from a replay
    of old records is written much later.
    """
    topic = cfg.scenes.topic
    for spans in (await reader.spans_since(topic, time - MARGIN_MS), await reader.spans(topic)):
        found = await _by_id(reader, topic, spans, {id})
        if found:
            return found[id]
    raise Fatal(f"{topic} has no scene {id}", exit_code=EXIT_USAGE)


async def _frames(cfg: config.Config, reader: Reader, found: Found) -> list[Frame]:
    scene = _as_scene(found.value)
    assert scene is not None
    topic = cfg.scenes.input_topic
    ids = {seat.id for seat in scene.members.values() if seat.id is not None}
    since = await reader.spans_since(topic, found.at_ms - MARGIN_MS)
    answers = await _by_id(reader, topic, since, ids)
    return [
        Frame(name, seat.status, seat.id, answers.get(seat.id or ""))
        for name, seat in scene.members.items()
    ]


async def _by_id(
    reader: Reader, topic: str, spans: Spans, ids: Collection[str]
) -> dict[str, Found]:
    """The first record of each id."""
    found: dict[str, Found] = {}
    async with aclosing(_records(reader, topic, spans)) as records:
        async for record in records:
            for value in records_of(record.value):
                id = _id(value)
                if id in ids and id not in found:
                    found[id] = record._replace(value=value)
            if len(found) == len(ids):
                break
    return found


async def _records(reader: Reader, topic: str, spans: Spans) -> Any:
    async with aclosing(reader.runs(topic, spans, lambda _: None)) as runs:
        async for partition, records in runs:
            for record in records:
                where = f"{topic}/{partition}/{record.offset}"
                yield Found(where, record.timestamp, record.value or b"")


class _Named(msgspec.Struct):
    id: str = ""


_named = msgspec.json.Decoder(_Named)


def _id(value: bytes) -> str:
    try:
        return _named.decode(value).id
    except msgspec.MsgspecError:
        return ""


def _as_scene(value: bytes) -> Scene | None:
    try:
        return decode_scene(value)
    except SchemaError:
        return None


def in_words(found: Trace, frames_topic: str) -> Iterator[str]:
    """For people, a line each; `frames_topic` is where the frames were looked for."""
    answer, asked, scene = found.answer, found.asked, found.scene
    if asked is not None:
        yield f"asked     {_when(asked.at_ms)}  {asked.where}"
        if answer is None:
            yield "answered  not yet; or its object has fewer rows, which its last record says"
        else:
            row = decode_prediction(answer.value)
            took = answer.at_ms - asked.at_ms
            yield f"answered  {_when(answer.at_ms)}  {answer.where}, {took} ms later"
            yield f"          {object_text(row)}: {said(row)}"
    if scene is not None:
        picture = decode_scene(scene.value)
        away = f"{picture.missing} missing, {picture.evicted} evicted"
        what = f"{picture.closed_by}, revision {picture.revision}, {away}"
        yield f"scene     {_when(scene.at_ms)}  {picture.id}: {what}; {scene.where}"
    for frame in found.frames:
        yield f"  {frame.member:<12} {frame.status:<9} {_frame(frame, scene, frames_topic)}"


def _frame(frame: Frame, scene: Found | None, topic: str) -> str:
    if frame.id is None:
        return ""
    if frame.answer is None or scene is None:
        return f"{frame.id}, not on {topic}: retention removed it, or scenes.input_topic is another"
    row = decode_prediction(frame.answer.value)
    before = scene.at_ms - frame.answer.at_ms
    return f"{frame.id}, {before} ms before the scene; {object_text(row)}: {said(row)}"


def _when(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def as_json(found: Trace) -> Mapping[str, Any]:
    """For programs."""

    def record(each: Found | None) -> Mapping[str, Any] | None:
        if each is None:
            return None
        return {"where": each.where, "at": each.at_ms, "record": msgspec.Raw(each.value)}

    return {
        "id": found.id,
        "asked": record(found.asked),
        "answer": record(found.answer),
        "scene": record(found.scene),
        "frames": [{**frame._asdict(), "answer": record(frame.answer)} for frame in found.frames],
    }
