"""Parquet: row groups of one size, with the same columns for every object.

Rule: at most one row group is in memory, limited in rows and bytes. Of earlier groups only their
part of the footer stays in memory. Where a group ends depends on its rows alone, and not on how
many rows were added at a time. Owner: the writer of one result object.
"""

import io
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.encodings.arrow_columns import SCHEMA, batch_of
from penstock.encodings.base import Rows

# A group of this many rows has some 2 MB of predictions. Readers want groups of tens of thousands
# of rows; the writer holds one group in memory.
GROUP_ROWS: Final = 65_536
# A group of long rows has fewer rows, because 65,536 embeddings of 15 kB would be a gigabyte. While
# a group is compressed, it takes twice this much memory.
GROUP_BYTES: Final = 16 << 20
# How many bytes a row takes besides its texts.
_ROW_BYTES: Final = 32
_TEXTS: Final = ("prediction", "columns", "error_message")


class ParquetRows:
    def __init__(self) -> None:
        self._file = io.BytesIO()
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._file, mode="w"),
            SCHEMA,
            compression="zstd",
            use_dictionary=["member", "error_code", "error_message"],
            write_statistics=["row", "event_time"],
        )
        self._full: list[pa.Table] = []
        self._open: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self.waiting_bytes = 0

    @property
    def is_due(self) -> bool:
        return bool(self._full)

    def add(self, rows: Rows) -> None:
        batch = batch_of(rows)
        self.waiting_bytes += batch.nbytes
        ends = np.cumsum(_sizes(batch))
        start = before = 0
        while start < batch.num_rows:
            room = max(0, GROUP_BYTES - self._bytes)
            # The row that fills the group is the last one in it.
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
        for group in self._full:
            self._writer.write_table(group.combine_chunks())
        self._full.clear()
        self.waiting_bytes = self._bytes
        return self._written()

    def close(self) -> bytes:
        if self._rows:
            self._end_group()
        data = self.take()
        self._writer.close()
        return data + self._written()

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
