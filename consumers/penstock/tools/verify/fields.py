"""Compares the fields of a record or a dead letter with those of its reference.

Rule: 32 bytes are kept for each object asked for: a checksum of each field, and the time. A record
too large for its topic may leave fields out, but one that is there must be right.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec

from penstock.core.routing.stream_keys import KeyTimes, StreamNames, fallback, key_text
from penstock.messages.codec import Inline, References
from penstock.messages.prediction import ObjectId, encodable
from penstock.messages.reference import EventTime, output_time
from penstock.messages.times import LATEST_MS
from penstock.tools.verify.scope_and_input_topic import Message, ObjectAt, Scope

_NO_TIME: Final = LATEST_MS + 1
# If a record would be too large, its stream name is cut to this many characters.
_SHORT_CHARS: Final = 200
_SUMS: Final = 4


class Fields(NamedTuple):
    """The fields of a reference, a record or a letter. `model`: in a reference, the model that it
    names; in a record or a letter, the model that answered.
    """

    object: tuple[str, str, str | None] | None
    stream: str
    event_time: EventTime | None
    attributes: dict[str, Any] | None
    model: str | None


def named(about: ObjectId | None) -> tuple[str, str, str | None] | None:
    return (about.bucket, about.key, about.store) if about else None


def asked_of(
    message: Message, key: bytes | None, partition: int, naming: StreamNames, times: KeyTimes
) -> Iterator[Fields]:
    """For each object of a message: the fields that the answers about it must have."""
    if message is None:
        yield Fields(None, fallback(key, partition), None, None, None)
    elif isinstance(message, Inline):
        stream = encodable(message.stream or fallback(key, partition))
        yield Fields(None, stream, message.event_time, message.attributes, message.model)
    elif isinstance(message, References):
        name = "" if message.announced else key_text(key)
        for item in message.items:
            about = (encodable(item.bucket), encodable(item.key), item.store)
            stream = encodable(naming.of(item, name))
            yield Fields(about, stream, times.timed(item).event_time, item.attributes, item.model)


class AskedFields:
    """The fields that one input partition asks for. `times_of_rows`: True if rows may have times of
    their own (`rows.time`).
    """

    def __init__(self, *, times_of_rows: bool, models: frozenset[str]) -> None:
        self._times_of_rows = times_of_rows
        self._models = models
        self._offsets = array("q")
        self._times = array("q")
        self._sums = array("I")

    @classmethod
    def of(cls, scope: Scope) -> dict[int, "AskedFields"]:
        """For each input partition of the scope: an empty `AskedFields`."""
        return {
            partition: cls(times_of_rows=scope.times_of_rows, models=scope.models)
            for partition in scope.spans
        }

    def add(self, offset: int, asked: Iterator[Fields]) -> None:
        """Note the fields that a message asks for. Must be called in offset order."""
        for expected in asked:
            self._offsets.append(offset)
            self._times.append(_time(expected.event_time))
            model = expected.model if expected.model in self._models else None
            self._sums.extend(
                map(_sum, (expected.object, expected.stream, expected.attributes, model))
            )

    def wrong(self, at: ObjectAt, fields: Fields, *, less: bool, row: int | None = None) -> str:
        """A text that names the fields which differ from those that were asked for; empty if none
        differs. `less`: True if fields may be missing.
        """
        place = bisect_left(self._offsets, at.offset) + at.object_index
        about, stream, attributes, model = self._sums[_SUMS * place : _SUMS * (place + 1)]
        is_short = less and fields.object is None
        is_cut = is_short and len(fields.stream) == _SHORT_CHARS
        differences = {
            "object": is_short or _sum(fields.object) == about,
            "stream": _sum(fields.stream) == stream or is_cut,
            "attributes": _sum(fields.attributes) == attributes
            or (less and fields.attributes is None),
            "model": model in (_NO_SUM, _sum(fields.model)),
            "event_time": self._is_time(self._times[place], fields.event_time, less=less, row=row),
        }
        return ", ".join(
            f"{name} {getattr(fields, name)!r}"
            for name, is_right in differences.items()
            if not is_right
        )

    def _is_time(
        self, asked_ms: int, time_said: EventTime | None, *, less: bool, row: int | None
    ) -> bool:
        """True if this is the time that was asked for. A later time is also right for a row of
        video or audio, because there each row adds the time since the beginning. A record does not
        tell whether its object is video or audio, so we accept later times in every row.
        """
        if (less and time_said is None) or (self._times_of_rows and row is not None):
            return True
        said_ms = _time(time_said)
        is_later = row is not None and asked_ms != _NO_TIME and asked_ms <= said_ms <= LATEST_MS
        return said_ms == asked_ms or is_later


def _time(event_time: EventTime | None) -> int:
    """The time as a number. If the time is missing, or the text is not a time, the number is higher
    than that of any time.
    """
    time_json = None if event_time is None else output_time(event_time)
    if time_json is None:
        return _NO_TIME
    return time_json if isinstance(time_json, int) and abs(time_json) < _NO_TIME else _NO_TIME + 1


def _sum(field: Any) -> int:
    return crc32(msgspec.json.encode(field, order="deterministic"))


_NO_SUM: Final = _sum(None)
