"""A prediction that has arrived: the fields of its record that a scene needs.

Rule: the answer stays JSON text. A record that no worker can have written is refused.
"""

from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from penstock.messages.prediction import Source
from penstock.messages.reference import MAX_INTEGER, MAX_NAME_CHARS, Count, SchemaError
from penstock.messages.scene import NULL
from penstock.messages.times import epoch_ms

# The row number that an object's marker gets, so that it stands after all rows of the object.
MARKER_ROW = 1 << 62
# The longest id. An id has a topic's name (at most 249 characters) and four numbers.
MAX_ID_CHARS = 512
Position = tuple[int, int, int]


class _ArrivedRecord(Struct):
    id: str
    stream: str
    source: Source
    row: Count | None
    prediction: Raw
    model: str = ""
    event_time: Raw = NULL
    error: Raw = NULL  # not `Raw | None`: msgspec would then accept only null


class ShownAnswer(NamedTuple):
    """The part of a prediction that a scene shows, as JSON text. `error`: the error of a rejection;
    None for any other prediction.
    """

    prediction: Raw
    error: Raw | None


class Arrival(Struct, array_like=True):
    """`feed`: the input topic, the partition and the stream, as one name. Within a feed and for one
    model, `position` (offset, object, row) rises, so a record whose position does not rise is a
    repeat. `time`: epoch milliseconds; None: the record has no time. `recorded_ms`: when Kafka got
    the record. `is_empty`: True if the record is the marker of an object without rows. `is_error`:
    True if the record is a rejection. `value`: the whole record; empty if it was too large to be
    kept.
    """

    id: str
    stream: str
    feed: str
    position: Position
    time: int | None
    recorded_ms: int
    is_empty: bool
    value: bytes
    model: str = ""
    is_error: bool = False


_decoder = msgspec.json.Decoder(_ArrivedRecord)


def read_arrival(value: bytes, recorded_ms: int) -> Arrival:
    """Decode the fields that a scene needs. Raises `SchemaError` if the value is not a
    prediction.
    """
    try:
        record = _decoder.decode(value)
        if not value.isascii():
            value.decode()  # the decoder does not check UTF-8 in undecoded parts
        event_time = msgspec.json.decode(record.event_time)
        source = record.source
        position = (source.offset, _object_index(record.id), _row(record.row))
    except (msgspec.MsgspecError, ValueError, RecursionError) as failure:
        raise SchemaError(f"not a prediction: {failure}") from None
    if (
        len(record.id) > MAX_ID_CHARS
        or len(record.stream) > MAX_NAME_CHARS
        or len(record.model) > MAX_NAME_CHARS
        or len(source.topic) > MAX_NAME_CHARS
    ):
        raise SchemaError("not a prediction: its id or a name in it is too long")
    return Arrival(
        id=record.id,
        stream=record.stream,
        feed=f"{source.topic}/{source.partition}/{record.stream}",
        position=position,
        time=epoch_ms(event_time),
        recorded_ms=recorded_ms,
        is_empty=record.row is None and record.error == NULL,
        value=value,
        model=record.model,
        is_error=record.error != NULL,
    )


def read_answer(value: bytes) -> ShownAnswer:
    """The answer in a value that `read_arrival` has read."""
    record = _decoder.decode(value)
    return ShownAnswer(record.prediction, None if record.error == NULL else record.error)


def without_answer(arrival: Arrival) -> Arrival:
    """The arrival without its answer, for a record that would be too large with the answer."""
    if not arrival.value:
        return arrival
    return replace(arrival, value=b"", is_error=read_answer(arrival.value).error is not None)


def _object_index(id: str) -> int:
    """The index of the object in its message. In an id, the index stands before the row. If the id
    has another form, the index is 0. Raises `ValueError` if the number is too large.
    """
    index = id.rsplit("/", 2)[-2:-1]
    if not index or not index[0].isdecimal():
        return 0
    number = int(index[0])
    if number > MAX_INTEGER:
        raise ValueError(f"an object index of {len(index[0])} digits")
    return number


def _row(row: int | None) -> int:
    return MARKER_ROW if row is None else row
