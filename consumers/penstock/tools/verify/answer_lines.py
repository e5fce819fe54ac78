"""How commands print answers, as lines or JSON. For people an unknown value is "unknown"."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.adapters.http.running_worker import ReportedWay
from penstock.core.routing.stream_keys import key_text
from penstock.encodings.output_values import records_of
from penstock.messages.dead_letter import decode_dead_letter
from penstock.messages.prediction import Prediction, decode_prediction
from penstock.messages.reference import SchemaError
from penstock.messages.scene import decode_scene
from penstock.ports import Outgoing
from penstock.terminal_text import cut, visible
from penstock.tools.verify.findings import counted
from penstock.tools.verify.trace import AnswerTrace, FoundRecord, Frame

# Stages that the page calls by other names than the metrics.
STAGES = {"kafka_in": "in", "hold_back": "hold-back"}
# A dry run shows at most this many first rows of each object, and at most this many of its errors,
# because a broken file may have a million errors.
FIRST_ROWS, MOST_ERRORS = 3, 10


def object_text(row: Prediction) -> str:
    """The object and the row that an answer is about. The text is neither cut nor escaped: the
    callers do both by `terminal_text`.
    """
    if row.object is None:
        return "inline" if row.row is None else f"inline, row {row.row}"
    where = f"{row.object.bucket}/{row.object.key}"
    return f"{where}, as a whole" if row.row is None else f"{where}, row {row.row}"


def said(row: Prediction) -> str:
    """The content of an answer. The text is neither cut nor escaped."""
    if row.error is not None:
        return f"{row.error.code}: {row.error.message}"
    if row.result is not None:
        return f"{row.result.rows:,} rows, {row.result.errors:,} errors: {row.result.url}"
    if row.duplicate_of is not None:
        return f"announced before, answered from {row.duplicate_of} on"
    if row.row is None:
        return "no rows"
    return msgspec.json.encode(row.prediction).decode()


def in_words(trace: AnswerTrace, frames_topic: str) -> Iterator[str]:
    """The lines for people. `frames_topic`: the topic on which the frames were looked for. A line
    feed in a name makes no line of its own.
    """
    return (line.replace("\n", "\\n") for line in _lines(trace, frames_topic))


def _lines(trace: AnswerTrace, frames_topic: str) -> Iterator[str]:
    asked, scene = trace.asked, trace.scene
    if asked is not None:
        yield f"asked     {_when(asked.at_ms)}  {asked.where}"
        yield from _answered(trace, asked)
    if scene is not None:
        picture = decode_scene(scene.value)
        away = f"{picture.missing} missing, {picture.evicted} evicted"
        what = f"{picture.closed_by}, revision {picture.revision}, {away}"
        yield f"scene     {_when(scene.at_ms)}  {picture.id}: {what}; {scene.where}"
    for frame in trace.frames:
        yield f"  {frame.member:<12} {frame.status:<9} {_frame(frame, scene, frames_topic)}"


def _answered(trace: AnswerTrace, asked: FoundRecord) -> Iterator[str]:
    answer = trace.answer
    if answer is None:
        yield "answered  not yet; or its object has fewer rows, which its last record says"
    else:
        row = decode_prediction(answer.value)
        took = answer.at_ms - asked.at_ms
        yield f"answered  {_when(answer.at_ms)}  {answer.where}, {took:,} ms later"
        yield f"          {object_text(row)}: {said(row)}"
        version = f", version {row.model_version}" if row.model_version is not None else ""
        yield f"model     {row.model}{version}"
    if trace.letter is not None:
        letter = decode_dead_letter(trace.letter.value)
        tries = f"{letter.attempts} tries" if letter.attempts > 1 else "one try"
        yield f"letter    {_when(letter.failed_at)}  {trace.letter.where}, after {tries}"
        yield f"          {letter.code} at {letter.stage}: {letter.message}"
    yield f"committed {_committed(trace, asked)}"
    if isinstance(trace.way, ReportedWay):
        yield from _way(trace.way)
    elif trace.way is not None:
        yield f"worker    unknown: {trace.way}"
    if trace.trace_id is not None:
        yield f"trace     {trace.trace_id}"


def _way(way: ReportedWay) -> Iterator[str]:
    """The lines with the times of the object, and with the batch that carried its last rows."""
    yield f"worker    process {way.pid} of {way.host}"
    times = (f"{STAGES.get(stage, stage)} {ms:,} ms" for stage, ms in way.times_ms.items())
    yield f"times     {', '.join(times)}; {way.took_ms:,} ms to the end of its object"
    if (batch := way.batch) is not None:
        request = "" if batch.request == 1 else f"; request {batch.request} of its batch"
        objects = "one object" if batch.objects == 1 else f"{batch.objects:,} objects"
        yield f"batch     {batch.rows:,} rows of {objects} in one request{request}"


def _committed(trace: AnswerTrace, asked: FoundRecord) -> str:
    """A sentence that says whether the group has committed the message."""
    offset = int(asked.where.rpartition("/")[2])
    if trace.next_offset is None:
        return "no: the group has committed nothing of this partition"
    is_past = trace.next_offset > offset
    return f"{'yes' if is_past else 'not yet'}: the group is at {trace.next_offset}"


def _frame(frame: Frame, scene: FoundRecord | None, topic: str) -> str:
    if frame.id is None:
        return ""
    if frame.answer is None or scene is None:
        return f"{frame.id}, not on {topic}: retention removed it, or scenes.input_topic is another"
    row = decode_prediction(frame.answer.value)
    before = scene.at_ms - frame.answer.at_ms
    return f"{frame.id}, {before} ms before the scene; {object_text(row)}: {said(row)}"


def _when(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def as_json(trace: AnswerTrace) -> Mapping[str, Any]:
    """The JSON document for programs."""

    def record(each: FoundRecord | None) -> Mapping[str, Any] | None:
        if each is None:
            return None
        return {"where": each.where, "at": each.at_ms, "record": msgspec.Raw(each.value)}

    return {
        "id": trace.id,
        "asked": record(trace.asked),
        "answer": record(trace.answer),
        "letter": record(trace.letter),
        "next_offset": trace.next_offset,
        "trace_id": trace.trace_id,
        "way": trace.way if isinstance(trace.way, ReportedWay) else None,
        "scene": record(trace.scene),
        "frames": [{**frame._asdict(), "answer": record(frame.answer)} for frame in trace.frames],
    }


class DryRun:
    """Shows the records that a worker would publish. Call `show` with the records in order. `echo`:
    a function that prints a line. Of each object, people see only the first rows, the errors, the
    last row, and the number of rows that are not shown. The counts include records that are not
    shown.
    """

    def __init__(self, letters_topic: str, echo: Callable[[str], None], *, as_json: bool) -> None:
        self._echo = echo
        self.answers = self.errors = self.letters = 0
        self._letters_topic = letters_topic
        self._as_json = as_json
        self._shown: Counter[str] = Counter()
        self._hidden: Counter[str] = Counter()

    def show(self, outgoing: Outgoing) -> None:
        for line in self._lines(outgoing):
            self._echo(line)

    def _lines(self, outgoing: Outgoing) -> Iterator[str]:
        is_letter = outgoing.topic == self._letters_topic
        for key, value in zip(outgoing.keys, outgoing.values, strict=True):
            name = None if key is None else key_text(key)
            for record in [value] if is_letter else records_of(value):
                text = self._letter(record) if is_letter else self._answer(record)
                if self._as_json:
                    yield _as_json(outgoing, name, record)
                elif text is not None:
                    where = f"{outgoing.topic}/{outgoing.partition}"
                    yield f"{where}  {visible(name or '-')}  {text}"

    def _letter(self, value: bytes) -> str | None:
        self.letters += 1
        letter = decode_dead_letter(value)
        about = f"{letter.object.bucket}/{letter.object.key}" if letter.object else "the message"
        if self._is_hidden(f"letter {about}", MOST_ERRORS):
            return None
        return f"letter: {letter.code} at {letter.stage}, {cut(about)}: {cut(letter.message)}"

    def _answer(self, value: bytes) -> str | None:
        self.answers += 1
        try:
            answer = decode_prediction(value)
        except SchemaError as error:
            return f"answer: {visible(str(error))}"
        self.errors += answer.error is not None
        id, about = answer.id.rpartition("/")[0], object_text(answer)
        if answer.error is not None:
            hides = self._is_hidden(f"error {id}", MOST_ERRORS)
        else:
            hides = self._is_hidden(id, FIRST_ROWS)
        if hides and not answer.last:
            self._hidden[id] += 1
            return None
        return f"{cut(answer.id)}  {cut(about)}: {cut(said(answer))}{self._end(answer, id)}"

    def _end(self, answer: Prediction, id: str) -> str:
        if not answer.last:
            return ""
        hidden = self._hidden.pop(id, 0)
        before = f", {counted(hidden, 'row')} before it not shown" if hidden else ""
        return f"  (the last of {counted(answer.rows or 0, 'row')}{before})"

    def _is_hidden(self, what: str, most: int) -> bool:
        self._shown[what] += 1
        return self._shown[what] > most


def _as_json(outgoing: Outgoing, key: str | None, record: bytes) -> str:
    where = {"topic": outgoing.topic, "partition": outgoing.partition, "key": key}
    return msgspec.json.encode({**where, "record": msgspec.Raw(record)}).decode()
