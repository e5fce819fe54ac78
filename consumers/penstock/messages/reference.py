"""The values of the input topic: a reference to an object, or a few rows inline.

Rule: an instance is always valid: to build a wrong one, from JSON or in code, raises `SchemaError`,
whose text says what to mend.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import force_setattr

from penstock.messages.times import (
    EARLIEST_MS,
    EPOCH,
    LATEST_MS,
    MAX_TIME_CHARS,
    NoTime,
    epoch_ms,
    read_time,
    same_time,
)

# Half open: [start, stop). If stop is None, the range reaches to the object's end.
RowRange = tuple[int, int | None]

EventTime = int | str
# The form of event times on all outputs; `output_time` makes it.
OutputTime = (
    Annotated[int, Meta(description="epoch milliseconds")]
    | Annotated[str, Meta(description="as it came: it could not be read as a time")]
)

# Row numbers and sizes must fit into signed integers of 64 bits, because readers in most languages
# use these.
MAX_INTEGER = (1 << 63) - 1

Milliseconds = Annotated[int, Meta(ge=EARLIEST_MS, le=LATEST_MS)]
Count = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
Stop = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]

# Attributes may nest this deep. Real attributes nest far less, and encoders and readers can handle
# far more.
MAX_DEPTH = 32

# Names are limited, because each record of an object repeats names and attributes, and must stay
# below the topic's limit (1 MB). S3's own limit for a key is 1,024 bytes.
MAX_NAME_CHARS = 4_096
MAX_ATTRIBUTES_BYTES = 64 << 10

# A dead letter has the ranges twice. One range has up to 41 characters, so these ranges take up to
# 0.17 MB each time. Everything else in the letter takes less than 0.4 MB.
MAX_RANGES = 4_096

Iso8601 = Annotated[str, Meta(max_length=MAX_TIME_CHARS)]

# S3's own limit for a version id; S3's entity tags have fewer than 100 characters.
MAX_VERSION_CHARS = 1_024
_VERSION_PATTERN = f"^[ -~]{{1,{MAX_VERSION_CHARS}}}$"
_VERSION = re.compile(_VERSION_PATTERN)
Version = Annotated[str, Meta(pattern=_VERSION_PATTERN)]

Ranges = Annotated[tuple[tuple[Count, Stop | None], ...], Meta(min_length=1, max_length=MAX_RANGES)]


class SchemaError(ValueError):
    """A value has none of the forms that it may have. The error's text says what is wrong and what
    was expected.
    """


class Reference(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One object to answer. Raises `SchemaError` if a name is empty, the time is bad, or rows are
    out of order.

    `store`: the name of a configured store, or the kind of the store as in the scheme of a URL
    (such as `gs`, or `az@account` with the account). `event_time`: as `read_time` reads it, made by
    `same_time`. `rows`: half-open ranges of the wanted rows, ascending and disjoint; None: all
    rows. `size`: in bytes. `etag`: as the sender wrote it, with or without quotes. `model`: the
    model that answers, if there are several; None: the routes choose the model.
    """

    bucket: Annotated[str, Meta(min_length=1)]
    key: Annotated[str, Meta(min_length=1)]
    store: str | None = None
    stream: str | None = None
    event_time: Milliseconds | Iso8601 | None = None
    version_id: Version | None = None
    etag: Version | None = None
    size: Count | None = None
    format: str | None = None
    compression: str | None = None
    rows: Ranges | None = None
    attributes: dict[str, Any] | None = None
    model: str | None = None

    def __post_init__(self) -> None:
        if not self.bucket or not self.key:
            raise SchemaError(
                f"a reference needs a {'key' if self.bucket else 'bucket'} that is not empty"
            )
        _check_text(self.bucket, self.key, self.store, self.stream, self.format, self.compression)
        _check_text(self.model)
        _check_version(self.version_id, self.etag)
        if self.event_time is not None:
            force_setattr(self, "event_time", _checked_time(self.event_time))
        if self.size is not None and not 0 <= self.size <= MAX_INTEGER:
            raise SchemaError(f"size {self.size} is not a number of bytes")
        if self.rows is not None:
            _check_rows(self.rows)
        if self.attributes is not None:
            _check_attributes(self.attributes)


class Inline(Struct, frozen=True, kw_only=True):
    """Rows that the message itself carries. Each of `rows` is the JSON text of one row, as it came.

    Raises `SchemaError` if the time is bad. `event_time`, `attributes` and `model` mean the same as
    in `Reference`.
    """

    rows: tuple[Raw, ...]
    stream: str | None = None
    event_time: Milliseconds | Iso8601 | None = None
    attributes: dict[str, Any] | None = None
    model: str | None = None

    def __post_init__(self) -> None:
        _check_text(self.stream, self.model)
        if self.event_time is not None:
            force_setattr(self, "event_time", _checked_time(self.event_time))
        if self.attributes is not None:
            _check_attributes(self.attributes)

    def body(self) -> bytes:
        """The rows as one JSON array, joined without encoding them again."""
        return b"[%b]" % b",".join(self.rows)


def _check_text(*texts: str | None) -> None:
    """Refuse texts with lone surrogates, because no message can carry these. Names that are not
    UTF-8 have lone surrogates.
    """
    for text in texts:
        if text and len(text) > MAX_NAME_CHARS:
            raise SchemaError(
                f"{text[:40]!a}... has {len(text)} characters, a name may have {MAX_NAME_CHARS}"
            )
        if text and not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise SchemaError(f"{text[:80]!a} is not UTF-8 and cannot be sent") from None


def _check_version(*versions: str | None) -> None:
    """Refuse versions with line breaks. A version is put into the head of a request, where a line
    break would begin a second request.
    """
    for version in versions:
        if version is not None and not _VERSION.fullmatch(version):
            raise SchemaError(
                f"{version[:40]!a} is not a version_id or etag: 1 to {MAX_VERSION_CHARS} printable "
                "ASCII characters"
            )


def time_of(origin: Reference | Inline | None) -> OutputTime | None:
    """The event time of a message, as all outputs write it."""
    event_time = origin.event_time if origin is not None else None
    return None if event_time is None else output_time(event_time)


def output_time(event_time: EventTime) -> OutputTime:
    """An event time as all outputs write it: epoch milliseconds if it can be read as a time, else
    unchanged.
    """
    time_ms = epoch_ms(event_time)
    return event_time if time_ms is None else time_ms


def day_of(event_time: EventTime) -> str:
    """The day of a time, in UTC. The time may be any number, because a Kafka record's time may be
    any number.
    """
    moment_ms = epoch_ms(event_time) if isinstance(event_time, str) else event_time
    moment_ms = min(max(moment_ms or 0, EARLIEST_MS), LATEST_MS)
    return (EPOCH + timedelta(milliseconds=moment_ms)).date().isoformat()


def _checked_time(event_time: EventTime) -> EventTime:
    """The time in a form that means the same in a dead letter, which is published again."""
    try:
        return same_time(read_time(event_time, in_message=True))
    except NoTime as why:
        raise SchemaError(f"event_time {event_time!r:.42} {why}") from None


def _check_rows(rows: tuple[RowRange, ...]) -> None:
    if not rows:
        raise SchemaError("rows selects nothing; leave it out to take all rows")
    if len(rows) > MAX_RANGES:
        raise SchemaError(
            f"rows has {len(rows)} ranges, one message may have {MAX_RANGES}; send several"
        )
    last = 0
    is_open = False
    for start, stop in rows:
        if is_open or start < last or (stop is not None and stop <= start):
            raise SchemaError(
                "rows must be half-open ranges [start, stop) of row numbers, ascending and "
                "disjoint; a stop of null (to the end) only in the last"
            )
        last = start if stop is None else stop
        is_open = stop is None
    if last > MAX_INTEGER:
        raise SchemaError(f"rows has a number above {MAX_INTEGER}")


def _check_attributes(attributes: dict[str, Any]) -> None:
    level: list[Any] = [attributes]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            break
    else:
        raise SchemaError(f"attributes nest deeper than {MAX_DEPTH} levels")
    nbytes = len(msgspec.json.encode(attributes))
    if nbytes > MAX_ATTRIBUTES_BYTES:
        raise SchemaError(
            f"attributes have {nbytes} bytes, at most {MAX_ATTRIBUTES_BYTES} are repeated with "
            "every row"
        )


def decoder_of(kind: Any, what: str) -> Callable[[bytes], Any]:
    """A function that decodes values of the type `kind`. If a value cannot be decoded, the function
    raises `SchemaError` with the text "not `what`".
    """
    decode = msgspec.json.Decoder(kind).decode

    def checked(value: bytes) -> Any:
        try:
            return decode(value)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise SchemaError(f"not {what}: {error}") from None

    return checked
