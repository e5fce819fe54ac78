"""Bytes of the input topic to what they announce, and back.

Rule: the shape is recognised by its structure, never by a header; `SchemaError` is the only error. The common case, one reference, is
one typed decode.
"""

from typing import NamedTuple

import msgspec

from schemas.errors import SchemaError
from schemas.notifications import is_notification, references
from schemas.reference import Incoming, Inline, Reference

__all__ = ["Ignored", "Inline", "References", "SchemaError", "decode", "encode_reference"]

_incoming = msgspec.json.Decoder(Incoming)
_tree = msgspec.json.Decoder(dict)
_encoder = msgspec.json.Encoder()


class References(NamedTuple):
    """The objects a message names, in its order; at least one."""

    items: tuple[Reference, ...]


class Ignored(NamedTuple):
    """A notification that announces no new object."""


def decode(value: bytes | None) -> References | Inline | Ignored:
    """What a record announces. Raises `SchemaError` for everything that is none of the known forms."""
    if value is None:
        raise SchemaError("the record has no value")
    try:
        message = _incoming.decode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return _decode_other(value, f"not a reference: {error}")
    if isinstance(message.bucket, str) or isinstance(message.url, str):
        return References((message.reference(),))
    if not isinstance(message.objects, msgspec.UnsetType):
        return _several(message.objects)
    if not isinstance(message.inline, msgspec.UnsetType):
        return Inline(
            inline=tuple(msgspec.Raw(bytes(row)) for row in message.inline),
            stream=message.stream,
            event_time=message.event_time,
            attributes=message.attributes,
        )
    return _decode_other(value, "neither a reference (bucket and key) nor a notification")


def encode_reference(reference: Reference) -> bytes:
    """The value of a record that announces this object."""
    return _encoder.encode(reference)


def _several(raws: tuple[msgspec.Raw, ...]) -> References:
    if not raws:
        raise SchemaError("objects names no object")
    try:
        return References(tuple(_incoming.decode(raw).reference() for raw in raws))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise SchemaError(f"objects: {error}") from None


def _decode_other(value: bytes, why_not: str) -> References | Ignored:
    """Notifications have fields of the names of ours with other types, so they come second."""
    try:
        tree = _tree.decode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise SchemaError(why_not) from None
    if not is_notification(tree):
        raise SchemaError(why_not)
    items = tuple(references(tree))
    return References(items) if items else Ignored()
