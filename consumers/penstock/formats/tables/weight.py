"""How large the values of an Arrow column will be when they are decoded, without decoding them.

Rule: a dictionary, a view or a run may repeat one value any number of times. Each value, a null
included, counts at least one byte, and the names in a struct count in each row, because JSON
repeats them.
"""

from collections.abc import Generator, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]
# The sizes of all values, or a single number if all values have the same size.
Weights = Numbers | int
Steps = Generator[None, None, Weights]

# Types that differ only in how their values are stored.
TEXTS: Final = (pa.lib.Type_STRING, pa.lib.Type_LARGE_STRING, pa.lib.Type_STRING_VIEW)
BINARIES: Final = (pa.lib.Type_BINARY, pa.lib.Type_LARGE_BINARY, pa.lib.Type_BINARY_VIEW)
LISTS: Final = (pa.lib.Type_LIST, pa.lib.Type_LARGE_LIST)
LIST_VIEWS: Final = (pa.lib.Type_LIST_VIEW, pa.lib.Type_LARGE_LIST_VIEW)

# A value that is larger counts as this much: views of views of views may name more than a number
# of 8 bytes can say.
_MOST: Final = 1 << 31
# A view has 16 bytes: four numbers of 4 bytes, of which the first is the length of its value.
_VIEW_NUMBERS: Final = 4
# So many values of a dictionary are weighed at a time: their sizes stay in the processor's cache.
_STEP_ROWS: Final = 64 << 10
# So many fields of a struct are weighed in a step.
_STEP_FIELDS: Final = 64


def key_bytes(name: str) -> int:
    """How many bytes a name takes in each JSON object, with the quotes, colon and comma."""
    return len(orjson.dumps(name)) + 2


def weights_of(column: Any) -> Weights:
    """The decoded size of each value, in bytes."""
    steps = weighing(column)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            weights: Weights = end.value
            return weights


def weighing(column: Any) -> Steps:
    """As `weights_of`, in steps: None is given between some fields of a struct, which may have any
    number of them.
    """
    kind, types, rows = column.type, pa.types, len(column)
    if isinstance(column, pa.ExtensionArray):
        return (yield from weighing(column.storage))
    if types.is_dictionary(kind):
        weights = yield from weighing(column.dictionary)
        return _joined(steps_at(weights, column.indices))
    if types.is_run_end_encoded(kind):
        return _of_runs(column, (yield from weighing(column.values)))
    if types.is_struct(kind):
        of_fields = yield from _of_fields(column)
        return of_fields + sum(key_bytes(field.name) for field in kind)
    if types.is_union(kind):
        return (yield from _of_union(column))
    if types.is_fixed_size_list(kind):
        size = kind.list_size
        values = column.values.slice(column.offset * size, rows * size)
        of_values = yield from weighing(values)
        if isinstance(of_values, int):
            return int(min(_MOST, 1 + size * of_values))
        lists: Numbers = 1 + of_values.reshape(rows, size).sum(axis=1)
        return lists.clip(max=_MOST)
    if kind.id in LIST_VIEWS:
        starts, sizes = column.offsets.to_numpy(), column.sizes.to_numpy()
        of_values = yield from weighing(column.values)
        return _of_lists(of_values, starts.astype(np.int64), sizes.astype(np.int64))
    if kind.id in LISTS or types.is_map(kind):
        offsets = column.offsets.to_numpy().astype(np.int64)
        values = column.values.slice(offsets[0], offsets[-1] - offsets[0])
        of_values = yield from _of_fields(values) if types.is_map(kind) else weighing(values)
        return _of_lists(of_values, offsets[:-1] - offsets[0], np.diff(offsets))
    return _of_flat(column)


def _of_fields(column: Any) -> Generator[None, None, Numbers]:
    """The sizes of structs without their names."""
    weights = np.ones(len(column), np.int64)
    for index in range(column.type.num_fields):
        if index % _STEP_FIELDS == _STEP_FIELDS - 1:
            yield
        weights += yield from weighing(column.field(index))
    return weights


def _of_flat(column: Any) -> Weights:
    kind, types = column.type, pa.types
    if types.is_string_view(kind) or types.is_binary_view(kind):
        views = np.frombuffer(column.buffers()[1], np.int32)
        lengths = views[_VIEW_NUMBERS * column.offset :: _VIEW_NUMBERS][: len(column)]
        return _where_valid(column, lengths.astype(np.int64)) + 1
    if types.is_null(kind):
        return 1
    if nbytes := fixed_bytes(kind):
        return nbytes
    byte_counts: Numbers = pc.binary_length(column).fill_null(0).cast(pa.int64()).to_numpy()
    return byte_counts + 1


def fixed_bytes(kind: pa.DataType) -> int:
    """The decoded size of each value of the type; 0: the type has a variable length."""
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return 0


def _where_valid(column: Any, lengths: Numbers) -> Numbers:
    if not column.null_count:
        return lengths
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), lengths, 0)


def steps_at(weights: Weights, places: Any) -> Iterator[Numbers]:
    """The sizes of the values at these places, some at a time. A null place has a null."""
    known = None if isinstance(weights, int) else np.append(weights, 1)
    for first in range(0, len(places), _STEP_ROWS):
        step = places.slice(first, _STEP_ROWS)
        if known is None:
            yield np.full(len(step), weights, np.int64)
        else:
            yield known[step.cast(pa.int64()).fill_null(-1).to_numpy()]


def _joined(steps: Iterator[Numbers]) -> Numbers:
    return np.concatenate([np.empty(0, np.int64), *steps])


def _of_runs(column: Any, weights: Weights) -> Weights:
    if isinstance(weights, int):
        return weights
    first, last = column.offset, column.offset + len(column)
    ends = column.run_ends.to_numpy().astype(np.int64).clip(first, last)
    return np.repeat(weights, np.diff(ends, prepend=first))


def _of_union(column: Any) -> Steps:
    weights = np.ones(len(column), np.int64)
    for values, places, is_one in by_type(column):
        of_values = yield from weighing(values)
        weights[is_one] = _joined(steps_at(of_values, pa.array(places[is_one])))
    return weights


def by_type(union: Any) -> Iterator[tuple[Any, Numbers, npt.NDArray[np.bool_]]]:
    """Three things for each type of the union: its values, the place of each row among these
    values, and a mask of the rows that have this type.
    """
    kind, rows = union.type, len(union)
    if union.offset:  # `type_codes` and `offsets` ignore the offset
        union = union.take(pa.array(np.arange(rows)))
    codes = union.type_codes.to_numpy()
    places = union.offsets.to_numpy() if kind.mode == "dense" else np.arange(rows)
    for index, code in enumerate(kind.type_codes):
        yield union.field(index), places, codes == code


def _of_lists(of_values: Weights, starts: Numbers, sizes: npt.NDArray[np.int64]) -> Numbers:
    if isinstance(of_values, int):
        whole: Numbers = 1 + sizes * of_values
    else:
        sums = np.concatenate([[0], np.cumsum(of_values)])
        whole = 1 + sums[starts + sizes] - sums[starts]
    return whole.clip(max=_MOST)
