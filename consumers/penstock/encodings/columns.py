"""Encodes answers as columns: Arrow batches, which Arrow blocks use, too, and result objects in
Parquet.

Rule: the columns are the same for every object and model. `prediction` is JSON text, so that no row
can contradict the types of an earlier one; typed columns come beside (`typed_columns`). At most one
row group is in memory, bounded in rows and bytes; where it ends depends on its rows alone.
"""

import io
from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.core.rows.blocks import Block
from penstock.encodings.base import AnsweredRows, columns_of, rows_of, times_of
from penstock.encodings.typed_columns import AS_JSON, layout_of
from penstock.messages.prediction import encodable, printable

# A group has at most this many rows, which are some 2 MB of predictions. Readers want groups of
# tens of thousands of rows, but the writer holds one group in memory.
GROUP_ROWS: Final = 65_536
# A group has at most this many bytes, so a group of long rows has fewer rows: 65,536 embeddings of
# 15 kB would be a gigabyte. While a group is compressed, it takes twice this much memory.
GROUP_BYTES: Final = 16 << 20
# How many bytes a row takes besides its texts.
_ROW_BYTES: Final = 32
_TEXTS: Final = ("prediction", "columns", "error_message")

SCHEMA: Final = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("member", pa.string()),
        pa.field("event_time", pa.timestamp("ms", "UTC")),
        pa.field("prediction", pa.string()),
        pa.field("columns", pa.string()),
        pa.field("error_code", pa.string()),
        pa.field("error_message", pa.string()),
    ]
)


def batch_of(rows: AnsweredRows) -> pa.RecordBatch:
    count = len(rows.answers)
    member = None if rows.member is None else encodable(rows.member)
    texts: list[bytes | None] = list(rows.answers)
    codes: list[str | None] | None = None
    messages: list[str | None] = []
    if rows.errors:
        codes, messages = [None] * count, [None] * count
        for index, why in rows.errors.items():
            texts[index], codes[index] = None, why.code
            messages[index] = printable(why.message)
    nothing = pa.nulls(count, pa.string())
    columns, times = rows.kept and rows.kept.columns, rows.kept and rows.kept.times
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.arange(rows.first_row, rows.first_row + count, dtype=np.int64)),
            nothing if member is None else pa.array([member] * count, pa.string()),
            pa.array(times_of(rows), pa.timestamp("ms", "UTC"))
            if times is not None
            else pa.nulls(count, pa.timestamp("ms", "UTC")),
            pa.array(texts, pa.string()),
            nothing if columns is None else pa.array(columns_of(rows), pa.string()),
            nothing if codes is None else pa.array(codes, pa.string()),
            nothing if codes is None else pa.array(messages, pa.string()),
        ],
        schema=SCHEMA,
    )


def batch_of_blocks(blocks: Iterable[Block]) -> pa.RecordBatch:
    """One batch with the rows of all blocks."""
    batches = [batch_of(rows_of(block)) for block in blocks]
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


class ParquetRows:
    """`nested`: "columns" for typed columns, or "json"."""

    def __init__(self, nested: str = "json") -> None:
        self._nested = nested
        self._file = io.BytesIO()
        self._writer: pq.ParquetWriter | None = None
        self._layout = AS_JSON
        self._full: list[pa.Table] = []
        self._open: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self.waiting_bytes = 0

    @property
    def is_due(self) -> bool:
        return bool(self._full)

    def add(self, rows: AnsweredRows) -> None:
        batch = batch_of(rows)
        self.waiting_bytes += batch.nbytes
        ends = np.cumsum(_sizes(batch))
        start = before = 0
        while start < batch.num_rows:
            room = max(0, GROUP_BYTES - self._bytes)
            # The row that fills the group is the last row of the group.
            stop = int(np.searchsorted(ends, before + room)) + 1
            stop = min(stop, start + GROUP_ROWS - self._rows, batch.num_rows)
            self._open.append(batch.slice(start, stop - start))
            self._rows += stop - start
            self._bytes += int(ends[stop - 1]) - before
            start, before = stop, int(ends[stop - 1])
            if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
                self._end_group()

    def _end_group(self) -> None:
        self._full.append(pa.Table.from_batches(self._open, SCHEMA))
        self._open = []
        self._rows = self._bytes = 0

    def take(self) -> bytes:
        for table in self._full:
            group = table.combine_chunks()
            writer = self._opened(group)
            writer.write_table(self._layout.table_of(group))
        self._full.clear()
        self.waiting_bytes = self._bytes
        return self._written()

    def close(self) -> bytes:
        if self._rows:
            self._end_group()
        data = self.take()
        self._opened(SCHEMA.empty_table()).close()
        return data + self._written()

    def _opened(self, first: pa.Table) -> pq.ParquetWriter:
        """The writer. `first`: the first group, which decides the columns."""
        if self._writer is None:
            if self._nested == "columns":
                self._layout = layout_of(first)
            typed = [field for shape in self._layout for field in shape.columns]
            texts = [field.column for field in typed if field.kind == "text"]
            self._writer = pq.ParquetWriter(
                pa.PythonFile(self._file, mode="w"),
                self._layout.schema_of(SCHEMA),
                compression="zstd",
                use_dictionary=["member", "error_code", "error_message", *texts],
                write_statistics=[
                    *("row", "event_time"),
                    *(field.column for field in typed if field.kind != "numbers"),
                ],
            )
        return self._writer

    def _written(self) -> bytes:
        data = self._file.getvalue()
        self._file.seek(0)
        self._file.truncate()
        return data


def _sizes(batch: pa.RecordBatch) -> np.ndarray:
    """The size of each row in bytes."""
    sizes = np.full(batch.num_rows, _ROW_BYTES, np.int64)
    for name in _TEXTS:
        column = batch.column(name)
        if column.null_count < len(column):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    return sizes
