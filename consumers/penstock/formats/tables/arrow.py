"""Reads Arrow IPC, batch by batch. A file (Feather is one) is read by its footer; a stream is read
from its beginning.

Rule: a batch is checked in full before its values are touched, because the library trusts the bytes
of a batch, and these bytes may be hostile. Only a batch itself tells how many rows it has.
Therefore unwanted rows are decoded, too, and are dropped later. If several streams follow each
other, all are read; they must have the same schema. Layout: Arrow Columnar Format, "Serialization
and Interprocess Communication". Owner: one reading of one object.
"""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from penstock.errors import Poison
from penstock.formats.base.runs import RowOptions, Run
from penstock.formats.base.source import Source, SourceFile, Wanted
from penstock.formats.magic import no_such
from penstock.formats.tables.batches import TableReader, unreadable

FILE_MAGIC: Final = b"ARROW1"
_FEATHER_1: Final = b"FEA1"
_CONTINUATION: Final = b"\xff\xff\xff\xff"
# This many first bytes are enough for `looks`, and for an error that shows them.
_HEAD_BYTES: Final = 16
# The errors that the library raises for damaged data.
_UNREADABLE: Final = (pa.ArrowException, OSError, ValueError, KeyError, EOFError)


def looks(head: bytes) -> bool:
    return head.startswith((FILE_MAGIC, _FEATHER_1)) or (
        head.startswith(_CONTINUATION) and head[6:8] == b"\0\0"
    )


def read_arrow(ranges: Source, options: RowOptions, wanted: Wanted) -> Iterator[Run]:
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


def _of_file(ranges: Source) -> Iterator[Any]:
    with pa.ipc.open_file(pa.PythonFile(SourceFile(ranges), mode="r")) as reader:
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


def _of_streams(ranges: Source) -> Iterator[Any]:
    file = SourceFile(ranges)
    schema: Any = None
    while schema is None or file.tell() < ranges.size:
        begin = file.tell()
        with pa.ipc.open_stream(pa.PythonFile(file, mode="r")) as reader:
            if schema is not None and not reader.schema.equals(schema):
                raise ValueError(f"the stream that begins at byte {begin} has another schema")
            schema = reader.schema
            yield from reader


def _rows(ranges: Source, batches: Iterator[Any], options: RowOptions) -> Iterator[Run]:
    table: TableReader | None = None
    for batch in _checked(batches):
        if table is None:
            table = TableReader(batch.schema, options, ranges.size)
        yield from table.runs(batch)


def _checked(batches: Iterator[Any]) -> Iterator[Any]:
    """The batches. If a batch is damaged, the error names its number, except for the first
    batch.
    """
    read = 0
    try:
        for batch in batches:
            batch.validate(full=True)
            yield batch
            read += 1
    except _UNREADABLE as error:
        if not read:
            raise
        raise unreadable(f"batch {read} of the Arrow data", error) from error
