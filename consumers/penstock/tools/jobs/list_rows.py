"""Reads a list of objects, CSV or Parquet: its rows, the meaning of its columns, and the reference
of each.

Rule: a column is known by its name, that of a reference's field or of S3 Inventory in any spelling.
A version, entity tag or size pins the object. A delete marker, or a version that is not the latest,
makes no reference. Memory is bounded by a batch and the longest record. Reading blocks, so it runs
in a thread.
"""

import csv
import gzip
import io
import math
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date
from decimal import Decimal
from typing import Any, Final, Self

from penstock.formats.source import ObjectSource, SourceFile
from penstock.messages.reference import Reference, SchemaError
from penstock.messages.urls import decoded_key, split_url

_FIELDS: Final = {
    "bucket": "bucket",
    "key": "key",
    "url": "url",
    "stream": "stream",
    "model": "model",
    "format": "format",
    "compression": "compression",
    "versionid": "version_id",
    "etag": "etag",
    "size": "size",
    "eventtime": "event_time",
    "lastmodifieddate": "event_time",
    "islatest": "is_latest",
    "isdeletemarker": "is_delete_marker",
}
_NUMBERS: Final = ("size", "event_time")
_FLAGS: Final = ("is_latest", "is_delete_marker")
# A number with at most this many digits always fits into 64 bits.
_MOST_DIGITS: Final = 18


def field_of(name: str) -> str | None:
    """The field of a reference that a column with this name holds. None: the column has no meaning
    to us.
    """
    return _FIELDS.get(name.strip().lower().replace("_", ""))


class ListColumns:
    """The columns of a list. `is_encoded`: True if keys are percent-encoded, as in the CSV files of
    S3 Inventory. Raises `SchemaError` if no columns name the objects.
    """

    def __init__(self, names: Sequence[str], *, is_encoded: bool = False) -> None:
        fields = [field_of(name) for name in names]
        self._count = len(names)
        self._fields = [(index, field) for index, field in enumerate(fields) if field is not None]
        self._is_encoded = is_encoded
        if not ({"bucket", "key"} <= set(fields) or "url" in fields):
            shown = ", ".join(name[:40] for name in names[:6])
            raise SchemaError(
                f"no columns bucket and key, nor url, but: {shown}. A list needs a first line with "
                "their names; of an S3 Inventory give its manifest.json"
            )

    def reference(self, row: Sequence[Any]) -> Reference | None:
        """The reference of a row; None: the row makes no reference, because its object was deleted
        or the row is about an older version. Raises `SchemaError` for a wrong row.
        """
        if len(row) != self._count:
            raise SchemaError(f"{len(row)} columns instead of {self._count}")
        fields: dict[str, Any] = {
            field: value if isinstance(value, str) else _converted(field, value)
            for index, field in self._fields
            if (value := row[index]) is not None and value not in ("", b"")
        }
        if not _is_true(fields.pop("is_latest", True)) or _is_true(
            fields.pop("is_delete_marker", False)
        ):
            return None
        if "url" in fields:
            fields["store"], fields["bucket"], fields["key"] = split_url(fields.pop("url"))
        elif not ("bucket" in fields and "key" in fields):
            raise SchemaError("bucket or key is empty")
        if self._is_encoded:
            fields["key"] = decoded_key(fields["key"], is_form=True)
        _make_numbers(fields)
        return Reference(**fields)


def _converted(field: str, value: object) -> object:
    """Convert a value of a Parquet list that is not a text to a value that the field takes. Raises
    `SchemaError`.
    """
    match value:
        case float() | Decimal() if field in _NUMBERS and math.isfinite(value):
            if field == "event_time" or value == int(value):
                return int(value)
        case date() if field == "event_time":  # a datetime is a date, too
            return value.isoformat()
        case bool() if field in _FLAGS:
            return value
        case int() if not isinstance(value, bool):
            return value if field in _NUMBERS else str(value)
        case bytes() if field not in _NUMBERS:  # its writer has not said that it is UTF-8
            with suppress(UnicodeDecodeError):
                return value.decode()
    raise SchemaError(f"{field} {value!r:.40} is of a wrong kind ({type(value).__name__})")


def _is_true(value: object) -> bool:
    return value is True or (isinstance(value, str) and value.lower() in ("true", "1"))


def _make_numbers(fields: dict[str, Any]) -> None:
    size = fields.get("size")
    if isinstance(size, str):
        if not _is_number(size):
            raise SchemaError(f"size {size[:40]!r} is not a number of bytes")
        fields["size"] = int(size)


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= _MOST_DIGITS


GZIPPED = b"\x1f\x8b"
BATCH_ROWS = 5_000
# The longest record of a CSV list. This is more than enough, because a record has two names of at
# most 1,024 bytes, and some short fields.
MOST_RECORD_CHARS = 1 << 20


def csv_rows(
    source: ObjectSource, columns: ListColumns | None
) -> Iterator[tuple[ListColumns, list[list[str]]]]:
    """Yields batches of rows, each with the columns. The first bytes tell whether the list is
    gzipped. `columns`: None if the first record has the names of the columns. Raises `SchemaError`
    if the file is no CSV list.
    """
    file = io.BufferedReader(SourceFile(source))
    data = gzip.GzipFile(fileobj=file) if file.peek(2).startswith(GZIPPED) else file
    lines = _Lines(io.TextIOWrapper(data, "utf-8-sig", newline=""))
    rows: list[list[str]] = []
    try:
        for record in filter(None, csv.reader(lines, strict=True)):
            lines.chars = 0
            if columns is None:
                columns = ListColumns(record)
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
    """The lines of a text. `chars`: the number of characters since the last record ended. If it
    exceeds `MOST_RECORD_CHARS`, `SchemaError` is raised.
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
            message = f"a record has more than {MOST_RECORD_CHARS:,} characters: no CSV list"
            raise SchemaError(message)
        if not line:
            raise StopIteration
        return line


PARQUET = b"PAR1"
# One column of a batch has at most this many bytes. A name has at most 1,024 bytes, a URL a little
# more.
MOST_BYTES = 16 << 20
# Of each column, this much is read at a time.
BUFFER_BYTES = 1 << 20


def parquet_rows(source: ObjectSource) -> Iterator[tuple[ListColumns, Sequence[Sequence[Any]]]]:
    """Yields batches of rows, each with the columns. Only columns that have a meaning to us are
    read, by ranges. Parquet may store a long text once for very many rows. So the bytes of all rows
    are counted before a Python object is made for each row. Raises `SchemaError` if the file is no
    list of objects.
    """
    import pyarrow as pa  # noqa: PLC0415 (takes a while to load, and most lists are CSV)
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        file = pa.PythonFile(SourceFile(source), mode="r")
        footer = pq.read_metadata(file)
        schema = footer.schema.to_arrow_schema()
        names = [name for name in schema.names if field_of(name)]
        columns = ListColumns(names or schema.names)
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
            unfolded = [_unfolded(column) for column in batch.columns]
            yield columns, list(zip(*unfolded, strict=True))
    except (pa.ArrowException, OSError) as error:
        raise SchemaError(f"no Parquet that can be read: {error}") from None


def _check_groups(footer: Any, names: Sequence[str]) -> None:
    """Raises `SchemaError` if the values of a column are on average too large to be names. The
    library unpacks all values of a column at once, so the sizes are taken from the footer, before
    any values are read.
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
    """True if the type's values may have any length: texts and bytes."""
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
