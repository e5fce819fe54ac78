"""Rows in the form that the model takes, many at a time.

Rule: a payload never changes, and can be cut between any two rows without looking at the rows.
Payloads may share one request if they have the same `shape`. Owner: the block that has the payload.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

# The kinds of rows: numbers, a JSON element, opaque bytes (such as a frame or a document), typed
# columns.
Form = Literal["matrix", "json", "bytes", "columns"]
# A form and its width or schema.
Shape = tuple[str, int | str]

Float32Matrix = npt.NDArray[np.float32]
Offsets = npt.NDArray[np.int64]


class Payload(Protocol):
    """Consecutive rows: at least one. `nbytes`: the memory that they take."""

    @property
    def rows(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def shape(self) -> Shape:
        """Payloads of equal shape may share one request."""
        ...

    def cut(self, start: int, stop: int) -> Self:
        """Rows `start` to `stop` (half open). The part refers to the memory of the whole payload,
        and so keeps it.
        """
        ...

    def owned(self) -> Self:
        """A copy in its own memory, so that the payload from which it was cut can be freed."""
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
    def shape(self) -> Shape:
        return ("float32", self.values.shape[1])

    def cut(self, start: int, stop: int) -> "Matrix":
        return Matrix(self.values[start:stop])

    def owned(self) -> "Matrix":
        return Matrix(self.values.copy())


@dataclass(frozen=True, slots=True, eq=False)
class JsonRows:
    """Rows as JSON elements joined by single commas; `ends[i]` is where row i stops in `body`."""

    body: bytes | memoryview
    ends: Offsets

    @classmethod
    def of(cls, elements: Sequence[bytes]) -> Self:
        """Join elements, each of which is JSON. The elements themselves are not kept."""
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
    def shape(self) -> Shape:
        return ("json", 0)

    def cut(self, start: int, stop: int) -> "JsonRows":
        begin = int(self.ends[start - 1]) + 1 if start else 0
        end = int(self.ends[stop - 1])
        return JsonRows(memoryview(self.body)[begin:end], self.ends[start:stop] - begin)

    def owned(self) -> "JsonRows":
        return JsonRows(bytes(self.body), self.ends)


# Each opaque row begins with its length, as in a BYTES tensor of the Open Inference Protocol.
LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True, eq=False)
class BytesRows:
    """Opaque rows: `body` has a little-endian uint32 length and the bytes of each row, one after
    the other; `ends[i]` is where row i stops.
    """

    body: bytes | memoryview
    ends: Offsets

    @classmethod
    def of(cls, rows: Sequence[bytes]) -> Self:
        """The rows are copied, not kept."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        heads = lengths.astype("<u4").tobytes()
        parts: list[bytes] = []
        for index, row in enumerate(rows):
            at = LENGTH_BYTES * index
            parts += (heads[at : at + LENGTH_BYTES], row)
        return cls(b"".join(parts), np.cumsum(lengths + LENGTH_BYTES))

    @property
    def rows(self) -> int:
        return len(self.ends)

    @property
    def nbytes(self) -> int:
        return len(self.body) + self.ends.nbytes

    @property
    def shape(self) -> Shape:
        return ("bytes", 0)

    def row(self, index: int) -> memoryview:
        """The bytes of one row, without its length."""
        begin = int(self.ends[index - 1]) if index else 0
        return memoryview(self.body)[begin + LENGTH_BYTES : int(self.ends[index])]

    def cut(self, start: int, stop: int) -> "BytesRows":
        begin = int(self.ends[start - 1]) if start else 0
        end = int(self.ends[stop - 1])
        return BytesRows(memoryview(self.body)[begin:end], self.ends[start:stop] - begin)

    def owned(self) -> "BytesRows":
        return BytesRows(bytes(self.body), self.ends)


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Rows as an Arrow record batch. `schema` is a text that is the same for equal schemas; it is
    made once for many batches.
    """

    batch: "pa.RecordBatch"
    schema: str

    @property
    def rows(self) -> int:
        return int(self.batch.num_rows)

    @property
    def nbytes(self) -> int:
        return int(self.batch.nbytes)

    @property
    def shape(self) -> Shape:
        return ("columns", self.schema)

    def cut(self, start: int, stop: int) -> "Columns":
        return Columns(self.batch.slice(start, stop - start), self.schema)

    def owned(self) -> "Columns":
        return Columns(self.batch.take(np.arange(self.rows)), self.schema)
