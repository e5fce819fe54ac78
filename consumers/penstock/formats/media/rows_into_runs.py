"""Gathers rows of recordings and videos, which come one by one, into runs.

Rule: a run is handed on when it holds `RUN_BYTES`. Unwanted rows are counted, not made. Pure.
Owner: one reading of one object.
"""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from penstock.core.rows.payload import BytesRows, Matrix, Payload
from penstock.errors import Poison
from penstock.formats.base.runs import RowOptions, Run, too_long
from penstock.formats.base.source import Wanted

# Runs of this size are so few that the cost of a run itself does not matter.
RUN_BYTES: Final = 256 << 10
# A run stands for at most this many unwanted rows.
SKIPPED_ROWS: Final = 1_000
# An opaque payload counts a little more than the bytes of its row, because it also holds the place
# where the row ends.
_ROW_END_BYTES: Final = 64


class Gathered:
    """Takes each row by `add`, and returns the runs that are complete."""

    def __init__(self, options: RowOptions, wanted: Wanted) -> None:
        self._most_bytes = options.row_bytes + _ROW_END_BYTES
        self._options = options
        self._wanted = wanted
        self._row = self._skipped = 0
        self._rows: list[Payload] = []
        self._times: list[int] = []
        self._nbytes = 0

    def add(self, make: Callable[[], Payload], time_ms: int) -> Iterator[Run]:
        """`make` makes the next row, and is called only if the row is wanted. `time_ms`: the time
        of the row since the first one.
        """
        self._row += 1
        if not self._wanted(self._row - 1, self._row):
            if self._rows or self._skipped == SKIPPED_ROWS:
                yield from self.rest()
            self._skipped += 1
            return
        if self._skipped:
            yield from self.rest()
        row = make()
        if row.nbytes > self._most_bytes:
            said = too_long(self._options.row_bytes)
            raise Poison("too_large", f"{said}; a smaller rows.image_size or fewer")
        self._rows.append(row)
        self._times.append(time_ms)
        self._nbytes += row.nbytes
        if self._nbytes >= RUN_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[Run]:
        """The rows that are held."""
        if self._skipped:
            skipped, self._skipped = self._skipped, 0
            yield Run(skipped, None)
        if self._rows:
            rows, times = self._rows, np.array(self._times, np.int64)
            self._rows, self._times, self._nbytes = [], [], 0
            yield Run(len(rows), _joined(rows), since_ms=times)


def _joined(rows: list[Payload]) -> Payload:
    """Join rows of one kind and width. Before rows of another width, the user of `Gathered` calls
    `rest`.
    """
    matrices = [row for row in rows if isinstance(row, Matrix)]
    if matrices:
        return Matrix(np.concatenate([row.values for row in matrices]))
    return BytesRows.of([bytes(row.row(0)) for row in rows if isinstance(row, BytesRows)])
