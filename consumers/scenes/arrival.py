"""A record of the prediction topic, as far as a scene needs it.

Rule: the answer stays the text that it is. Owner: the site that it is given to.
"""

from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from schemas.errors import SchemaError
from schemas.prediction import Source
from schemas.scene import NULL

# Where an object's marker stands among its rows: it is the last of what the object is answered by.
MARKER_ROW = 1 << 62
Position = tuple[int, int, int]


class _Record(Struct):
    id: str
    stream: str
    source: Source
    row: int | None
    prediction: Raw
    event_time: Raw = NULL
    error: Raw = NULL  # msgspec takes `Raw | None` for null only


class Answer(NamedTuple):
    """What a scene shows of a prediction, as JSON text; `error` None: it is no rejection."""

    event_time: Raw
    prediction: Raw
    error: Raw | None


class Arrival(Struct, array_like=True):
    """`position` (offset, object, row) rises within a `feed`, a stream's records of one partition
    of the input topic; a position that does not rise is a repeat. `time` is epoch milliseconds, or
    None if the record has none. `recorded_ms` is when Kafka got it. `is_empty`: the marker of an
    object without rows. `value` is the whole record.
    """

    id: str
    stream: str
    feed: str
    position: Position
    time: int | None
    recorded_ms: int
    is_empty: bool
    value: bytes


_decoder = msgspec.json.Decoder(_Record)


def read_arrival(value: bytes, recorded_ms: int) -> Arrival:
    """Raises `SchemaError` for what is no prediction."""
    try:
        record = _decoder.decode(value)
        event_time = msgspec.json.decode(record.event_time)
    except (msgspec.MsgspecError, ValueError, RecursionError) as failure:
        raise SchemaError(f"not a prediction: {failure}") from None
    source = record.source
    return Arrival(
        id=record.id,
        stream=record.stream,
        feed=f"{source.topic}/{source.partition}/{record.stream}",
        position=(source.offset, _object_index(record.id), _row(record.row)),
        time=epoch_ms(event_time),
        recorded_ms=recorded_ms,
        is_empty=record.row is None and record.error == NULL,
        value=value,
    )


def read_answer(value: bytes) -> Answer:
    """Of a value that `read_arrival` has read."""
    record = _decoder.decode(value)
    error = None if record.error == NULL else record.error
    return Answer(record.event_time, record.prediction, error)


def _object_index(id: str) -> int:
    """An id ends in object-index/row."""
    index = id.rsplit("/", 2)[-2:-1]
    return int(index[0]) if index and index[0].isdecimal() else 0


def _row(row: int | None) -> int:
    return MARKER_ROW if row is None else row


def epoch_ms(event_time: object) -> int | None:
    """Of epoch milliseconds or ISO-8601; a time without a zone is UTC."""
    if isinstance(event_time, bool):
        return None
    if isinstance(event_time, int):
        return event_time
    if not isinstance(event_time, str):
        return None
    try:
        when = datetime.fromisoformat(event_time)
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        return round(when.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
