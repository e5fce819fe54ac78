"""Parquet: row groups of one size, with the same columns for every object.

Rule: at most one row group is in memory; of those before only what the footer says of them. Owner:
the writer of one result object.
"""

from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from consumers.encodings.base import Rows
from consumers.encodings.columns import SCHEMA, batch_of

# Some 2 MB of predictions; readers want tens of thousands, the writer holds one.
GROUP_ROWS: Final = 65_536


class _Pipe:
    """What pyarrow writes to, and we take from."""

    closed = False

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self.parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Everything is here already."""

    def close(self) -> None:
        """The end is `ParquetRows.close`."""

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


class ParquetRows:
    """One file."""

    def __init__(self) -> None:
        self._pipe = _Pipe()
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._pipe, mode="w"),
            SCHEMA,
            compression="zstd",
            use_dictionary=["member", "error_code", "error_message"],
            write_statistics=["row", "event_time"],
        )
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self.waiting_bytes = 0

    @property
    def is_due(self) -> bool:
        return self._rows >= GROUP_ROWS

    def add(self, rows: Rows) -> None:
        batch = batch_of(rows)
        self._batches.append(batch)
        self._rows += batch.num_rows
        self.waiting_bytes += batch.nbytes

    def take(self) -> bytes:
        if self._rows >= GROUP_ROWS:
            table = pa.Table.from_batches(self._batches, SCHEMA)
            while table.num_rows >= GROUP_ROWS:
                self._writer.write_table(table.slice(0, GROUP_ROWS).combine_chunks())
                table = table.slice(GROUP_ROWS)
            self._batches = table.to_batches()
            self._rows = table.num_rows
            self.waiting_bytes = table.nbytes
        return self._written()

    def close(self) -> bytes:
        head = self.take()
        if self._rows:
            self._writer.write_table(pa.Table.from_batches(self._batches, SCHEMA).combine_chunks())
        self._batches.clear()
        self._rows = self.waiting_bytes = 0
        self._writer.close()
        return head + self._written()

    def _written(self) -> bytes:
        data = b"".join(self._pipe.parts)
        self._pipe.parts.clear()
        return data
