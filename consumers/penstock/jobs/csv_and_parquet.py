"""The rows of a list of objects, which is a CSV or a Parquet file, a batch at a time.

Rule: memory is bounded by a batch, and by the longest record that a list may have. The first bytes
of a CSV list tell whether it is gzipped. Of a Parquet list only columns with a meaning are read, by
ranges. Parquet may store a long text once for very many rows, so the bytes of all rows are counted
before a Python object is made for each. Reading blocks until the bytes are there, so it runs in a
thread. Owner: the reading of one list.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Self

from penstock.formats.base.source import Source, SourceFile
from penstock.jobs.list_columns import Columns, field_of
from penstock.messages.reference import SchemaError

GZIPPED = b"\x1f\x8b"
BATCH_ROWS = 5_000
# More than enough: a record has two names of at most 1,024 bytes, and some short fields.
MOST_RECORD_CHARS = 1 << 20


def csv_rows(source: Source, columns: Columns | None) -> Iterator[tuple[Columns, list[list[str]]]]:
    """Yields batches of rows, each with the columns. `columns` None: the first record has their
    names. Raises `SchemaError` if the file is no CSV list.
    """
    file = io.BufferedReader(SourceFile(source))
    data = gzip.GzipFile(fileobj=file) if file.peek(2).startswith(GZIPPED) else file
    lines = _Lines(io.TextIOWrapper(data, "utf-8-sig", newline=""))
    rows: list[list[str]] = []
    try:
        for record in filter(None, csv.reader(lines, strict=True)):
            lines.chars = 0
            if columns is None:
                columns = Columns(record)
                continue
            rows.append(record)
            if len(rows) == BATCH_ROWS:
                yield columns, rows
                rows = []
    except EOFError:
        raise SchemaError("the gzip file breaks off: its end is missing") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise SchemaError(f"no gzip: {error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise SchemaError(f"no CSV in UTF-8: {error}") from None
    if columns is not None:
        yield columns, rows


class _Lines:
    """The lines of a text. `chars`: characters since the last record ended; if they are more than
    `MOST_RECORD_CHARS`, `SchemaError` is raised.
    """

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text
        self.chars = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line = self._text.readline(MOST_RECORD_CHARS + 1)
        self.chars += len(line)
        if self.chars > MOST_RECORD_CHARS:
            said = f"a record has more than {MOST_RECORD_CHARS:,} characters: no CSV list"
            raise SchemaError(said)
        if not line:
            raise StopIteration
        return line


PARQUET = b"PAR1"
# One column of a batch has at most this many bytes. A name has at most 1,024 bytes, a URL a little
# more.
MOST_BYTES = 16 << 20
# This much of each column is read at a time.
BUFFER_BYTES = 1 << 20


def parquet_rows(source: Source) -> Iterator[tuple[Columns, Sequence[Sequence[Any]]]]:
    """Yields batches of rows, each with the columns. Raises `SchemaError` if the file is no list of
    objects.
    """
    import pyarrow as pa  # noqa: PLC0415 (takes a while to load, and most lists are CSV)
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        file = pa.PythonFile(SourceFile(source), mode="r")
        footer = pq.read_metadata(file)
        schema = footer.schema.to_arrow_schema()
        names = [name for name in schema.names if field_of(name)]
        columns = Columns(names or schema.names)
        texts = [name for name in names if _may_be_long(schema.field(name).type)]
        table = pq.ParquetFile(
            file,
            metadata=footer,
            read_dictionary=texts,
            pre_buffer=False,
            buffer_size=BUFFER_BYTES,
        )
        _check_groups(footer, names)
        for batch in table.iter_batches(BATCH_ROWS, columns=names, use_threads=False):
            found = [_unfolded(column) for column in batch.columns]
            yield columns, list(zip(*found, strict=True))
    except (pa.ArrowException, OSError) as error:
        raise SchemaError(f"no Parquet that can be read: {error}") from None


def _check_groups(footer: Any, names: Sequence[str]) -> None:
    """Raises `SchemaError` if the mean size of a column's values shows that they are no names. The
    sizes are taken from the footer, before any values are read, because the library unpacks all
    values of a column at once.
    """
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for at in range(group.num_columns):
            column = group.column(at)
            mean = column.total_uncompressed_size // max(1, group.num_rows)
            if column.path_in_schema in names and mean > MOST_BYTES // BATCH_ROWS:
                raise SchemaError(
                    f"the values of column {column.path_in_schema} have {mean:,} bytes each: no "
                    "list of objects"
                )


def _may_be_long(kind: Any) -> bool:
    """True if the values are texts, or bytes of any length."""
    from pyarrow import types  # noqa: PLC0415

    is_text = types.is_string(kind) or types.is_large_string(kind)
    return bool(is_text or types.is_binary(kind) or types.is_large_binary(kind))


def _unfolded(column: Any) -> list[Any]:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    if not pa.types.is_dictionary(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    nbytes = pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0
    if nbytes > MOST_BYTES:
        raise SchemaError(
            f"{len(column):,} values of a column have {nbytes:,} bytes: no list of objects"
        )
    return column.dictionary_decode().to_pylist()  # type: ignore[no-any-return]
