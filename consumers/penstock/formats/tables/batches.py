"""Makes rows of Arrow record batches: numbers, JSON objects, or columns as they are.

Rule: columns are decoded in steps of `STEP_BYTES`; the decoded size is computed first, with names
that are written into each row, and counts for `limits.expansion_ratio`. Only columns of
`rows.columns` are looked at. A value that cannot be makes its own row bad; of numbers also a null,
unless `rows.missing` gives one, and a list of another length than its column's first.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.rows.payload import NO_TIME, Columns, Kept, Matrix, schema_key
from penstock.errors import Poison
from penstock.formats.archives.unpacking import TABLE_FREE_BYTES, Expansion
from penstock.formats.kept_columns import moments, with_kept
from penstock.formats.runs import RowOptions, Run, bad_row, too_long
from penstock.formats.tables.added_columns import named_ranges, unnamed_index
from penstock.formats.tables.json_values import check_values, json_text, objects, plain
from penstock.formats.tables.weight import (
    LIST_VIEWS,
    LISTS,
    TEXTS,
    fixed_bytes,
    key_bytes,
    weights_of,
)
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
# Types that other libraries write, and of which pyarrow has no arrays.
_UNKNOWN: Final = (pa.lib.Type_INTERVAL_MONTHS, pa.lib.Type_INTERVAL_DAY_TIME)
# The errors that the library and we raise for values that cannot be.
_ODD: Final = (pa.ArrowException, ValueError, OverflowError, RecursionError)

Mask = npt.NDArray[np.bool_]


def unreadable(what: str, error: Exception) -> Poison:
    """The error for data that a library cannot read."""
    reason = str(error).partition("\n")[0]
    return Poison("bad_format", f"{what} cannot be read: {reason}; write it again")


class TableReader:
    """Makes rows of batches. `names`: the names of the columns that a batch must have."""

    def __init__(self, schema: pa.Schema, options: RowOptions, stored_bytes: int) -> None:
        self._options = options
        self._stored_bytes = stored_bytes
        self.count_anew(1)
        self._given = _chosen(schema, options)
        self.names = list(dict.fromkeys([*self._given, *options.stays]))
        fields = [_field(schema, name) for name in self.names]
        if not self._given:
            raise Poison("bad_format", "the table has no columns")
        # How many numbers a row has in each column; 0 for lists until their first row has come.
        self._widths: list[int] = []
        self._lists: set[str] = set()
        if options.form == "matrix":
            given = fields[: len(self._given)]
            self._widths = [_width(field) for field in given]
            self._lists = {field.name for field in given if not _width(field)}
            self._check_width()
        # How many bytes of a row are in columns whose types have a fixed size.
        self.fixed_bytes = sum(fixed_bytes(field.type) for field in fields)
        written = [*(self._given if options.form == "json" else ()), *options.keep]
        self._names_bytes = sum(key_bytes(name) for name in written)
        self._schema = ""

    def count_anew(self, share: float) -> None:
        """From here on, rows expand by themselves: where they end is the same in each try, whatever
        was skipped before. `share`: of the table that these rows are.
        """
        free_bytes = max(STEP_BYTES, int(TABLE_FREE_BYTES * share))
        self._expansion = Expansion(self._options, free_bytes=free_bytes)
        self._expansion.add(int(self._stored_bytes * share), 0)

    @property
    def is_settled(self) -> bool:
        """False: rows that come may still decide how many numbers a row has."""
        return all(self._widths)

    def runs(self, batch: pa.RecordBatch) -> Iterator[Run]:
        """The rows of one batch."""
        try:
            for start in range(0, batch.num_rows, MOST_STEP_ROWS):
                yield from self._weighed(batch.slice(start, MOST_STEP_ROWS))
        except _ODD as error:
            raise Poison("bad_format", f"the table cannot be read: {error}") from error

    def _weighed(self, batch: pa.RecordBatch) -> Iterator[Run]:
        """The rows, which are decoded in steps. A row that would be too large in every form is bad,
        and is not decoded.
        """
        row_weights = sum(weights_of(batch.column(name)) for name in self.names) + self._names_bytes
        weights = np.broadcast_to(np.asarray(row_weights, np.int64), batch.num_rows)
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
        columns = {name: plain(batch.column(name)) for name in self.names}
        try:
            runs = list(self._runs(columns, batch.num_rows))
        except _ODD:
            runs = list(self._without_odd(columns, batch.num_rows))
        yield from runs

    def _runs(self, values: dict[str, Any], rows: int) -> Iterator[Run]:
        columns = [values[name] for name in self._given]
        if self._options.form == "matrix":
            runs = self._matrix(columns, rows)
        elif self._options.form == "json":
            runs = self._json(columns)
        else:
            runs = iter((self._columns(columns),))
        yield from runs if not self._options.stays else self._with_kept(runs, values)

    def _without_odd(self, values: dict[str, Any], rows: int) -> Iterator[Run]:
        """The rows of columns in which some value cannot be. Such a value makes its row bad; if it
        is only kept, it becomes null.
        """
        why: dict[int, str] = {}
        for name, column in values.items():
            if name not in self._given:
                odd = _odd_rows(name, column, json_text)
                places = pa.array(np.arange(rows), mask=np.isin(np.arange(rows), list(odd)))
                values[name] = column.take(places) if odd else column
            elif self._options.form == "columns":
                why |= _odd_rows(
                    name, column, lambda part: check_values(part.take(np.arange(len(part))))
                )
            else:
                why |= _odd_rows(name, column, json_text)
        for start, stop in _stretches(np.isin(np.arange(rows), list(why))):
            if start in why:
                yield from (bad_row(why[row]) for row in range(start, stop))
            else:
                part = {
                    name: column.take(np.arange(start, stop)) for name, column in values.items()
                }
                yield from self._runs(part, stop - start)

    def _with_kept(self, runs: Iterator[Run], values: dict[str, Any]) -> Iterator[Run]:
        options = self._options
        staying = [values[name] for name in options.keep]
        kept = Kept(
            objects(options.keep, staying) if staying else None,
            _moments(values[options.time], options) if options.time is not None else None,
        )
        rows = range(len(next(iter(values.values()))))
        return with_kept(runs, rows, lambda some: kept.cut(some[0], some[-1] + 1))

    def _columns(self, columns: list[Any]) -> Run:
        for column in columns:
            check_values(column)
        columns = [getattr(column, "storage", column) for column in columns]
        batch = pa.record_batch(columns, names=self._given)
        if not self._schema:
            self._schema = schema_key(batch.schema.serialize())
        return Run(batch.num_rows, Columns(batch, self._schema))

    def _matrix(self, columns: list[Any], rows: int) -> Iterator[Run]:
        if not self.is_settled:
            for index, column in enumerate(columns):
                self._widths[index] = self._widths[index] or _first_length(column)
            self._check_width()
        values = np.empty((rows, sum(self._widths)), np.float32)
        whys: list[tuple[Mask, str]] = []
        is_null = np.zeros(rows, np.bool_)
        at = 0
        with np.errstate(over="ignore", invalid="ignore"):
            for name, column, width in zip(self._given, columns, self._widths, strict=True):
                is_other = _other_lengths(column, width) if name in self._lists else None
                if is_other is None:
                    numbers, nulls = _numbers(column, width)
                else:
                    whys.append((is_other, f'column "{name}" {_not_as_long(width)}'))
                    some = column.take(pa.array(np.arange(rows), mask=is_other))
                    numbers, nulls = _numbers(some, width)
                values[:, at : at + width] = numbers
                at += width
                if nulls is not None:
                    is_null |= nulls
        if self._options.missing is None:
            whys.append((is_null, "a value is null, no number (see rows.missing)"))
        else:
            values[np.isnan(values)] = self._options.missing
        if not any(is_bad.any() for is_bad, _ in whys):
            yield Run(rows, Matrix(values))
        else:
            yield from _without_bad(values, whys)

    def _check_width(self) -> None:
        width = sum(self._widths)
        if width > self._options.max_columns:
            raise Poison(
                "too_large",
                f"a row has {width} numbers, at most {self._options.max_columns} are read "
                "(limits.columns)",
            )

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


def _stretches(mask: npt.NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Where each stretch of equal values begins and ends."""
    edges = np.flatnonzero(np.diff(mask)) + 1
    return pairwise([0, *edges.tolist(), len(mask)])


def _moments(column: Any, options: RowOptions) -> npt.NDArray[np.int64]:
    """The time of each row in epoch milliseconds."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("ms"))
    kind, types = column.type, pa.types
    if not types.is_timestamp(kind):
        may_be_time = kind.id in TEXTS or types.is_integer(kind) or types.is_floating(kind)
        # A value of another type is no time, whatever it is.
        values = column.to_pylist() if may_be_time else [kind] * len(column)
        return Kept.of(None, moments(values, options)).times  # type: ignore[return-value]
    times = column.cast(pa.int64()).fill_null(NO_TIME).to_numpy()
    many, few = _TO_MS[kind.unit]
    inside = (times >= EARLIEST_MS * few // many) & (times < (LATEST_MS + 1) * few // many)
    inside &= times != NO_TIME
    return np.where(inside, np.where(inside, times, 0) * many // few, NO_TIME)


def _chosen(schema: pa.Schema, options: RowOptions) -> list[str]:
    names: list[str] = schema.names
    if len(set(names)) < len(names):
        raise Poison("bad_format", "two columns of the table have the same name")

    def absent(column: str | int) -> str:
        known = ", ".join(names[:_SHOWN_COLUMNS])
        return f'no column "{column}" in the table: it has {known}'

    for name in set(named_ranges(schema)).difference(names):
        options.notices.once(
            f'tables have row labels of pandas, "{name}", as a note of their range and not as a '
            "column, so rows do not have them; write them after reset_index() if they are needed"
        )
    picked = chosen(names, options, absent)
    added = unnamed_index(schema) if options.columns is None else ()
    if left_out := [name for name in picked if name in added]:
        options.notices.once(
            f"tables have columns with the labels of a pandas frame's rows, as {left_out[0]}; "
            "they have no name, so they are left out (rows.columns can name them)"
        )
    return [name for name in picked if name not in left_out]


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
    picked: list[str] = []
    for column in options.columns:
        if isinstance(column, int) and 0 <= column < len(names):
            picked.append(names[column])
        elif column in names:
            picked.append(str(column))
        else:
            raise Poison("bad_format", absent(column))
    return picked


def _field(schema: pa.Schema, name: str) -> pa.Field:
    field = schema.field(name)
    if not _is_known(field.type):
        raise Poison(
            "bad_format",
            f'column "{name}" holds {field.type}, which is not read; choose others with '
            "rows.columns, or write it as another type",
        )
    return field


def _is_known(kind: pa.DataType) -> bool:
    """False: pyarrow has no arrays of this type."""
    if kind.id in _UNKNOWN:
        return False
    return all(_is_known(kind.field(index).type) for index in range(kind.num_fields))


def _width(field: pa.Field) -> int:
    """How many numbers a row has in this column; 0: the lists of the column tell. Raises `Poison`
    if the column holds something else than numbers.
    """
    kind = field.type
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_fixed_size_list(kind) and _is_number(kind.value_type):
        return int(kind.list_size)
    if kind.id in (*LISTS, *LIST_VIEWS) and _is_number(kind.value_type):
        return 0
    if _is_number(kind):
        return 1
    raise Poison(
        "bad_format",
        f'column "{field.name}" holds {field.type}, no numbers; choose others with rows.columns, '
        "or a model.request that takes it",
    )


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    is_number = types.is_integer(kind) or types.is_floating(kind)
    return bool(is_number or types.is_boolean(kind) or types.is_decimal(kind))


def _lengths(column: Any) -> npt.NDArray[np.int64]:
    """The length of each list; -1 for null."""
    lengths: npt.NDArray[np.int64] = (
        pc.list_value_length(column).cast(pa.int64()).fill_null(-1).to_numpy()
    )
    return lengths


def _first_length(column: Any) -> int:
    """The length of the first list that is not empty; 0 if there is none."""
    lengths = _lengths(column)
    return int(lengths[np.argmax(lengths > 0)]) if (lengths > 0).any() else 0


def _other_lengths(column: Any, width: int) -> Mask | None:
    """A mask of the lists whose length is not `width`; None if there is none. `column`: lists."""
    lengths = _lengths(column)
    is_other: Mask = (lengths != max(1, width)) & (lengths >= 0)
    return is_other if is_other.any() else None


def _not_as_long(width: int) -> str:
    first = f"of another length than the first list, which has {width} numbers"
    return f"has a list {first}" if width else "has an empty list"


def _numbers(column: Any, width: int) -> tuple[npt.NDArray[Any], Mask | None]:
    """Returns two arrays. The first one has the numbers, in the shape (rows, width). The second one
    is a mask of the rows that have a null; it is None if no row has a null. If rows are lists, each
    of them is null or has `width` numbers.
    """
    rows = len(column)
    nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    if pa.types.is_nested(column.type):
        items, are_null = _numbers(column.flatten(), 1)  # without the items of lists that are null
        numbers = items.reshape(rows - column.null_count, width)
        inner: Mask | None = None
        if are_null is not None:
            inner = np.asarray(are_null.reshape(numbers.shape).any(axis=1))
        if nulls is None:
            return numbers, inner
        whole = np.full((rows, width), np.nan, np.promote_types(numbers.dtype, np.float32))
        whole[~nulls] = numbers
        if inner is not None:
            nulls[~nulls] = inner
        return whole, nulls
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    elif not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        column = column.cast(pa.float64())
    # If there are nulls, the numbers become floats, and each null becomes NaN.
    return column.to_numpy(zero_copy_only=False).reshape(rows, width), nulls


def _without_bad(
    values: npt.NDArray[np.float32], whys: Sequence[tuple[Mask, str]]
) -> Iterator[Run]:
    """The runs of the good rows and of the bad rows. `whys`: masks of bad rows, with their reasons.
    A row that is in several masks gets the reason of the first.
    """
    reason = np.full(len(values), -1)
    for number, (is_bad, _) in reversed(list(enumerate(whys))):
        reason[is_bad] = number
    for start, stop in _stretches(reason):
        if reason[start] >= 0:
            yield Run(stop - start, None, whys[reason[start]][1])
        else:
            yield Run(stop - start, Matrix(np.ascontiguousarray(values[start:stop])))


def _odd_rows(name: str, column: Any, check: Callable[[Any], object]) -> dict[int, str]:
    """For each row whose value in this column cannot be: why. `check`: a function that raises an
    error if some value of a column cannot be.
    """
    try:
        check(column.slice(0, 0))
    except _ODD as error:
        raise Poison("bad_format", f'column "{name}" cannot be read: {error}') from error
    odd: dict[int, str] = {}

    def search(start: int, stop: int) -> None:
        try:
            check(column.slice(start, stop - start))
        except _ODD as error:
            if stop - start == 1:
                odd[start] = f'column "{name}" holds {error}'
                return
            middle = (start + stop) // 2
            search(start, middle)
            search(middle, stop)

    search(0, len(column))
    return odd
