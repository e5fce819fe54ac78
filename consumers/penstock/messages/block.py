"""What rows that travel as one Arrow block have in common.

Rule: with a row's columns it is the record of that row, field by field; nothing is said twice.
Owner: the publish stage.
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from penstock.messages.errors import SchemaError
from penstock.messages.prediction import ObjectId, Source
from penstock.messages.reference import Count, OutputTime

# Where it stands in the metadata of the Arrow schema.
HEAD: Final = b"penstock.block"
# A block without rows has a record there, as it is in JSON: a marker, or the record of a result.
RECORD: Final = b"penstock.record"


class BlockHead(Struct, kw_only=True):
    """Of rows of one object. A row's id is this `id`, a slash and its `row`. `last`: the last of
    these rows is the object's last; `rows` is the object's row count then. A row with an
    `event_time` in its columns has that one.
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


_decoder = msgspec.json.Decoder(BlockHead)


def decode_head(value: bytes) -> BlockHead:
    """Decode a head. Raises `SchemaError` if the value is not one."""
    try:
        return _decoder.decode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SchemaError(f"not the head of a block: {error}") from None
