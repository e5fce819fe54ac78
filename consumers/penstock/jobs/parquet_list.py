"""The rows of a Parquet list, a batch at a time, by ranged reads.

Rule: only columns with a meaning are read. Parquet may store a long text once for very many rows,
so the bytes of all rows are counted before a Python object is made for each. Reading blocks until
the bytes are there, so it runs in a thread. Owner: the reading of one list.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.formats.base.source import Source, SourceFile
from penstock.jobs.list_columns import Columns, field_of
from penstock.messages.reference import SchemaError

MAGIC = b"PAR1"
BATCH_ROWS = 5_000
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
    """Are the values texts, or bytes of any length?"""
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
