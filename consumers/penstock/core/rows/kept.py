"""Columns and times of rows that are kept for the records (`rows.keep`, `rows.time`), because the
model does not get them.

Rule: these values are kept in bulk and cut like the rows, and are inserted into the finished
record. If nothing is to be kept, a block has no `Kept`. Owner: the block.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.core.rows.payload import JsonRows

# Stands for "this row has no time". As a time it would lie before every calendar's first year.
NO_TIME = np.iinfo(np.int64).min
_NUMBER_BYTES = 40  # ,"event_time":-62135596800000


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """For each row a JSON object of `columns`, and epoch milliseconds; either may be None."""

    columns: JsonRows | None
    times: npt.NDArray[np.int64] | None

    @classmethod
    def of(cls, columns: Sequence[bytes] | None, times: Iterable[int | None] | None) -> "Kept":
        return cls(
            None if columns is None else JsonRows.of(columns),
            None
            if times is None
            else np.array([NO_TIME if time is None else time for time in times], np.int64),
        )

    @property
    def nbytes(self) -> int:
        columns = 0 if self.columns is None else self.columns.nbytes
        return columns + (0 if self.times is None else self.times.nbytes)

    @property
    def row_bytes(self) -> int:
        """The most bytes that the kept values of a row add to its record."""
        if self.columns is None:
            return _NUMBER_BYTES
        return _NUMBER_BYTES + int(np.diff(self.columns.ends, prepend=0).max())

    def cut(self, start: int, stop: int) -> "Kept":
        return Kept(
            None if self.columns is None else self.columns.cut(start, stop).owned(),
            None if self.times is None else self.times[start:stop].copy(),
        )

    def into(self, record: bytes, row: int, event_time: bytes | None) -> bytes:
        """The record of this row with its kept values. `event_time`: the value that the record has
        now, as JSON.

        The first `,"event_time":` in the bytes is the record's own field: in a text the quotes
        would be escaped, and nested objects come later in the record.
        """
        if self.times is not None and (time := int(self.times[row])) != NO_TIME:
            written = b',"event_time":%d' % time
            if event_time is not None:
                record = record.replace(b',"event_time":%b' % event_time, written, 1)
            else:
                record = b"%b%b}" % (record[:-1], written)
        if self.columns is not None:
            record = b'%b,"columns":%b}' % (record[:-1], bytes(self.columns.cut(row, row + 1).body))
        return record
