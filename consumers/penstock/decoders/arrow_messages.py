"""Looks at the heads of an Arrow stream's messages before Arrow does.

Rule: what a message says must take no more than the message has. Arrow unpacks bodies without a
bound; and any number of fields, names and columns may lie in the same bytes, so that a megabyte
says gigabytes. The writer that decoders use packs nothing and shares no bytes. A head is a
flatbuffer (https://flatbuffers.dev/internals/): a table has, before its fields, the distance back
to a list of where the fields are. The tables are in Arrow's `format/Message.fbs` and
`format/Schema.fbs`.
"""

import struct
from collections import deque
from collections.abc import Iterator
from typing import Final

import numpy as np

_FRAME: Final = struct.Struct("<Ii")
_CONTINUES: Final = 0xFFFFFFFF
_DISTANCE: Final = struct.Struct("<i")
_OFFSET: Final = struct.Struct("<I")
_PLACE: Final = struct.Struct("<H")
_LENGTH: Final = struct.Struct("<q")
# The fields of the tables by their places in the two files, and the kinds of a message's header.
_HEADER_TYPE, _HEADER, _BODY_LENGTH, _NOTES = 1, 2, 3, 4
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_DATA: Final = 1  # of a DictionaryBatch: the batch in it
_BUFFERS, _COMPRESSION = 2, 3  # of a RecordBatch
_FIELDS, _SCHEMA_NOTES = 1, 2  # of a Schema
_NAME, _KIND, _TYPE, _CHILDREN, _FIELD_NOTES = 0, 2, 3, 5, 6  # of a Field
# The types with more than numbers: the zone of a timestamp, and the codes of a union, 4 bytes each.
_TIMESTAMP, _UNION, _OF_TYPE = 10, 14, 1
_KEY, _VALUE = 0, 1  # of a note
# A field and a note have at least this much.
_LEAST_BYTES: Final = 16
# So many fields are looked at between two pauses, which takes some 5 ms.
_STEP_FIELDS: Final = 500
# Arrow writes no more levels.
_MOST_LEVELS: Final = 64
_MOST_NOTES: Final = 500
# The heads of schemas that were looked at lately, so that those of an object are looked at once.
_sound: Final[deque[bytes]] = deque(maxlen=64)
_MOST_KEPT_BYTES: Final = 256 << 10


def check(stream: memoryview) -> Iterator[None]:
    """Gives None between two steps of long work. Raises `ValueError` for a stream that is
    malformed, packed, or says more than it has.
    """
    at = 0
    try:
        while at < len(stream):
            mark, nbytes = _FRAME.unpack_from(stream, at)
            if mark != _CONTINUES or nbytes < 0:
                raise ValueError("no Arrow stream")
            if not nbytes:
                return
            at += _FRAME.size
            text = bytes(stream[at : at + nbytes])
            head = _Head(memoryview(text))
            at += nbytes + head.body_bytes
            if head.body_bytes < 0 or at > len(stream):
                raise ValueError("an Arrow message that breaks off")
            if head.kind != _SCHEMA:
                head.check_batch()
            elif text not in _sound:
                yield from head.check_schema()
                if nbytes <= _MOST_KEPT_BYTES:
                    _sound.append(text)
    except (struct.error, IndexError) as error:
        raise ValueError(f"the head of an Arrow message: {error}") from error


class _Head:
    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._message = self._followed(0)
        self._left_bytes = len(view)
        kind_at = self._field(self._message, _HEADER_TYPE)
        self.kind = view[kind_at] if kind_at else 0
        length_at = self._field(self._message, _BODY_LENGTH)
        self.body_bytes = int(_LENGTH.unpack_from(view, length_at)[0]) if length_at else 0

    def check_batch(self) -> None:
        batch = self._table(self._message, _HEADER)
        if self.kind == _DICTIONARY:
            batch = self._table(batch, _DATA)
        elif self.kind != _BATCH:
            raise ValueError(f"an Arrow message of the kind {self.kind}")
        if self._field(batch, _COMPRESSION):
            raise ValueError("a packed Arrow batch")
        at, count = self._list(batch, _BUFFERS)
        lengths = np.frombuffer(self._view[at : at + 16 * count], "<i8")[1::2]
        if len(lengths) != count:
            raise ValueError("an Arrow message that breaks off")
        # Each is compared, too: the sum of such large numbers may be a small one.
        is_less = (lengths >= 0) & (lengths <= self.body_bytes)
        if not is_less.all() or lengths.sum() > self.body_bytes:
            raise ValueError("Arrow columns that share their bytes")
        self._check_notes(self._message, _NOTES)

    def check_schema(self) -> Iterator[None]:
        schema = self._table(self._message, _HEADER)
        self._check_notes(self._message, _NOTES)
        self._check_notes(schema, _SCHEMA_NOTES)
        levels = [self._tables(schema, _FIELDS)]
        fields = 0
        while levels:
            field = next(levels[-1], None)
            if field is None:
                levels.pop()
                continue
            fields += 1
            if not fields % _STEP_FIELDS:
                yield
            self._check_field(field)
            levels.append(self._tables(field, _CHILDREN))
            if len(levels) > _MOST_LEVELS:
                raise ValueError(f"Arrow columns of more than {_MOST_LEVELS} levels")

    def _check_field(self, field: int) -> None:
        self._spend(_LEAST_BYTES + self._list(field, _NAME)[1])
        kind_at = self._field(field, _KIND)
        kind = self._view[kind_at] if kind_at else 0
        if kind in (_TIMESTAMP, _UNION):
            count = self._list(self._table(field, _TYPE), _OF_TYPE)[1]
            self._spend(count if kind == _TIMESTAMP else 4 * count)
        self._check_notes(field, _FIELD_NOTES)

    def _check_notes(self, table: int, field: int) -> None:
        if self._list(table, field)[1] > _MOST_NOTES:
            raise ValueError(f"Arrow columns with more than {_MOST_NOTES} notes")
        for note in self._tables(table, field):
            texts = self._list(note, _KEY)[1] + self._list(note, _VALUE)[1]
            self._spend(_LEAST_BYTES + texts)

    def _spend(self, nbytes: int) -> None:
        self._left_bytes -= nbytes
        if self._left_bytes < 0:
            raise ValueError("Arrow columns whose names share their bytes")

    def _tables(self, table: int, field: int) -> Iterator[int]:
        """The tables of a list."""
        at, count = self._list(table, field)
        return (self._followed(place) for place in range(at, at + 4 * count, 4))

    def _list(self, table: int, field: int) -> tuple[int, int]:
        """Where the items of a list, or the bytes of a text, begin, and how many they are."""
        at = self._field(table, field)
        if not at:
            return 0, 0
        start = self._followed(at)
        return start + 4, int(_OFFSET.unpack_from(self._view, start)[0])

    def _table(self, table: int, field: int) -> int:
        at = self._field(table, field)
        if not at:
            raise ValueError("the head of an Arrow message lacks a table")
        return self._followed(at)

    def _field(self, table: int, number: int) -> int:
        """Where a field of a table is; 0: the table has no such field."""
        places = table - _DISTANCE.unpack_from(self._view, table)[0]
        if places < 0:
            raise ValueError("the head of an Arrow message breaks off")
        at = 4 + 2 * number
        if at >= _PLACE.unpack_from(self._view, places)[0]:
            return 0
        offset = _PLACE.unpack_from(self._view, places + at)[0]
        return table + offset if offset else 0

    def _followed(self, at: int) -> int:
        return at + int(_OFFSET.unpack_from(self._view, at)[0])
