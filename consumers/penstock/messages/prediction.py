"""The output topic's values: Structs for readers, and the frame that writes records in bulk.

Rule: fields that are the same for a whole object are encoded once; for each row only its number and
its answer are inserted. The contract gives the order of fields. In an Arrow block, the head and the
columns of a row together are the row's record; no field is in both. Owner: the publish stage, which
has one frame for each object.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from penstock.messages.reference import Count, EventTime, OutputTime, decoder_of

# A server may answer with a whole traceback; a record must stay far below the topic's limit.
MAX_MESSAGE_CHARS = 1_000

# The most bytes that the row number (twice), the row count and the names of their fields take.
_NUMBERS_BYTES = 128


class Source(Struct, frozen=True):
    """The record of the input topic that this record answers."""

    topic: str
    partition: Count
    offset: Count


class ObjectId(Struct, frozen=True, omit_defaults=True):
    """The object that was read. `version`: its version id or entity tag, None if unknown; `store`:
    the store, as the reference named it.
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
    """Where an object's answers are written: `rows` of them, of which `errors` have no prediction.
    `version`: the result's version id or entity tag, None if unknown; `checksum`: the checksum of
    the result's bytes, as `sha256:` and hexadecimal digits.
    """

    url: str
    version: str | None
    bytes: Count
    rows: Count
    errors: Count
    checksum: str


class Prediction(Struct, kw_only=True):
    """One record of the output topic: a row's answer, the marker (`row` None) of an object, or the
    record (`row` None) whose `result` says where the object's answers are written.

    `row` counts from 0 over the whole object; `rows` is the object's row count; only the object's
    last record has `last` and `rows`. `object` is None for inline rows, and for a message that is
    not a reference. `prediction` is any JSON; if it is None and there is an `error`, the row was
    rejected. A marker with `duplicate_of` says that its object was announced before: the answers
    are those whose ids begin with the text of `duplicate_of`.
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
    """What the rows of a block have in common; all are of one object. A row's id is this `id`, a
    slash and its `row`. `last`: True if the last of these rows is the object's last row; then
    `rows` is the object's row count. `event_time`: the time of all rows that have none in the
    column `event_time`.
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


class RecordFrame:
    """Encodes the records of one object. Answers are JSON text and are inserted as they are.

    `object_index` counts the objects of one message; `bucket` None: there is no object. A row costs
    0.16 µs. Joining its parts costs the same; f-strings, and formatting whole blocks, cost 2.5
    times that.
    """

    __slots__ = ("_before_row", "_bulk", "_id", "_input", "_tail")

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        offset: int,
        object_index: int,
        stream: str,
        bucket: str | None,
        key: str | None,
        version: str | None,
        event_time: EventTime | None,
        attributes: dict[str, Any] | None,
        model: str,
        model_version: str | None,
        store: str | None = None,
    ) -> None:
        about = None
        if bucket is not None and key is not None:
            about = {"bucket": encodable(bucket), "key": encodable(key), "version": version}
            if store is not None:
                about["store"] = encodable(store)
        self._input = f"{topic}/{partition}"
        # The row number ends the id, so the text after it begins with the closing quote.
        self._id = b'{"v":1,"id":' + _encode(f"{topic}/{partition}/{offset}/{object_index}/")[:-1]
        self._before_row = b'","stream":%b,"source":%b,"object":%b' % (
            _encode(encodable(stream)),
            _encode({"topic": topic, "partition": partition, "offset": offset}),
            _encode(about),
        )
        tail = {
            "event_time": event_time,
            "attributes": attributes,
            "model": model,
            "model_version": model_version,
        }
        self._tail = b",%b," % _encode({k: v for k, v in tail.items() if v is not None})[1:-1]
        self._bulk: tuple[str | None, bytes] | None = None

    @property
    def nbytes(self) -> int:
        """An upper bound for a record's bytes, without its answer and its member."""
        return len(self._id) + len(self._before_row) + len(self._tail) + _NUMBERS_BYTES

    def head(self, last_rows: int | None) -> bytes:
        """The head of an Arrow block: `BlockHead` in JSON. `last_rows`: the object's row count if
        the last row of the block is the object's last row; else None.
        """
        end = b"" if last_rows is None else b',"last":true,"rows":%d' % last_rows
        return b"%b%b%b%b}" % (self._id[:-1], self._before_row, end, self._tail[:-1])

    def rows(self, first_row: int, answers: Sequence[bytes], member: str | None) -> list[bytes]:
        """Records of rows before the object's last one; `answers[i]` is the answer to row
        `first_row + i`.
        """
        record = self._format(member)
        return [record % (row, row, answer) for row, answer in enumerate(answers, first_row)]

    def last_row(self, row: int, answer: bytes, member: str | None, rows: int) -> bytes:
        """The object's last record; `rows` is the object's row count."""
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
        """Records of rows without prediction, all for one reason. `last_rows`: the object's row
        count if the last of these rows is the object's last row; else None.
        """
        error = b'"prediction":null,"error":%b}' % failure(code, message)
        record = self._until_answer(member) + error.replace(b"%", b"%%")
        values = [record % (row, row) for row in range(first_row, first_row + rows)]
        if last_rows is not None:
            row = b"%d" % (first_row + rows - 1)
            values[-1] = self._record(row, member, row, last_rows, b"null", (code, message))
        return values

    def marker(self, rows: int, error: tuple[str, str] | None) -> bytes:
        """The record that ends an object if no last row does. `error`: (code, message) of a
        failure; None: there was none.
        """
        return self._record(b"-", None, b"null", rows, b"null", error)

    def result(self, rows: int, result: Result, error: tuple[str, str] | None) -> bytes:
        """The record of an object with this many rows whose answers are in a result object."""
        marker = self._record(b"-", None, b"null", rows, b"null", error)
        return b'%b,"result":%b}' % (marker[:-1], _encode(result))

    def duplicate(self, offset: int, object_index: int, row: int | None) -> bytes:
        """The marker of an object that was answered before, by the same partition; the arguments
        name the first of the earlier answers.
        """
        first = f"{self._input}/{offset}/{object_index}/{'-' if row is None else row}"
        marker = self.marker(0, None)
        return b'%b,"duplicate_of":%b}' % (marker[:-1], _encode(first))

    def _format(self, member: str | None) -> bytes:
        """The bulk format for rows of a member, kept until the member changes."""
        if self._bulk is None or self._bulk[0] != member:
            self._bulk = (member, self._until_answer(member) + b'"prediction":%b}')
        return self._bulk[1]

    def _until_answer(self, member: str | None) -> bytes:
        """The record up to the answer, as a format that takes the row's number twice."""
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
    """The text with its lone surrogates replaced, which names have that are not UTF-8."""
    return text if text.isascii() else text.encode(errors="replace").decode()
