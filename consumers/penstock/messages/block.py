"""The head of an Arrow block: the fields that all its rows have in common.

Rule: the head and a row's columns together are the record of that row, field by field; no field is
in both. Owner: the publish stage.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from penstock.messages.prediction import ObjectId, Source
from penstock.messages.reference import Count, OutputTime, decoder_of

# The key of the head in the metadata of the Arrow schema.
HEAD: Final = b"penstock.block"
# The key in the metadata of a block without rows. Its value is a record in JSON: a marker, or the
# record of a result.
RECORD: Final = b"penstock.record"


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


decode_head: Callable[[bytes], BlockHead] = decoder_of(BlockHead, "the head of a block")
