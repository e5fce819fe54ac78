"""Rows that a decoder of media makes one by one, gathered into batches.

Rule: a batch is sent when it holds `BATCH_BYTES`; rows that are only counted never wait beside
others. Pure. Owner: one decoding of one object.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from consumers.core.payload import BytesRows, Matrix, Payload
from consumers.formats.media_wire import Batch

# A message of this size costs nothing beside its rows.
BATCH_BYTES: Final = 256 << 10
# Skipped rows that one block stands for.
SKIPPED_ROWS: Final = 1_000


class Gathered:
    """`add` each row; what comes back is to be sent. The first `skip_rows` are only counted."""

    def __init__(self, skip_rows: int) -> None:
        self._skip_rows = skip_rows
        self._skipped = 0
        self._rows: list[Payload] = []
        self._times: list[int] = []
        self._nbytes = 0

    @property
    def skips(self) -> bool:
        """Is the next row only counted? Then it need not be made."""
        return self._skip_rows > 0

    def skip(self) -> Iterator[Batch]:
        self._skip_rows -= 1
        self._skipped += 1
        if self._skipped == SKIPPED_ROWS or not self._skip_rows:
            yield from self.rest()

    def add(self, row: Payload, time_ms: int) -> Iterator[Batch]:
        self._rows.append(row)
        self._times.append(time_ms)
        self._nbytes += row.nbytes
        if self._nbytes >= BATCH_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[Batch]:
        """What has not been sent yet."""
        if self._skipped:
            yield Batch(self._skipped, None, None)
            self._skipped = 0
        if self._rows:
            rows, times = self._rows, np.array(self._times, np.int64)
            self._rows, self._times, self._nbytes = [], [], 0
            yield Batch(len(rows), _joined(rows), times)


def _joined(rows: list[Payload]) -> Payload:
    """Rows of one object are all of one kind and width."""
    matrices = [row for row in rows if isinstance(row, Matrix)]
    if matrices:
        return Matrix(np.concatenate([row.values for row in matrices]))
    return BytesRows.of([bytes(row.row(0)) for row in rows if isinstance(row, BytesRows)])
