"""Reads Parquet: first the footer, and then one row group after the other.

Rule: a row group without a wanted row is counted, not fetched. Small column chunks are fetched
together, large ones page by page, so memory grows neither with the object nor with its row groups.
The footer's claims are compared with the object's size and the rows that come, pages with their
checksums; what does not fit is `bad_format`. Layout: apache/parquet-format, README.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import Poison
from penstock.formats.archives.unpacking import Expansion
from penstock.formats.first_bytes import no_such
from penstock.formats.runs import RowOptions, Run, check_rows
from penstock.formats.source import ObjectSource, SourceFile, Wanted
from penstock.formats.tables.batches import MOST_STEP_ROWS, STEP_BYTES, TableReader, unreadable

MAGIC: Final = b"PAR1"
_ENCRYPTED: Final = b"PARE"
# The errors that the library raises for damaged data.
_UNREADABLE: Final = (pa.ArrowException, OSError, ValueError, KeyError, OverflowError)
_END_BYTES: Final = 8  # the end of a file: the footer's length and the magic
# A footer may have at most this many bytes. With 10,000 row groups of 100 columns it has 60 MB, and
# takes several times as much in memory.
MOST_FOOTER_BYTES: Final = 64 << 20
# At most this much is read at a time, for all columns together. Longer column chunks are read page
# by page.
BUFFER_BYTES: Final = 8 << 20
LEAST_BUFFER_BYTES: Final = 64 << 10
# Times that Spark and Impala write as INT96 are read in microseconds. They are stored in
# nanoseconds; if they were read so, a time before 1677 or after 2262 would silently become another
# time.
INT96_UNIT: Final = "us"
# The shortest plain text: 4 bytes of length and one letter.
_LEAST_TEXT_BYTES: Final = 5
_HEAD_BYTES: Final = 128


def looks(head: bytes) -> bool:
    """True if the object begins with the magic and has control characters behind it. The magic
    alone could be the first cell of a CSV, but a text never has control characters.
    """
    return head.startswith(MAGIC) and any(byte < 9 for byte in head[len(MAGIC) : 64])


def read_parquet(ranges: ObjectSource, options: RowOptions, wanted: Wanted) -> Iterator[Run]:
    """The rows of one object; unwanted rows come as runs without a payload."""
    _check_end(ranges)
    try:
        yield from _rows(ranges, options, wanted)
    except _UNREADABLE as error:
        raise unreadable("the Parquet file", error) from error


def _check_end(ranges: ObjectSource) -> None:
    end = ranges.read(max(0, ranges.size - _END_BYTES), ranges.size)
    if end[-4:] == _ENCRYPTED:
        raise Poison("bad_format", "the Parquet file is encrypted, which is not read")
    if end[-4:] != MAGIC or ranges.size < len(MAGIC) + _END_BYTES:
        head = ranges.read(0, _HEAD_BYTES)
        if not head.startswith(MAGIC):
            raise no_such("Parquet file", head)
        raise Poison(
            "bad_format", "the Parquet file breaks off: its end is missing; write it again"
        )
    footer_bytes = int.from_bytes(end[:4], "little")
    if footer_bytes > ranges.size - _END_BYTES - len(MAGIC):
        raise Poison("bad_format", f"a footer of {footer_bytes} bytes in {ranges.size}")
    if footer_bytes > MOST_FOOTER_BYTES:
        raise Poison(
            "too_large",
            f"the Parquet footer has {footer_bytes} bytes, at most {MOST_FOOTER_BYTES} are read",
        )


def _rows(ranges: ObjectSource, options: RowOptions, wanted: Wanted) -> Iterator[Run]:
    footer = _open(ranges)
    # Do not ask a row group for its column chunks here: if a damaged footer has a chunk of a column
    # that is not in the schema, pyarrow 26 aborts the process.
    groups = [footer.metadata.row_group(number) for number in range(footer.num_row_groups)]
    _check_expansion(groups, ranges.size, options)
    footer_bytes = footer.metadata.serialized_size
    if footer.metadata.num_rows and ranges.size == len(MAGIC) + footer_bytes + _END_BYTES:
        raise Poison(
            "bad_format",
            "the Parquet file is only a footer, as _metadata is; send the files that have its rows",
        )
    table = TableReader(footer.schema_arrow, options, ranges.size)
    texts = _texts(footer.schema, table.names, is_nested=options.form != "columns")
    all_rows = sum(max(0, group.num_rows) for group in groups)
    all_bytes = sum(max(0, group.total_byte_size) for group in groups)
    first_row = 0
    for number, group in enumerate(groups):
        rows = group.num_rows
        if rows < 0:
            raise Poison("bad_format", f"row group {number} has {rows} rows")
        if rows and table.is_settled and not wanted(first_row, first_row + rows):
            yield Run(rows, None)
        elif rows:
            # A group may have few rows with most of the bytes, or the reverse.
            own_bytes = max(0, group.total_byte_size)
            table.count_anew(max(rows / all_rows, own_bytes / max(1, all_bytes)))
            batches = partial(_batches, ranges, footer.metadata, number, table)
            try:
                by_dictionary = texts if _repeats(group, table, len(texts)) else []
                yield from _of_group(batches, number, rows, table, by_dictionary)
            except _UNREADABLE as error:
                where = f"row group {number} of the Parquet file, from row {first_row} on,"
                raise unreadable(where, error) from error
        first_row += rows


def _texts(schema: Any, names: list[str], *, is_nested: bool) -> list[str]:
    """The needed columns that hold texts or bytes of variable length, by their paths."""
    columns = [schema.column(index) for index in range(len(schema))]
    return [
        column.path
        for column in columns
        if column.physical_type == "BYTE_ARRAY"
        and column.path.partition(".")[0] in names
        and (is_nested or column.path in names)
    ]


def _repeats(group: Any, table: TableReader, texts: int) -> bool:
    """True if the group is smaller than it would have to be with plain texts. This means that most
    of its texts are stored only once, in a dictionary. Such a group is read with its dictionaries,
    so that the decoded size of its rows is known before they are decoded.
    """
    numbers_bytes: int = group.num_rows * table.fixed_bytes
    least_bytes: int = group.num_rows * texts * _LEAST_TEXT_BYTES
    return texts > 0 and group.total_byte_size - numbers_bytes < least_bytes


def _check_expansion(groups: list[Any], size: int, options: RowOptions) -> None:
    expansion = Expansion(options)
    expansion.add(size, sum(max(0, group.total_byte_size) for group in groups))
    expansion.check()
    check_rows(sum(max(0, group.num_rows) for group in groups), size, options)


def _of_group(
    batches: Callable[[list[str]], Iterator[Any]],
    number: int,
    rows: int,
    table: TableReader,
    by_dictionary: list[str],
) -> Iterator[Run]:
    count = 0
    try:
        for batch in batches(by_dictionary):
            count += batch.num_rows
            yield from table.runs(batch)
    except _UNREADABLE:
        # Some encodings of texts cannot be read with a dictionary. So read the remaining rows
        # without one. If the data is damaged, this second reading fails, too.
        if not by_dictionary:
            raise
        at = 0
        for batch in batches([]):
            fresh = batch.slice(max(0, count - at))
            at += batch.num_rows
            yield from table.runs(fresh)
        count = at
    if count != rows:
        raise Poison("bad_format", f"row group {number} has {count} rows, its footer says {rows}")


def _batches(
    ranges: ObjectSource, metadata: Any, number: int, table: TableReader, by_dictionary: list[str]
) -> Iterator[Any]:
    file = _open(
        ranges,
        metadata=metadata,
        buffer_size=max(LEAST_BUFFER_BYTES, BUFFER_BYTES // len(table.names)),
        read_dictionary=by_dictionary,
    )
    group = metadata.row_group(number)
    stored_bytes = group.total_byte_size // group.num_rows
    # With this many rows a batch has about `STEP_BYTES` when it is decoded.
    rows = STEP_BYTES // max(1, table.fixed_bytes, stored_bytes)
    batches: Iterator[Any] = file.iter_batches(
        batch_size=max(1, min(MOST_STEP_ROWS, rows)),
        row_groups=[number],
        columns=table.names,
        use_threads=False,
    )
    return batches


def _open(ranges: ObjectSource, **more: Any) -> Any:
    source = pa.PythonFile(SourceFile(ranges), mode="r")
    return pq.ParquetFile(
        source,
        pre_buffer=False,
        coerce_int96_timestamp_unit=INT96_UNIT,
        page_checksum_verification=True,
        **more,
    )
