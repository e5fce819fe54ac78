"""Tells from the head of an Arrow message whether its body is packed.

Rule: only the offsets on the way to that one field are read. Arrow has no switch against packed
bodies, and what it unpacks cannot be bounded. The head is a flatbuffer
(https://flatbuffers.dev/internals/): a table has, before its fields, the distance back to a list of
where the fields are. The tables are in Arrow's `format/Message.fbs`.
"""

import struct
from typing import Final

import pyarrow as pa

_DISTANCE: Final = struct.Struct("<i")
_OFFSET: Final = struct.Struct("<I")
_PLACE: Final = struct.Struct("<H")
# The fields of the tables by their places in `Message.fbs`, and the kinds of a message's header.
_HEADER_TYPE, _HEADER = 1, 2
_DICTIONARY, _BATCH = 2, 3
_DATA: Final = 1  # of a DictionaryBatch: the batch in it
_COMPRESSION: Final = 3  # of a RecordBatch


def is_packed(head: pa.Buffer) -> bool:
    """True if the message has a batch, of rows or of a dictionary, whose body is packed. Raises
    `ValueError` for a malformed head.
    """
    view = memoryview(head)
    try:
        message = _OFFSET.unpack_from(view, 0)[0]
        kind_at, table_at = _field(view, message, _HEADER_TYPE), _field(view, message, _HEADER)
        kind = view[kind_at] if kind_at else 0
        if kind not in (_DICTIONARY, _BATCH):
            return False
        table = _followed(view, table_at)
        if kind == _DICTIONARY:
            table = _followed(view, _field(view, table, _DATA))
        return _field(view, table, _COMPRESSION) != 0
    except (struct.error, IndexError) as error:
        raise ValueError(f"the head of an Arrow message: {error}") from error


def _field(view: memoryview, table: int, number: int) -> int:
    """Where a field of a table is; 0: the table has no such field."""
    places = table - _DISTANCE.unpack_from(view, table)[0]
    if places < 0:
        raise ValueError("the head of an Arrow message breaks off")
    at = 4 + 2 * number
    if at + 2 > _PLACE.unpack_from(view, places)[0]:
        return 0
    offset = _PLACE.unpack_from(view, places + at)[0]
    return table + offset if offset else 0


def _followed(view: memoryview, at: int) -> int:
    return at + int(_OFFSET.unpack_from(view, at)[0])
