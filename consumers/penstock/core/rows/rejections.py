"""Why rows are answered by an error: one reason for a whole block, or one for each of its rows.

Rule: neighbouring rows with one reason are one stretch, and all texts share one piece of memory, so
an object whose rows are all bad takes no more than good rows would. `Reasons` never change.
"""

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.rows.payload import ERROR_COST_BYTES
from penstock.errors import ErrorCode

Ends = npt.NDArray[np.int64]


class Rejection(NamedTuple):
    """Why rows, or a whole object, are answered by an error."""

    code: ErrorCode
    message: str
    stage: str
    attempts: int = 1

    @property
    def cost_bytes(self) -> int:
        """What the rejection costs in the byte budget."""
        return ERROR_COST_BYTES + len(self.message)


class Reasons:
    """The reasons of one or more rows. Iterating yields one (rows, text) for each stretch. Stretch
    i ends before row `row_ends[i]`, and its text ends at `text_ends[i]`.
    """

    __slots__ = ("_row_ends", "_text", "_text_ends")

    def __init__(self, row_ends: Ends, text: bytes, text_ends: Ends) -> None:
        self._row_ends = row_ends
        self._text = text
        self._text_ends = text_ends

    @property
    def rows(self) -> int:
        return int(self._row_ends[-1])

    @property
    def stretches(self) -> int:
        return len(self._row_ends)

    @property
    def nbytes(self) -> int:
        return len(self._text) + self._row_ends.nbytes + self._text_ends.nbytes

    def __iter__(self) -> Iterator[tuple[int, str]]:
        row = begin = 0
        for row_end, text_end in zip(
            self._row_ends.tolist(), self._text_ends.tolist(), strict=True
        ):
            yield row_end - row, self._text[begin:text_end].decode(errors="replace")
            row, begin = row_end, text_end

    def cut(self, start: int, stop: int) -> "Reasons":
        """The reasons of the rows `start` to `stop` (half open)."""
        first = int(np.searchsorted(self._row_ends, start, side="right"))
        last = int(np.searchsorted(self._row_ends, stop, side="left")) + 1
        begin = int(self._text_ends[first - 1]) if first else 0
        text_ends = self._text_ends[first:last] - begin
        return Reasons(
            np.minimum(self._row_ends[first:last], stop) - start,
            self._text[begin : begin + int(text_ends[-1])],
            text_ends,
        )


class ReasonsBuilder:
    """Call `add` in row order, then `build` once."""

    def __init__(self) -> None:
        self.rows = 0
        self._last: str | None = None
        self._row_ends = array("q")
        self._text = bytearray()
        self._text_ends = array("q")

    def add(self, rows: int, text: str) -> None:
        self.rows += rows
        if text == self._last:
            self._row_ends[-1] = self.rows
            return
        self._last = text
        self._text += text.encode(errors="replace")
        self._row_ends.append(self.rows)
        self._text_ends.append(len(self._text))

    def build(self) -> Reasons:
        return Reasons(
            np.array(self._row_ends, np.int64),
            bytes(self._text),
            np.array(self._text_ends, np.int64),
        )
