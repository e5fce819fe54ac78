"""Rows in the form the model takes, many at a time.

Rule: a payload is immutable and can be cut anywhere between two rows without looking at the rows.
`shape` says which payloads may share one request. Owner: whoever holds it; nothing is shared
mutably.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

Float32Matrix = npt.NDArray[np.float32]
Offsets = npt.NDArray[np.int64]


class Payload(Protocol):
    """A run of rows; `rows` >= 1, `nbytes` is what it holds in memory."""

    @property
    def rows(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def shape(self) -> tuple[str, int]:
        """Payloads of equal shape can go into one request."""
        ...

    def cut(self, start: int, stop: int) -> Self:
        """Rows `start` to `stop` (half open) of this payload."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Rows as a little-endian float32 matrix, C-contiguous, shape (rows, columns)."""

    values: Float32Matrix

    @property
    def rows(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    @property
    def shape(self) -> tuple[str, int]:
        return ("float32", self.values.shape[1])

    def cut(self, start: int, stop: int) -> "Matrix":
        return Matrix(self.values[start:stop])


@dataclass(frozen=True, slots=True, eq=False)
class JsonRows:
    """Rows as JSON elements joined by single commas; `ends[i]` is where row i stops in `body`."""

    body: bytes | memoryview
    ends: Offsets

    @classmethod
    def of(cls, elements: Sequence[bytes]) -> Self:
        """Join elements that are JSON each. The elements themselves are not kept."""
        lengths = np.fromiter(map(len, elements), np.int64, len(elements))
        ends = np.cumsum(lengths + 1) - 1
        return cls(b",".join(elements), ends)

    @property
    def rows(self) -> int:
        return len(self.ends)

    @property
    def nbytes(self) -> int:
        return len(self.body) + self.ends.nbytes

    @property
    def shape(self) -> tuple[str, int]:
        return ("json", 0)

    def cut(self, start: int, stop: int) -> "JsonRows":
        begin = int(self.ends[start - 1]) + 1 if start else 0
        end = int(self.ends[stop - 1])
        return JsonRows(memoryview(self.body)[begin:end], self.ends[start:stop] - begin)
