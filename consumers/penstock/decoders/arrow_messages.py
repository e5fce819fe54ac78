"""Looks at the heads of an Arrow stream's messages before Arrow does.

Rule: what a message says must take no more than the message has. Arrow unpacks bodies without a
bound; any number of fields, names and columns may lie in the same bytes; and nulls take none: so a
megabyte could say gigabytes. The writer that decoders use packs nothing and shares no bytes. Before
version 26 Arrow reads what describes an extension by calls that go as deep as it does. A head is a
flatbuffer (https://flatbuffers.dev/internals/): a table has, before its fields, the distance back
to a list of where the fields are. The tables are in Arrow's `format/Message.fbs` and
`format/Schema.fbs`.
"""

import struct
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.rows.payload import schema_key

Numbers = npt.NDArray[np.int64]
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
_COLUMNS, _BUFFERS, _COMPRESSION = 1, 2, 3  # of a RecordBatch
_FIELDS, _SCHEMA_NOTES = 1, 2  # of a Schema
_NAME, _KIND, _TYPE, _PACKED, _CHILDREN, _FIELD_NOTES = 0, 2, 3, 4, 5, 6  # of a Field
# The types of which many values may be the same bytes, beside dictionaries: unions, runs, views.
_REPEATING: Final = frozenset((14, 22, 23, 24, 25, 26))
# Of these, the worker weighs all values at once: unions, runs, views of lists.
_SCATTERED: Final = frozenset((14, 22, 25, 26))
_SCATTERED_BYTES: Final = 8
# The types with more than numbers: the zone of a timestamp, and the codes of a union, 4 bytes each.
_TIMESTAMP, _UNION, _OF_TYPE = 10, 14, 1
_KEY, _VALUE = 0, 1  # of a note
# A field and a note have at least this much.
_LEAST_BYTES: Final = 16
_ID: Final = 0  # of a dictionary; two columns that Arrow writes have two
# So many fields and batches are looked at between two pauses, which takes some 5 ms.
_STEP_FIELDS: Final = 500
_STEP_BATCHES: Final = 100
# Arrow writes no more levels.
_MOST_LEVELS: Final = 64
_MOST_NOTES: Final = 500
_OF_EXTENSIONS: Final = b"ARROW:extension:"
_MOST_EXTENSION_BYTES: Final = 16 << 10
# A row that `limits.row_bytes` allows may have so many bytes in another form: numbers of a digit.
MOST_ROW_TIMES: Final = 8
# Batches of any rows may have so many values that take no bytes.
_FREE_VALUES: Final = 2 << 20  # tables are decoded in steps of 1 MiB, and a value counts one
# For the schemas that were looked at lately, the columns of which values may repeat, and how many
# bytes a value of theirs takes at least: those of an object are looked at once.
_sound: Final[dict[str, tuple[Numbers, int]]] = {}
_MOST_SOUND: Final = 64


class Found(NamedTuple):
    """`schema`: as `schema_key` says it. `repeating`: the places of the columns of which many
    values may be the same bytes, in any of their levels.
    """

    schema: str
    repeating: Numbers


def check(stream: memoryview, most_row_bytes: int) -> Generator[None, None, Found]:
    """Gives None between two steps of long work. Raises `ValueError` for a stream that is
    malformed, packed, or says more than it has. A batch may have `most_row_bytes` values in all its
    columns and levels, beside one for each byte. If values may repeat, the worker weighs each, so
    the batch and its dictionaries in sum may have only as many as `limits.row_bytes` allows, beside
    one for each byte; or, if they are weighed at once, for each 8 bytes.
    """
    most_values = max(most_row_bytes, _FREE_VALUES)
    most_weighed = max(most_row_bytes // MOST_ROW_TIMES, _FREE_VALUES)
    checked = Found("", np.empty(0, np.int64))
    at = batches = values = body_bytes = value_bytes = 0
    try:
        while at < len(stream):
            mark, nbytes = _FRAME.unpack_from(stream, at)
            if mark != _CONTINUES or nbytes < 0:
                raise ValueError("no Arrow stream")
            if not nbytes:
                break
            begin, at = at, at + _FRAME.size
            head = _BatchHead(stream[at : at + nbytes])
            at += nbytes
            if head.kind == _SCHEMA:
                if checked.schema:  # Arrow does not read on behind the batch
                    raise ValueError("two schemas in an Arrow stream")
                schema = schema_key(stream[begin:at])
                if schema not in _sound:
                    yield from head.check_schema()
                    least = _SCATTERED_BYTES if head.is_scattered else 1
                    _keep(schema, (np.array(head.repeating, np.int64), least))
                repeating, value_bytes = _sound[schema]
                checked = Found(schema, repeating)
            else:
                values += head.check_batch(most_values)
                body_bytes += head.body_bytes
                is_weighed = len(checked.repeating) > 0
                if is_weighed and values > most_weighed + body_bytes // value_bytes:
                    raise ValueError(f"{values} Arrow values that take no bytes and may repeat")
                batches += 1
                if not batches % _STEP_BATCHES:
                    yield
            at += head.body_bytes
            if head.body_bytes < 0 or at > len(stream):
                raise ValueError("an Arrow message that breaks off")
    except (struct.error, IndexError) as error:
        raise ValueError(f"the head of an Arrow message: {error}") from error
    return checked


def _keep(schema: str, found: tuple[Numbers, int]) -> None:
    if len(_sound) == _MOST_SOUND:
        del _sound[next(iter(_sound))]
    _sound[schema] = found


class _BatchHead:
    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._message = self._followed(0)
        self._left_bytes = len(view)
        self.repeating: list[int] = []
        self.is_scattered = False
        self._ids: set[int] = set()
        kind_at = self._field(self._message, _HEADER_TYPE)
        self.kind = view[kind_at] if kind_at else 0
        length_at = self._field(self._message, _BODY_LENGTH)
        self.body_bytes = int(_LENGTH.unpack_from(view, length_at)[0]) if length_at else 0

    def check_batch(self, most_values: int) -> int:
        """How many values the batch has in all its columns and levels."""
        batch = self._table(self._message, _HEADER)
        if self.kind == _DICTIONARY:
            batch = self._table(batch, _DATA)
        elif self.kind != _BATCH:
            raise ValueError(f"an Arrow message of the kind {self.kind}")
        if self._field(batch, _COMPRESSION):
            raise ValueError("a packed Arrow batch")
        if not self._is_within(self._pairs(batch, _BUFFERS)[1::2], self.body_bytes):
            raise ValueError("Arrow columns that share their bytes")
        values = self._pairs(batch, _COLUMNS)[::2]
        if not self._is_within(values, most_values + self.body_bytes):
            raise ValueError(f"Arrow columns of more than {most_values} values that take no bytes")
        self._check_notes(self._message, _NOTES)
        return int(values.sum())

    def _pairs(self, table: int, field: int) -> Numbers:
        at, count = self._list(table, field)
        ends = np.frombuffer(self._view[at : at + 16 * count], "<i8")
        if len(ends) != 2 * count:
            raise ValueError("an Arrow message that breaks off")
        return ends

    @staticmethod
    def _is_within(numbers: Numbers, most: int) -> bool:
        # Each is compared, too: the sum of such large numbers may be a small one.
        return bool(((numbers >= 0) & (numbers <= most)).all() and numbers.sum() <= most)

    def check_schema(self) -> Iterator[None]:
        schema = self._table(self._message, _HEADER)
        self._check_notes(self._message, _NOTES)
        self._check_notes(schema, _SCHEMA_NOTES)
        levels = [self._tables(schema, _FIELDS)]
        fields = 0
        column = -1
        while levels:
            field = next(levels[-1], None)
            if field is None:
                levels.pop()
                continue
            fields += 1
            if not fields % _STEP_FIELDS:
                yield
            column += len(levels) == 1
            self.is_scattered |= self._kind(field) in _SCATTERED
            if self._repeats(field) and column not in self.repeating[-1:]:
                self.repeating.append(column)
            self._check_field(field)
            levels.append(self._tables(field, _CHILDREN))
            if len(levels) > _MOST_LEVELS:
                raise ValueError(f"Arrow columns of more than {_MOST_LEVELS} levels")

    def _kind(self, field: int) -> int:
        at = self._field(field, _KIND)
        return self._view[at] if at else 0

    def _repeats(self, field: int) -> bool:
        return self._kind(field) in _REPEATING or self._field(field, _PACKED) > 0

    def _check_field(self, field: int) -> None:
        self._spend(_LEAST_BYTES + self._list(field, _NAME)[1])
        if self._field(field, _PACKED):
            at = self._field(self._table(field, _PACKED), _ID)
            number = _LENGTH.unpack_from(self._view, at)[0] if at else 0
            if number in self._ids:
                raise ValueError("Arrow columns that share a dictionary")
            self._ids.add(number)
        kind = self._kind(field)
        if kind in (_TIMESTAMP, _UNION):
            count = self._list(self._table(field, _TYPE), _OF_TYPE)[1]
            self._spend(count if kind == _TIMESTAMP else 4 * count)
        self._check_notes(field, _FIELD_NOTES)

    def _check_notes(self, table: int, field: int) -> None:
        if self._list(table, field)[1] > _MOST_NOTES:
            raise ValueError(f"Arrow columns with more than {_MOST_NOTES} notes")
        for note in self._tables(table, field):
            at, key_bytes = self._list(note, _KEY)
            value_bytes = self._list(note, _VALUE)[1]
            self._spend(_LEAST_BYTES + key_bytes + value_bytes)
            is_long = value_bytes > _MOST_EXTENSION_BYTES
            if is_long and bytes(self._view[at : at + key_bytes]).startswith(_OF_EXTENSIONS):
                raise ValueError("an Arrow extension with a long description")

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
