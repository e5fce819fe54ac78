"""The values of the output topic: Structs for readers, and the frame that writes records in bulk.

Rule: what is the same for an object is encoded once; for each row only its number and answer are
inserted. The order of the fields is part of the contract. In an Arrow block some fields are in its
head, all others in columns.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from penstock.messages.reference import Count, EventTime, OutputTime, decoder_of

# An error message is cut to this length. A server may answer with a whole traceback, but a record
# must stay far below the topic's limit.
MAX_MESSAGE_CHARS = 1_000

# In a record, the row number (which stands there twice), the row count and the names of their
# fields take at most this many bytes together.
_NUMBERS_BYTES = 128


class Source(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """The record of the input topic that this record answers. `topic_id`: which of the topics that
    had this name one after the other; None if the broker does not tell it.
    """

    topic: str
    partition: Count
    offset: Count
    topic_id: str | None = None


class ObjectId(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """The object that was read. `version`: the object's version id or entity tag; None if it is
    unknown. `store`: the name of the store, as in the reference.
    """

    bucket: str
    key: str
    version: str | None
    store: str | None = None


class Failure(Struct, frozen=True):
    """Why there is no prediction: an error code of the contract, and a message for people."""

    code: str
    message: str


class Result(Struct, frozen=True):
    """The result object in which an object's answers are written. `rows`: how many answers it has;
    `errors`: how many of them have no prediction. `version`: the result's version id or entity tag;
    None if it is unknown. `checksum`: the checksum of the result's bytes, written as `sha256:` and
    hexadecimal digits.
    """

    url: str
    version: str | None
    bytes: Count
    rows: Count
    errors: Count
    checksum: str


class Prediction(Struct, kw_only=True, repr_omit_defaults=True):
    """One record of the output topic: a row's answer, the marker (`row` None) of an object, or the
    record (`row` None) whose `result` says where the object's answers are written.

    `row` counts from 0 over the whole object. `rows` is the object's row count. Only the object's
    last record has `last` and `rows`. `object` is None for inline rows, and for a message that is
    not a reference. `prediction` is any JSON; if it is None and there is an `error`, the row was
    rejected. If a marker has `duplicate_of`, its object was announced before, and its answers are
    the records whose ids begin with the text of `duplicate_of`.
    """

    v: Annotated[int, Meta(ge=1)]
    id: str
    stream: str
    source: Source
    object: ObjectId | None
    row: Count | None
    model: str
    prediction: Any
    member: str | None = None
    last: bool = False
    rows: Count | None = None
    duplicate_of: str | None = None
    event_time: OutputTime | None = None
    columns: dict[str, Any] | None = None
    attributes: dict[str, Any] | None = None
    model_version: str | None = None
    error: Failure | None = None
    result: Result | None = None


class BlockHead(Struct, kw_only=True):
    """The fields that all rows of a block have in common; the rows are of one object. The id of a
    row is this `id`, a slash, and the row's number. `last`: True if the last of these rows is the
    object's last row; if so, `rows` is the object's row count. `event_time`: the time of all rows
    that have no time in the column `event_time`.
    """

    v: Annotated[int, Meta(ge=1)]
    id: str
    stream: str
    source: Source
    object: ObjectId | None
    model: str
    last: bool = False
    rows: Count | None = None
    event_time: OutputTime | None = None
    attributes: dict[str, Any] | None = None
    model_version: str | None = None


decode_prediction: Callable[[bytes], Prediction] = decoder_of(Prediction, "a prediction")
decode_head: Callable[[bytes], BlockHead] = decoder_of(BlockHead, "the head of a block")
_encode = msgspec.json.Encoder().encode


class Constants(Struct, kw_only=True, frozen=True):
    """The fields that all records of an object have in common. `object_index`: the index of the
    object in its message. `object`: None for inline rows, and for a message that is no reference.
    """

    source: Source
    object_index: int
    stream: str
    object: ObjectId | None
    event_time: EventTime | None
    attributes: dict[str, Any] | None
    model: str
    model_version: str | None


class RecordFrame:
    """Encodes the records of one object. Answers are JSON text and are inserted as they are. A row
    takes 0.16 µs. To join the parts of a record would take as long; f-strings would take 2.5
    times as long, and so would formatting whole blocks.
    """

    __slots__ = ("_before_row", "_bulk", "_id", "_input", "_tail")

    def __init__(self, of: Constants) -> None:
        source, about = of.source, of.object
        if about is not None:
            store = None if about.store is None else encodable(about.store)
            about = ObjectId(encodable(about.bucket), encodable(about.key), about.version, store)
        self._input = f"{source.topic}/{source.partition}"
        # The id ends with the row number, so the closing quote is cut off here, and stands after
        # the row number.
        name = f"{self._input}/{source.offset}/{of.object_index}/"
        self._id = b'{"v":1,"id":' + _encode(name)[:-1]
        self._before_row = b'","stream":%b,"source":%b,"object":%b' % (
            _encode(encodable(of.stream)),
            _encode(source),
            _encode(about),
        )
        tail = {
            "event_time": of.event_time,
            "attributes": of.attributes,
            "model": of.model,
            "model_version": of.model_version,
        }
        self._tail = b",%b," % _encode({k: v for k, v in tail.items() if v is not None})[1:-1]
        self._bulk: tuple[str | None, bytes] | None = None

    @property
    def nbytes(self) -> int:
        """A record has at most this many bytes, its answer and its member not counted."""
        return len(self._id) + len(self._before_row) + len(self._tail) + _NUMBERS_BYTES

    def head(self, last_rows: int | None) -> bytes:
        """The head of an Arrow block: `BlockHead` in JSON. `last_rows`: the object's row count if
        the last row of the block is the object's last row; else None.
        """
        end = b"" if last_rows is None else b',"last":true,"rows":%d' % last_rows
        return b"%b%b%b%b}" % (self._id[:-1], self._before_row, end, self._tail[:-1])

    def rows(self, first_row: int, answers: Sequence[bytes], member: str | None) -> list[bytes]:
        """The records of rows; the object's last row is not among them. `answers[i]` is the answer
        to row `first_row + i`.
        """
        record = self._format(member)
        return [record % (row, row, answer) for row, answer in enumerate(answers, first_row)]

    def last_row(self, row: int, answer: bytes, member: str | None, rows: int) -> bytes:
        """The record of the object's last row. `rows`: the object's row count."""
        return self._record(b"%d" % row, member, b"%d" % row, rows, answer)

    def rejected(
        self,
        first_row: int,
        rows: int,
        code: str,
        message: str,
        member: str | None,
        last_rows: int | None = None,
    ) -> list[bytes]:
        """The records of rows that have no prediction, all for the same reason. `last_rows`: the
        object's row count if the last of these rows is the object's last row; else None.
        """
        error = b'"prediction":null,"error":%b}' % failure(code, message)
        record = self._until_answer(member) + error.replace(b"%", b"%%")
        values = [record % (row, row) for row in range(first_row, first_row + rows)]
        if last_rows is not None:
            row = b"%d" % (first_row + rows - 1)
            values[-1] = self._record(row, member, row, last_rows, b"null", (code, message))
        return values

    def marker(self, rows: int, error: tuple[str, str] | None) -> bytes:
        """The record that ends an object if the object has no last row. `error`: the code and the
        message of a failure; None if there was no failure.
        """
        return self._record(b"-", None, b"null", rows, b"null", error)

    def result(self, rows: int, result: Result, error: tuple[str, str] | None) -> bytes:
        """The record of an object with this many rows whose answers are in a result object."""
        marker = self._record(b"-", None, b"null", rows, b"null", error)
        return b'%b,"result":%b}' % (marker[:-1], _encode(result))

    def duplicate(self, offset: int, object_index: int, row: int | None) -> bytes:
        """The marker of an object that was answered before, for an earlier message of the same
        partition. The arguments name the first of the earlier answers.
        """
        first = f"{self._input}/{offset}/{object_index}/{'-' if row is None else row}"
        marker = self.marker(0, None)
        return b'%b,"duplicate_of":%b}' % (marker[:-1], _encode(first))

    def _format(self, member: str | None) -> bytes:
        """The format string for the rows of one member. It is kept until the member changes."""
        if self._bulk is None or self._bulk[0] != member:
            self._bulk = (member, self._until_answer(member) + b'"prediction":%b}')
        return self._bulk[1]

    def _until_answer(self, member: str | None) -> bytes:
        """The part of a record before the answer, as a format string; the row's number is inserted
        twice.
        """
        head, between, tail = (
            part.replace(b"%", b"%%") for part in (self._id, self._until_row(member), self._tail)
        )
        return b"%b%%d%b%%d%b" % (head, between, tail)

    def _until_row(self, member: str | None) -> bytes:
        named = b"" if member is None else b',"member":%b' % _encode(encodable(member))
        return b'%b%b,"row":' % (self._before_row, named)

    def _record(
        self,
        id_end: bytes,
        member: str | None,
        row: bytes,
        last_rows: int | None,
        answer: bytes,
        error: tuple[str, str] | None = None,
    ) -> bytes:
        parts = [self._id, id_end, self._until_row(member), row]
        if last_rows is not None:
            parts.append(b',"last":true,"rows":%d' % last_rows)
        parts += (self._tail, b'"prediction":', answer)
        if error is not None:
            parts.append(b',"error":%b' % failure(*error))
        parts.append(b"}")
        return b"".join(parts)


def failure(code: str, message: str) -> bytes:
    """The JSON of an error in a record."""
    return _encode({"code": code, "message": printable(message)})


def as_text(text: str) -> bytes:
    """The JSON of a name in a record."""
    return _encode(encodable(text))


def as_json(value: EventTime) -> bytes:
    """The JSON of a time in a record."""
    return _encode(value)


def printable(message: str) -> str:
    """The text in a form that can always be encoded, cut to `MAX_MESSAGE_CHARS`."""
    if len(message) > MAX_MESSAGE_CHARS:
        message = message[: MAX_MESSAGE_CHARS - 1] + "…"
    return encodable(message)


def encodable(text: str) -> str:
    """The text with its lone surrogates replaced. Names that are not UTF-8 have lone surrogates."""
    return text if text.isascii() else text.encode(errors="replace").decode()
