"""Makes rows of Arrow record batches: numbers, JSON objects, or columns as they are.

Rule: the columns are decoded in steps of so many rows that a step has `STEP_BYTES` when it is
decoded. The decoded size is computed first, and counts for `limits.expansion_ratio`. `rows.columns`
chooses columns by name or place. If rows are numbers, a null makes its row bad, unless
`rows.missing` gives a number for nulls. Owner: the reader of one object.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.rows.payload import NO_TIME, Columns, Kept, Matrix
from penstock.errors import Poison
from penstock.formats.archives.compression import TABLE_FREE_BYTES, Expansion
from penstock.formats.base.kept_columns import moments, with_kept
from penstock.formats.base.runs import RowOptions, Run, bad_row, too_long
from penstock.formats.tables.json_values import objects, plain
from penstock.formats.tables.weight import weights_of
from penstock.messages.times import EARLIEST_MS, LATEST_MS

_SHOWN_COLUMNS: Final = 20
# For each unit of time: the factor and the divisor that convert it to milliseconds.
_TO_MS: Final = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
# At most this much is decoded at a time, unless a row is larger.
STEP_BYTES: Final = 1 << 20
MOST_STEP_ROWS: Final = 16_384
# A number that takes 8 bytes when it is decoded may be one digit in JSON. So a row is certain to be
# above `limits.row_bytes`, whatever its form, only if it decodes to more than 8 times as much.
_BYTES_A_DIGIT: Final = 8


def unreadable(what: str, error: Exception) -> Poison:
    """The error for data that a library cannot read."""
    said = str(error).partition("\n")[0]
    return Poison("bad_format", f"{what} cannot be read: {said}; write it again")


class TableReader:
    """Makes rows of batches. `names`: the names of the columns that a batch must have."""

    def __init__(self, schema: pa.Schema, options: RowOptions, stored_bytes: int) -> None:
        self._options = options
        self._expansion = Expansion(options, free_bytes=TABLE_FREE_BYTES)
        self._expansion.add(stored_bytes, 0)
        self._given = _chosen(schema, options)
        self.names = list(dict.fromkeys([*self._given, *options.stays]))
        fields = [schema.field(name) for name in self._given]
        if not fields:
            raise Poison("bad_format", "the table has no columns")
        self._width = 0
        if options.form == "matrix":
            self._width = sum(_width(field) for field in fields)
            if self._width > options.max_columns:
                raise Poison(
                    "too_large",
                    f"a row has {self._width} numbers, at most {options.max_columns} are read "
                    "(limits.columns)",
                )
        # How many bytes of a row are in columns whose types have a fixed size.
        self.fixed_bytes = sum(_bytes_of(schema.field(name).type) for name in self.names)
        self._schema = ""

    def runs(self, batch: pa.RecordBatch) -> Iterator[Run]:
        """The rows of one batch."""
        try:
            for start in range(0, batch.num_rows, MOST_STEP_ROWS):
                yield from self._weighed(batch.slice(start, MOST_STEP_ROWS))
        except (pa.ArrowException, ValueError, OverflowError, RecursionError) as error:
            raise Poison("bad_format", f"a column cannot be read: {error}") from error

    def _weighed(self, batch: pa.RecordBatch) -> Iterator[Run]:
        """The rows, which are decoded in steps. A row that would be too large in every form is bad,
        and is not decoded.
        """
        found = sum(weights_of(batch.column(name)) for name in self.names)
        weights = np.broadcast_to(np.asarray(found, np.int64), batch.num_rows)
        is_heavy = weights > _BYTES_A_DIGIT * self._options.row_bytes
        for start, stop in _stretches(is_heavy):
            if is_heavy[start]:
                yield from [bad_row(too_long(self._options.row_bytes))] * (stop - start)
                continue
            for at, end in _steps(weights[start:stop]):
                self._expansion.add(0, int(weights[start + at : start + end].sum()))
                self._expansion.check()
                yield from self._decoded(batch.slice(start + at, end - at))

    def _decoded(self, batch: pa.RecordBatch) -> Iterator[Run]:
        found = {name: plain(batch.column(name)) for name in self.names}
        runs = self._runs([found[name] for name in self._given], batch.num_rows)
        yield from runs if not self._options.stays else self._with_kept(runs, found)

    def _runs(self, columns: list[Any], rows: int) -> Iterator[Run]:
        if self._options.form == "matrix":
            yield from self._matrix(columns, rows)
        elif self._options.form == "json":
            yield from self._json(columns)
        else:
            yield self._columns(columns)

    def _with_kept(self, runs: Iterator[Run], found: dict[str, Any]) -> Iterator[Run]:
        options = self._options
        staying = [found[name] for name in options.keep]
        kept = Kept(
            objects(options.keep, staying) if staying else None,
            _moments(found[options.time], options) if options.time is not None else None,
        )
        rows = range(len(next(iter(found.values()))))
        return with_kept(runs, rows, lambda some: kept.cut(some[0], some[-1] + 1))

    def _columns(self, columns: list[Any]) -> Run:
        batch = pa.record_batch(columns, names=self._given)
        if not self._schema:
            self._schema = str(batch.schema)
        return Run(batch.num_rows, Columns(batch, self._schema))

    def _matrix(self, columns: list[Any], rows: int) -> Iterator[Run]:
        values = np.empty((rows, self._width), np.float32)
        is_null: npt.NDArray[np.bool_] | None = None
        at = 0
        with np.errstate(over="ignore", invalid="ignore"):
            for column in columns:
                numbers, nulls = _numbers(column)
                values[:, at : at + numbers.shape[1]] = numbers
                at += numbers.shape[1]
                if nulls is not None:
                    is_null = nulls if is_null is None else is_null | nulls
        if self._options.missing is not None:
            values[np.isnan(values)] = self._options.missing
            is_null = None
        if is_null is None or not is_null.any():
            yield Run(rows, Matrix(values))
        else:
            yield from _without_nulls(values, is_null)

    def _json(self, columns: list[Any]) -> Iterator[Run]:
        rows = objects(self._given, columns)
        lengths = np.diff(rows.ends, prepend=-1) - 1
        if lengths.max() <= self._options.row_bytes:
            yield Run(rows.rows, rows)
            return
        for row, length in enumerate(lengths.tolist()):
            if length > self._options.row_bytes:
                yield bad_row(too_long(self._options.row_bytes))
            else:
                yield Run(1, rows.cut(row, row + 1).owned())


def _steps(weights: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Where each step begins and ends. A step has at most `STEP_BYTES`, or it has a single row."""
    sums = np.cumsum(weights)
    start = nbytes = 0
    while start < len(weights):
        stop = max(start + 1, int(np.searchsorted(sums, nbytes + STEP_BYTES, side="right")))
        yield start, stop
        start, nbytes = stop, int(sums[stop - 1])


def _stretches(mask: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Where each stretch of equal values begins and ends."""
    edges = np.flatnonzero(np.diff(mask)) + 1
    return pairwise([0, *edges.tolist(), len(mask)])


def _moments(column: Any, options: RowOptions) -> npt.NDArray[np.int64]:
    """The time of each row in epoch milliseconds."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("ms"))
    if not pa.types.is_timestamp(column.type):
        # A value of another type is no time, whatever it is.
        values = column.to_pylist() if _may_be_time(column.type) else [column.type] * len(column)
        return Kept.of(None, moments(values, options)).times  # type: ignore[return-value]
    found = column.cast(pa.int64()).fill_null(NO_TIME).to_numpy()
    many, few = _TO_MS[column.type.unit]
    inside = (found >= EARLIEST_MS * few // many) & (found < (LATEST_MS + 1) * few // many)
    inside &= found != NO_TIME
    return np.where(inside, np.where(inside, found, 0) * many // few, NO_TIME)


def _may_be_time(kind: pa.DataType) -> bool:
    types = pa.types
    is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    return bool(is_text or types.is_integer(kind) or types.is_floating(kind))


def _chosen(schema: pa.Schema, options: RowOptions) -> list[str]:
    names: list[str] = schema.names
    if len(set(names)) < len(names):
        raise Poison("bad_format", "two columns of the table have the same name")

    def absent(column: str | int) -> str:
        known = ", ".join(names[:_SHOWN_COLUMNS])
        return f'no column "{column}" in the table: it has {known}'

    return chosen(names, options, absent)


def chosen(
    names: Sequence[str], options: RowOptions, absent: Callable[[str | int], str]
) -> list[str]:
    """The names of the columns that the model gets. Raises `Poison` if a configured column is
    missing. `absent`: a function that gives the text of this error.
    """
    for name in options.stays:
        if name not in names:
            raise Poison("bad_format", absent(name))
    if options.columns is None:
        return [name for name in names if name not in options.stays]
    found: list[str] = []
    for column in options.columns:
        if isinstance(column, int) and 0 <= column < len(names):
            found.append(names[column])
        elif column in names:
            found.append(str(column))
        else:
            raise Poison("bad_format", absent(column))
    return found


def _width(field: pa.Field) -> int:
    """How many numbers a row has in this column. Raises `Poison` if the column holds something else
    than numbers.
    """
    kind = field.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_fixed_size_list(kind) and _is_number(kind.value_type):
        return int(kind.list_size)
    if _is_number(kind):
        return 1
    raise Poison(
        "bad_format",
        f'column "{field.name}" holds {field.type}, no numbers; choose others with rows.columns, '
        "or a model.request that takes it",
    )


def _bytes_of(kind: pa.DataType) -> int:
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:  # the type has a variable length
        return 0


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_decimal(kind)
    )


def _numbers(column: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    """Returns two arrays. The first one has the numbers, in the shape (rows, numbers of a row). The
    second one is a mask of the rows that have a null; it is None if no row has a null.
    """
    rows, width = len(column), 1
    nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    if pa.types.is_fixed_size_list(column.type):
        width = column.type.list_size
        # `flatten` cannot be used here, because it leaves out the values of a list that is null,
        # and their places with them.
        column = column.values.slice(column.offset * width, rows * width)
        if column.null_count:
            inner = column.is_null().to_numpy(zero_copy_only=False).reshape(rows, width).any(axis=1)
            nulls = inner if nulls is None else nulls | inner
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    elif not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        column = column.cast(pa.float64())
    # If there are nulls, the numbers become floats, and each null becomes NaN.
    return column.to_numpy(zero_copy_only=False).reshape(rows, width), nulls


def _without_nulls(
    values: npt.NDArray[np.float32], is_null: npt.NDArray[np.bool_]
) -> Iterator[Run]:
    """The runs of the good rows (without a null) and of the bad rows (with a null)."""
    for start, stop in _stretches(is_null):
        if is_null[start]:
            yield Run(stop - start, None, "a value is null, no number (see rows.missing)")
        else:
            yield Run(stop - start, Matrix(np.ascontiguousarray(values[start:stop])))
