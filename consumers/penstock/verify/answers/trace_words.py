"""Shows the result of `penstock trace`: in lines for people, as JSON for programs.

Rule: the lines say "unknown" where neither the topics nor a worker know a value. Owner: `penstock
trace`.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.adapters.http.running_worker import Way
from penstock.messages.dead_letter import decode_dead_letter
from penstock.messages.prediction import decode_prediction
from penstock.messages.scene import decode_scene
from penstock.verify.answers.answer_text import object_text, said
from penstock.verify.answers.trace import Found, Frame, Trace

# Stages that the page calls by other names than the metrics.
STAGES = {"kafka_in": "in", "hold_back": "hold-back"}


def in_words(found: Trace, frames_topic: str) -> Iterator[str]:
    """The lines for people. `frames_topic`: the topic on which the frames were looked for."""
    asked, scene = found.asked, found.scene
    if asked is not None:
        yield f"asked     {_when(asked.at_ms)}  {asked.where}"
        yield from _answered(found, asked)
    if scene is not None:
        picture = decode_scene(scene.value)
        away = f"{picture.missing} missing, {picture.evicted} evicted"
        what = f"{picture.closed_by}, revision {picture.revision}, {away}"
        yield f"scene     {_when(scene.at_ms)}  {picture.id}: {what}; {scene.where}"
    for frame in found.frames:
        yield f"  {frame.member:<12} {frame.status:<9} {_frame(frame, scene, frames_topic)}"


def _answered(found: Trace, asked: Found) -> Iterator[str]:
    answer = found.answer
    if answer is None:
        yield "answered  not yet; or its object has fewer rows, which its last record says"
    else:
        row = decode_prediction(answer.value)
        took = answer.at_ms - asked.at_ms
        yield f"answered  {_when(answer.at_ms)}  {answer.where}, {took:,} ms later"
        yield f"          {object_text(row)}: {said(row)}"
        version = f", version {row.model_version}" if row.model_version is not None else ""
        yield f"model     {row.model}{version}"
    if found.letter is not None:
        letter = decode_dead_letter(found.letter.value)
        tries = f"{letter.attempts} tries" if letter.attempts > 1 else "one try"
        yield f"letter    {_when(letter.failed_at)}  {found.letter.where}, after {tries}"
        yield f"          {letter.code} at {letter.stage}: {letter.message}"
    yield f"committed {_committed(found, asked)}"
    if isinstance(found.way, Way):
        yield from _way(found.way)
    elif found.way is not None:
        yield f"worker    unknown: {found.way}"
    if found.trace_id is not None:
        yield f"trace     {found.trace_id}"


def _way(way: Way) -> Iterator[str]:
    """The times of the object, and the batch that carried its last rows."""
    yield f"worker    process {way.pid} of {way.host}"
    times = (f"{STAGES.get(stage, stage)} {ms:,} ms" for stage, ms in way.times_ms.items())
    yield f"times     {', '.join(times)}; {way.took_ms:,} ms to the end of its object"
    if (batch := way.batch) is not None:
        request = "" if batch.request == 1 else f"; request {batch.request} of its batch"
        objects = "one object" if batch.objects == 1 else f"{batch.objects:,} objects"
        yield f"batch     {batch.rows:,} rows of {objects} in one request{request}"


def _committed(found: Trace, asked: Found) -> str:
    """Says in words whether the group has committed the message."""
    offset = int(asked.where.rpartition("/")[2])
    if found.next_offset is None:
        return "no: the group has committed nothing of this partition"
    is_past = found.next_offset > offset
    return f"{'yes' if is_past else 'not yet'}: the group is at {found.next_offset}"


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
    """The document for programs."""

    def record(each: Found | None) -> Mapping[str, Any] | None:
        if each is None:
            return None
        return {"where": each.where, "at": each.at_ms, "record": msgspec.Raw(each.value)}

    return {
        "id": found.id,
        "asked": record(found.asked),
        "answer": record(found.answer),
        "letter": record(found.letter),
        "next_offset": found.next_offset,
        "trace_id": found.trace_id,
        "way": found.way if isinstance(found.way, Way) else None,
        "scene": record(found.scene),
        "frames": [{**frame._asdict(), "answer": record(frame.answer)} for frame in found.frames],
    }
