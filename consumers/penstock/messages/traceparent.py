"""Reads and writes W3C's `traceparent`.

Rule: a malformed header counts as absent; its record is never refused. The SDK's reader takes 7 µs
a message, so it is not used. Sources: W3C "Trace Context", section 3.2; CloudEvents, "Distributed
Tracing" extension.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

HEADER: Final = "traceparent"
_HEX: Final = b"0123456789abcdef"
_LENGTH: Final = 55
_DASH: Final = ord("-")
# If the last digit of the flags is one of these, their lowest bit, "sampled", is set.
_ODD: Final = b"13579bdf"
# The attributes of a CloudEvent are looked for only in messages up to this size, because longer
# messages carry rows.
MOST_EVENT_BYTES: Final = 65_536
_QUOTED: Final = b'"traceparent"'


class Caller(NamedTuple):
    """The span that caused a message. `is_sampled`: True if the service that made this span also
    records it.
    """

    trace_id: int
    span_id: int
    is_sampled: bool


class _TracedEvent(msgspec.Struct):
    specversion: str
    traceparent: str


_event: Final = msgspec.json.Decoder(_TracedEvent)


def in_headers(headers: Iterable[tuple[str, bytes | None]]) -> bytes | None:
    """The header's text, cut to what `read` needs, because it stays in memory with its record."""
    for name, text in headers:
        if name == HEADER:
            return text and text[: _LENGTH + 1]
    return None


def in_cloud_event(value: bytes | None) -> bytes | None:
    """The attribute `traceparent` of a CloudEvent in structured mode. The event may have been put
    into one value by `structured`.
    """
    if value is None or len(value) > MOST_EVENT_BYTES or _QUOTED not in value:
        return None
    try:
        return _event.decode(value).traceparent.encode()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def read(text: bytes) -> Caller | None:
    if len(text) != _LENGTH or text[:2] != b"00":
        # A header of a later version may be longer; if so, a dash stands before the additional
        # part.
        is_later = len(text) >= _LENGTH and text[:2] not in (b"00", b"ff")
        if not is_later or text[_LENGTH:][:1] not in (b"", b"-"):
            return None
        text = text[:_LENGTH]
    # Check here that there are only hexadecimal digits and three dashes, because `int` would also
    # accept blanks, signs and underscores.
    if text.translate(None, _HEX) != b"---" or not text[2] == text[35] == text[52] == _DASH:
        return None
    trace_id, span_id = int(text[3:35], 16), int(text[36:52], 16)
    if not trace_id or not span_id:
        return None
    return Caller(trace_id, span_id, text[54] in _ODD)


def written(caller: Caller) -> str:
    return f"00-{caller.trace_id:032x}-{caller.span_id:016x}-{caller.is_sampled:02x}"
