"""Decodes of output records only the judged fields, and holds what the judge keeps of an incomplete
object.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from penstock.core.rows.origin import Ranges
from penstock.encodings.output_values import records_of
from penstock.messages.prediction import Failure, ObjectId, Result, Source
from penstock.messages.reference import EventTime
from penstock.tools.verify.fields import Fields, named
from penstock.tools.verify.repeats import Content, Runs
from penstock.tools.verify.scope_and_input_topic import ObjectAt, Want


class AnswerRecord(Struct, gc=False):
    """The judged fields of an output record. Fields that are the same in all records of an object
    are not decoded.
    """

    v: Literal[1]
    id: str
    stream: str
    source: Raw
    object: Raw
    row: int | None
    prediction: Raw
    model: str
    event_time: Raw = Raw(b"null")
    attributes: Raw = Raw(b"null")
    last: bool = False
    rows: int | None = None
    duplicate_of: str | None = None
    error: Failure | None = None
    result: Result | None = None

    @property
    def about(self) -> ObjectId | None:
        about: ObjectId | None = _decode_object(self.object)
        return about

    @property
    def fields(self) -> Fields:
        return Fields(
            named(self.about),
            self.stream,
            _decode_time(self.event_time),
            _decode_attributes(self.attributes),
            self.model,
        )

    @property
    def contradiction(self) -> str | None:
        """A text that says how the record breaks a rule: a row has either a prediction or an error,
        and a marker has no prediction. None: the record breaks no rule.
        """
        is_null = self.prediction == NULL
        if self.row is None or self.error is not None:
            return None if is_null else "a prediction in a record that cannot have one"
        return "neither a prediction nor an error" if is_null else None

    def content(self) -> Content:
        return Content(
            self.stream,
            bytes(self.prediction),
            self.error.code if self.error else None,
            self.rows if self.last else None,
        )


def constant_of(answer: AnswerRecord) -> AnswerRecord:
    """A copy of the record without prediction, error and result. It has only the fields that are
    the same for all rows of an object.
    """
    names = ("source", "object", "event_time", "attributes")
    kept = {name: Raw(bytes(getattr(answer, name))) for name in names}
    return msgspec.structs.replace(answer, prediction=NULL, error=None, result=None, **kept)


class _Named(Struct, gc=False):
    id: str


_decode_id = msgspec.json.Decoder(_Named).decode
decode_answer = msgspec.json.Decoder(AnswerRecord).decode
_decode_source = msgspec.json.Decoder(Source).decode
_decode_object = msgspec.json.Decoder(ObjectId | None).decode
_decode_time = msgspec.json.Decoder(EventTime | None).decode
_decode_attributes = msgspec.json.Decoder(dict[str, Any] | None).decode
NULL = Raw(b"null")

# A function that takes one record: its partition, offset, key and value.
Take = Callable[[int, int, bytes | None, bytes | None], None]

NOT_JSON = (msgspec.MsgspecError, ValueError, RecursionError)


def each_record(take: Take) -> Take:
    """With `output.granularity = "block"`, a Kafka record holds the records of many rows. Returns a
    function that takes such a block, and calls `take` for each record in it.
    """

    def take_all(partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        if value is None:
            take(partition, offset, key, None)
            return
        for record in records_of(value):
            take(partition, offset, key, record)

    return take_all


def id_of(value: bytes) -> str:
    """The id of an output record. It is empty if the value is no output record."""
    try:
        return _decode_id(value).id
    except NOT_JSON:
        return ""


def identify(answer: AnswerRecord) -> tuple[ObjectAt, Source] | str:
    """Returns the object that the record answers and the message that names it; or, if the record's
    id is wrong, a text that says what is wrong with it.
    """
    source = _decode_source(answer.source)
    whole, _, row = answer.id.rpartition("/")
    start, _, index = whole.rpartition("/")
    if (
        start != f"{source.topic}/{source.partition}/{source.offset}"
        or row != ("-" if answer.row is None else str(answer.row))
        or not index.isdecimal()
        or str(int(index)) != index
    ):
        return f"its id {answer.id!r} is not source/object/row of source and row"
    return ObjectAt(source.partition, source.offset, int(index)), source


@dataclass(slots=True, eq=False)
class Sequence:
    """Records that must be in order: those of a partition, or of a stream of a partition. `top`
    (offset and object index) and `row` name the furthest record so far.
    """

    top: tuple[int, int] = (-1, -1)
    row: int = -1
    runs: Runs = field(default_factory=Runs)


@dataclass(slots=True, eq=False)
class OpenObject:
    """An incomplete object. `limit`: the wanted rows have no gap before this row. `seen`: the rows
    that have a record. `end`: the object's number of rows; None until its last record has told it.
    """

    at: ObjectAt
    about: str
    want: Want
    prefix: str
    like: AnswerRecord
    key: bytes | None
    sequence: Sequence
    limit: int = 0
    # The pairs of version and model in the records of the object's first row. There may be several,
    # because a worker that repeats the object from its first row on may use another version and
    # model.
    firsts: set[tuple[str | None, str]] = field(default_factory=set)
    seen: Ranges = field(default_factory=Ranges)
    end: int | None = None

    @property
    def missing(self) -> Ranges:
        """The wanted rows that are known to exist and have no record."""
        stop = self.seen.stops[-1] if self.seen and self.end is None else self.end or 0
        return self.want.rows.within(0, stop).minus(self.seen)

    def is_unlike_first(self, answer: AnswerRecord, version: str | None) -> bool:
        """True if no record of the object's first row has the same version and model as this
        record. All rows of one run must have the same version and model. A record with an error may
        leave the version out.
        """
        versions = (version, answer.model)
        if answer.row == self.want.rows.starts[0]:
            self.firsts.add(versions)
            return False
        if not self.firsts or versions in self.firsts:
            return False
        is_less = version is None and answer.error is not None
        return not is_less or answer.model not in {model for _, model in self.firsts}

    def why_unwanted(self, row: int) -> str | None:
        """The reason why there should be no record of this row. None: the row was asked for."""
        if not self.want.is_reference:
            return "the message is not a reference, a marker should answer it"
        if row not in self.want.rows:
            return f"only row {self.want.rows} was asked for"
        if self.end is not None and row >= self.end:
            return f"its last record said that it has {self.end} rows"
        return None


def wrong_end(known: OpenObject, answer: AnswerRecord) -> str | None:
    """What is wrong with the record that ends an object. None: nothing is wrong. The record's row
    must already be in `known.seen`.
    """
    if not answer.last or answer.rows is None:
        return "an object's end has both last and rows"
    rows, want = answer.rows, known.want
    if answer.row is None:
        if (
            answer.result is None
            and answer.error is None
            and (rows or known.seen or want.inline_rows)
        ):
            return "a marker without error ends an object without rows"
        return None if answer.error or want.is_reference else "no reference, but no error either"
    if want.inline_rows not in (None, rows):
        return f"{rows} rows, but the message has {want.inline_rows}"
    selected = want.rows.within(0, rows)
    final = selected.stops[-1] - 1 if selected else None
    if final != answer.row:
        return f"last is on row {answer.row}, but with {rows} rows it is row {final}"
    return None
