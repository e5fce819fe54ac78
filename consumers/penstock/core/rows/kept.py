"""Columns and times of rows that are kept for the records, as the model does not get them.

Rule: kept in bulk like rows, cut like rows, and inserted into records that are complete otherwise.
Blocks have none of it unless it is configured. Pure; owner: the block.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.core.rows.payload import JsonRows

# Stands for a row that has no time; no calendar goes back so far.
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
        """How many bytes this adds to a record, at most."""
        if self.columns is None:
            return _NUMBER_BYTES
        return _NUMBER_BYTES + int(np.diff(self.columns.ends, prepend=0).max())

    def cut(self, start: int, stop: int) -> "Kept":
        return Kept(
            None if self.columns is None else self.columns.cut(start, stop).owned(),
            None if self.times is None else self.times[start:stop].copy(),
        )

    def into(self, record: bytes, row: int, event_time: bytes | None) -> bytes:
        """The record of this row with the kept values; `event_time` is its value so far, as JSON.

        The first `,"event_time":` in the bytes is the record's own field: within a text its quotes
        would be escaped, and nested objects come later.
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
