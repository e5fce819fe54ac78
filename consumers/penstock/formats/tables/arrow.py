"""Reads Arrow IPC, batch by batch: a file (Feather) by its footer, a stream from its beginning.

Rule: the needed columns of a batch are checked in full before their values are touched, because the
library trusts bytes that may be hostile. Only values that cannot be, such as texts that are not
UTF-8, pass, because each is bad in its own row. Only a batch itself tells how many rows it has, so
unwanted rows are decoded, too. Layout: Arrow Columnar Format, "Serialization and Interprocess
Communication".
"""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from penstock.errors import Poison
from penstock.formats.first_bytes import no_such
from penstock.formats.runs import RowOptions, Run, check_rows
from penstock.formats.source import ObjectSource, SourceFile, Wanted
from penstock.formats.tables.batches import TableReader, unreadable

FILE_MAGIC: Final = b"ARROW1"
_FEATHER_1: Final = b"FEA1"
_CONTINUATION: Final = b"\xff\xff\xff\xff"
# This many first bytes are enough for `looks`, and for an error that shows them.
_HEAD_BYTES: Final = 128
# To unpack buffers, the library starts threads by default, which a full system refuses. (For the
# footer of a file it starts some in any case.)
_OPTIONS: Final = pa.ipc.IpcReadOptions(use_threads=False)
# The errors that the library raises for damaged data.
_UNREADABLE: Final = (pa.ArrowException, OSError, ValueError, KeyError, EOFError)
# Types that cannot have every value, and for each of them a type of the same layout that can.
_STORED: Final = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
    pa.time32("s"): pa.int32(),
    pa.time32("ms"): pa.int32(),
    pa.time64("us"): pa.int64(),
    pa.time64("ns"): pa.int64(),
    pa.date64(): pa.int64(),
}
_LISTS: Final = {
    pa.lib.Type_LIST: pa.list_,
    pa.lib.Type_LARGE_LIST: pa.large_list,
    pa.lib.Type_LIST_VIEW: pa.list_view,
    pa.lib.Type_LARGE_LIST_VIEW: pa.large_list_view,
}


def looks(head: bytes) -> bool:
    return head.startswith((FILE_MAGIC, _FEATHER_1)) or (
        head.startswith(_CONTINUATION) and head[6:8] == b"\0\0"
    )


def read_arrow(ranges: ObjectSource, options: RowOptions, wanted: Wanted) -> Iterator[Run]:
    head = ranges.read(0, _HEAD_BYTES)
    if head.startswith(_FEATHER_1):
        raise Poison("bad_format", "Feather of version 1 is not read; write version 2")
    try:
        of = _of_file if head.startswith(FILE_MAGIC) else _of_streams
        yield from _rows(ranges, of(ranges), options)
    except _UNREADABLE as error:
        if not looks(head):
            raise no_such("Arrow data", head) from error
        raise unreadable("the Arrow data", error) from error


def _file(file: SourceFile) -> Any:
    return pa.PythonFile(file, mode="r")


def _of_file(ranges: ObjectSource) -> Iterator[Any]:
    with pa.ipc.open_file(_file(SourceFile(ranges)), options=_OPTIONS) as reader:
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


def _of_streams(ranges: ObjectSource) -> Iterator[Any]:
    file = SourceFile(ranges)
    schema: Any = None
    while schema is None or file.tell() < ranges.size:
        begin = file.tell()
        with pa.ipc.open_stream(_file(file), options=_OPTIONS) as reader:
            if schema is not None and not reader.schema.equals(schema):
                raise ValueError(f"the stream that begins at byte {begin} has another schema")
            schema = reader.schema
            yield from reader


def _rows(ranges: ObjectSource, batches: Iterator[Any], options: RowOptions) -> Iterator[Run]:
    table: TableReader | None = None
    stored: list[Any] = []
    read = 0
    try:
        for batch in batches:
            check_rows(batch.num_rows, ranges.size, options)
            if table is None:
                table = TableReader(batch.schema, options, ranges.size)
                stored = [_stored(batch.schema.field(name).type) for name in table.names]
            needed = batch.select(table.names)
            for column, kind in zip(needed.columns, stored, strict=True):
                column.view(kind).validate(full=True)
            yield from table.runs(needed)
            read += 1
    except _UNREADABLE as error:
        if not read:
            raise
        raise unreadable(f"batch {read} of the Arrow data", error) from error


def _stored(kind: Any) -> Any:
    """The type of the same layout that can have every value."""
    types = pa.types
    if kind in _STORED:
        return _STORED[kind]
    if types.is_decimal(kind):
        return pa.binary(kind.byte_width)
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _stored(kind.value_type), kind.ordered)
    if types.is_struct(kind):
        return pa.struct([field.with_type(_stored(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_stored(kind.key_type), _stored(kind.item_type))
    if types.is_fixed_size_list(kind):
        return pa.list_(_stored(kind.value_type), kind.list_size)
    if kind.id in _LISTS:
        return _LISTS[kind.id](_stored(kind.value_type))
    return kind
