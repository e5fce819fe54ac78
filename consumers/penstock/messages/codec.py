"""Decodes and encodes the values of the input topic.

Rule: the form is recognised by structure alone, and `decode` raises only `SchemaError`. A value
without any field of our own forms is tried as a notification.
"""

import re
from collections.abc import Generator, Iterable
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.messages.cloud_events import cloud_event, is_of_cloud, of_cloud_event
from penstock.messages.notifications import MAX_WRAPPINGS, events_of
from penstock.messages.reference import EventTime, Inline, Reference, RowRange, SchemaError
from penstock.messages.urls import split_url

# The magic byte of Confluent's serializers, and the schema's number, which has four bytes.
_MAGIC_BYTES: Final = 5
# A lone surrogate, as JavaScript's and Java's encoders write names that are no Unicode.
_HALF_PAIR: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_PLAIN: Final = "write it plain, and let Kafka compress (compression.type)"
# What begins like this, and what to do about it.
_BEGINNINGS: Final = {
    b"\xef\xbb\xbf": "begins with a byte order mark; write UTF-8 without one",
    b"\xff\xfe": "is UTF-16; write UTF-8",
    b"\xfe\xff": "is UTF-16; write UTF-8",
    b"\x1f\x8b": f"is gzip; {_PLAIN}",
    b"\x28\xb5\x2f\xfd": f"is zstd; {_PLAIN}",
    b"\x04\x22\x4d\x18": f"is lz4; {_PLAIN}",
    b"\xff\x06\x00\x00sNaPpY": f"is snappy; {_PLAIN}",
    b"\x82SNAPPY": f"is snappy; {_PLAIN}",
    b"Obj\x01": "is a file of Avro; put it into the store, and send a reference to it",
    b"PAR1": "is a file of Parquet; put it into the store, and send a reference to it",
    b"\xac\xed\x00\x05": "is an object of Java's serialization; write JSON",
    b"<": "is XML or HTML; write JSON",
}


def said_of(value: bytes) -> str | None:
    """The end of a sentence about the value; None: nothing is recognised."""
    if not value.strip():
        return "is empty; a message is a JSON object"
    for beginning, words in _BEGINNINGS.items():
        if value.startswith(beginning):
            return words
    if value[:1] == b"\0" and len(value) > _MAGIC_BYTES and value[1:2] == b"\0":
        number = int.from_bytes(value[1:_MAGIC_BYTES])
        return (
            f"begins with the magic byte of a schema registry (schema {number}): it is Avro, "
            "Protobuf or JSON Schema; write plain JSON, with a serializer of strings or bytes"
        )
    if value[1:2] == b"\0" or value[:1] == b"\0":
        return "is UTF-16 without a byte order mark, or binary; write JSON in UTF-8"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "is not UTF-8: Avro, Protobuf, or text in another charset; write JSON in UTF-8"
    if text.lstrip().startswith('"'):
        return "is a JSON text with something in it: it was encoded twice; write the object itself"
    if "://" in text[:20] and not text.lstrip().startswith(("{", "[")):
        return 'is a URL by itself; write {"url": "..."}'
    if half := _HALF_PAIR.search(text):
        return f"has half of a surrogate pair ({half[0]}), which no text has; send names in UTF-8"
    return None


__all__ = [
    "Ignored",
    "Inline",
    "References",
    "SchemaError",
    "decode",
    "encode_reference",
]


class References(NamedTuple):
    """The objects that one message names, in the order of their answers; there is at least one.
    `announced`: True if the store of the objects sent the message. If so, the message's Kafka key
    is the name of an object, and not of a stream. `ignored`: the kinds of the events in it that
    make no work.
    """

    items: tuple[Reference, ...]
    announced: bool = False
    ignored: tuple[str, ...] = ()


class Ignored(NamedTuple):
    """A notification that announces no new object, and so gets no answer. `ignored`: the kinds of
    its events.
    """

    ignored: tuple[str, ...] = ()


class _Fields(Struct):
    """A reference as people write it: by bucket and key, or by url."""

    bucket: str | None = None
    key: str | None = None
    url: str | None = None
    store: str | None = None
    stream: str | None = None
    event_time: EventTime | None = None
    version_id: str | None = None
    etag: str | None = None
    size: int | str | None = None  # Google writes it as a string
    format: str | None = None
    compression: str | None = None
    rows: tuple[RowRange, ...] | None = None
    attributes: dict[str, Any] | None = None
    model: str | None = None


class _Message(_Fields):
    specversion: str | UnsetType = UNSET
    objects: tuple[_Fields, ...] | UnsetType = UNSET
    inline: tuple[Raw, ...] | UnsetType = UNSET


class _OtherNames(Struct):
    """Fields that only a notification has. They are looked for if a message has a `bucket` but no
    `key`.
    """

    kind: str | UnsetType = UNSET
    action: str | UnsetType = UNSET


_decoder = msgspec.json.Decoder(_Message)
_other_names = msgspec.json.Decoder(_OtherNames)
_batch_decoder = msgspec.json.Decoder(list[Raw])
_encoder = msgspec.json.Encoder()


# What a message names may be many thousand objects. Behind so many of them others have a turn.
PIECE_OBJECTS: Final = 500
Decoding = Generator[None, None, References | Inline | Ignored]


def decode(value: bytes | None) -> References | Inline | Ignored:
    """The objects or rows that a value of the input topic names. Raises `SchemaError` if the value
    names none.
    """
    pieces = decoding(value)
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            found: References | Inline | Ignored = end.value
            return found


def decoding(value: bytes | None) -> Decoding:
    """Like `decode`, in pieces."""
    if value is None:
        raise SchemaError("the message has no value (a tombstone)")
    try:
        return (yield from _decode(value))
    except SchemaError:
        raise
    except RecursionError:
        raise SchemaError("the JSON is nested too deeply") from None
    except (msgspec.MsgspecError, ValueError) as error:
        words = said_of(value)
        raise SchemaError(f"the message {words}" if words else str(error)) from None


def encode_reference(reference: Reference) -> bytes:
    """A value for the input topic, from which `decode` makes an equal reference."""
    return _encoder.encode(reference)


def _decode(value: bytes, wrappings: int = 0) -> Decoding:
    if wrappings > MAX_WRAPPINGS:
        raise SchemaError(f"messages wrapped more than {MAX_WRAPPINGS} times")
    if value[:64].lstrip().startswith(b"["):
        return (yield from _batch(value, wrappings))
    message = _decoder.decode(value)
    if message.specversion is not UNSET:
        return (yield from _from_cloud_event(value, wrappings))
    # Notifications of other clouds have a `bucket`, like references, but their field for the key
    # has another name.
    named = message.bucket is not None and _is_reference(message, value)
    names_one = named or message.key is not None or message.url is not None
    if names_one + (message.objects is not UNSET) + (message.inline is not UNSET) > 1:
        raise SchemaError("one message is either a reference, or objects, or inline rows")
    if names_one:
        return References((_reference(message),))
    if message.objects is not UNSET:
        if not message.objects:
            raise SchemaError("objects names no object")
        references: list[Reference] = []
        for number, fields in enumerate(message.objects, 1):
            references.append(_reference(fields))
            if not number % PIECE_OBJECTS:
                yield
        return References(tuple(references))
    if message.inline is not UNSET:
        return _inline(message, message.inline, value)
    return _announced(events_of(value))


def _announced(events: Iterable[Reference | str]) -> References | Ignored:
    references: list[Reference] = []
    ignored: list[str] = []
    for event in events:
        if isinstance(event, str):
            ignored.append(event)
        else:
            references.append(event)
    if references:
        return References(tuple(references), announced=True, ignored=tuple(ignored))
    return Ignored(tuple(ignored))


def _is_reference(message: _Message, value: bytes) -> bool:
    if message.key is not None:
        return True
    other = _other_names.decode(value)
    return other.kind is UNSET and other.action is UNSET


def _batch(value: bytes, wrappings: int) -> Decoding:
    """Several events in one message: Event Grid and batches of CloudEvents come as arrays."""
    items: list[Reference | str] = []
    events = _batch_decoder.decode(value)
    if not events:
        raise SchemaError(
            "an empty array announces nothing; a message is an object, or an array of events"
        )
    for number, event in enumerate(events, 1):
        if not number % PIECE_OBJECTS:
            yield
        inner = yield from _decode(bytes(event), wrappings + 1)
        if isinstance(inner, Inline):
            raise SchemaError("inline rows must be a message of their own")
        if isinstance(inner, References):
            if not inner.announced:
                raise SchemaError('write several references as {"objects": [...]}')
            items += inner.items
        items += inner.ignored
    return _announced(items)


def _from_cloud_event(value: bytes, wrappings: int) -> Decoding:
    event = cloud_event(value)
    if not is_of_cloud(event):
        return (yield from _decode(event.body, wrappings + 1))
    return _announced(of_cloud_event(event))


def _reference(fields: _Fields) -> Reference:
    store, bucket, key = fields.store, fields.bucket, fields.key
    if fields.url is not None:
        if bucket is not None or key is not None:
            raise SchemaError("a reference has either bucket and key, or url")
        by_url, bucket, key = split_url(fields.url)
        store = store or by_url
    if bucket is None or key is None:
        raise SchemaError(f"a reference needs a {'bucket' if bucket is None else 'key'}")
    if isinstance(fields.size, str):
        raise SchemaError("size is a number of bytes, not a text")
    return Reference(
        bucket=bucket,
        key=key,
        store=store or None,
        stream=fields.stream,
        event_time=fields.event_time,
        # Stores send an empty version for a bucket without versions.
        version_id=fields.version_id or None,
        etag=fields.etag or None,
        size=fields.size,
        format=fields.format,
        compression=fields.compression,
        rows=fields.rows,
        attributes=fields.attributes,
        model=fields.model or None,
    )


def _inline(message: _Message, rows: tuple[Raw, ...], value: bytes) -> Inline:
    value.decode()  # rows stay undecoded, so their UTF-8 must be checked here
    return Inline(
        rows=rows,
        stream=message.stream,
        event_time=message.event_time,
        attributes=message.attributes,
        model=message.model or None,
    )
