"""The values of many rows together: the payload that the model takes, and the columns and times
kept for the records.

Rule: a payload never changes, and can be cut between any two rows. Payloads may share one request
if they have the same `shape`. Columns and times (`rows.keep`, `rows.time`) are kept apart, because
the model does not get them: they are cut like the payload, and inserted into the finished record.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt

from penstock.core.rows.origin import About

if TYPE_CHECKING:
    import pyarrow as pa


# The kinds of rows: numbers, a JSON element, opaque bytes (such as a frame or a document), typed
# columns.
Form = Literal["matrix", "json", "bytes", "columns"]
# A form, and the width or schema of the rows.
Shape = tuple[str, int | str]

Float32Matrix = npt.NDArray[np.float32]
Offsets = npt.NDArray[np.int64]


class Payload(Protocol):
    """At least one row; the rows are consecutive. `nbytes`: the memory that they take."""

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
        so that memory is freed only after the part.
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
    the other; `ends[i]` is where row i stops. `about`: the object of the rows; None: the model is
    not told about it.
    """

    body: bytes | memoryview
    ends: Offsets
    about: About | None = None

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
        body = memoryview(self.body)[begin:end]
        return BytesRows(body, self.ends[start:stop] - begin, self.about)

    def owned(self) -> "BytesRows":
        return BytesRows(bytes(self.body), self.ends, self.about)


def schema_key(serialized: "pa.Buffer | memoryview") -> str:
    """A text that is the same for equal schemas only. Arrow's own text of a schema is not: the name
    of one column may read like two columns. To make it takes some time, so make it once for many
    batches. `serialized`: as `Schema.serialize` makes it.
    """
    return sha256(serialized).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Rows as an Arrow record batch. `schema`: the `schema_key` of its schema."""

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
        # `take` would do as well, but knows no views, which polars writes, and no runs.
        import pyarrow as pa  # noqa: PLC0415 (large, and most rows have no columns)

        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, self.batch.schema) as writer:
            writer.write_batch(self.batch)
        with pa.ipc.open_stream(out.getvalue()) as reader:
            return Columns(reader.read_next_batch(), self.schema)


# What rows and blocks cost in the byte budget, besides their payload, for as long as they are held.
# The costs were measured on CPython 3.11 and rounded up. The first is the cost of a row until it is
# delivered: its answer, and its record, which has some 250 bytes. As a row is never cheaper, rows
# also count as so many bytes where the rows of an object are compared with its size.
ROW_COST_BYTES = 256
# The part of `ROW_COST_BYTES` that is for a short answer. The other part is for the Python objects
# around the answer.
ANSWER_BYTES = 80
# A block and its parts. Where good and bad rows alternate, each row is a block of its own.
BLOCK_COST_BYTES = 512
# A row's error, without its message.
ERROR_COST_BYTES = 256


# The time of a row that has no time. No calendar has this time: it lies before the first year of
# all of them.
NO_TIME = np.iinfo(np.int64).min
_NUMBER_BYTES = 40  # ,"event_time":-62135596800000


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """The kept values of some rows. `columns`: for each row a JSON object of its kept columns;
    `times`: for each row its time in epoch milliseconds. Either is None if no such values are kept.
    """

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
        """The largest number of bytes that the kept values of a row add to its record."""
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
