"""Rows as the tensors that a model of the Open Inference Protocol wants.

Rule: nothing is bent to fit: a number that the datatype does not have refuses its row, alone and
before it is sent. Rows of numbers move as one matrix; only JSON rows that do not all fit are looked
at one by one. Pure functions; owner: the adapters of the protocol.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import orjson

from consumers.adapters.oip_signature import BYTES, Signature, Tensor
from consumers.core.payload import JsonRows, Matrix, Payload
from consumers.errors import Poison, Rejected

Array = npt.NDArray[Any]
_length = struct.Struct("<I").pack


class Column(NamedTuple):
    """One input of a request: an array, its first dimension the rows, or texts in row order."""

    tensor: Tensor
    shape: tuple[int, ...]
    values: Array | list[bytes]

    def raw(self) -> bytes | memoryview:
        """As a binary tensor."""
        if isinstance(self.values, list):
            lengths = map(_length, map(len, self.values))
            return b"".join(chain.from_iterable(zip(lengths, self.values, strict=True)))
        return np.ascontiguousarray(self.values).data.cast("B")

    def kept(self, keep: npt.NDArray[np.bool_]) -> "Column":
        rows = int(keep.sum())
        if isinstance(self.values, list):
            each = len(self.values) // max(1, len(keep))
            wanted = np.repeat(keep, each).tolist()
            texts = [text for text, is_kept in zip(self.values, wanted, strict=True) if is_kept]
            return self._replace(shape=(rows, *self.shape[1:]), values=texts)
        return self._replace(shape=(rows, *self.shape[1:]), values=self.values[keep])


class Filled(NamedTuple):
    """`refused` are the rows, of all that were given, that no column holds."""

    columns: tuple[Column, ...]
    rows: int
    refused: Mapping[int, str]

    @property
    def sent(self) -> int:
        return self.rows - len(self.refused)

    def without(self, refused: Mapping[int, str]) -> "Filled":
        """`refused` by the row of the columns."""
        if not refused:
            return self
        places = [row for row in range(self.rows) if row not in self.refused]
        keep = np.ones(len(places), bool)
        keep[list(refused)] = False
        more = {places[row]: message for row, message in refused.items()}
        columns = tuple(column.kept(keep) for column in self.columns)
        return Filled(columns, self.rows, {**self.refused, **more})


def fill(wanted: Signature, payloads: Sequence[Payload]) -> Filled:
    """All rows of `payloads`, which have one shape. Raises `Rejected` where no row can fit."""
    if isinstance(payloads[0], Matrix):
        return _of_matrix(wanted, cast("Sequence[Matrix]", payloads))
    return _of_json(wanted, cast("Sequence[JsonRows]", payloads))


def fit_for_json(filled: Filled) -> Filled:
    """Without the rows that hold what JSON cannot carry."""
    bad = np.zeros(filled.sent, bool)
    for column in filled.columns:
        if isinstance(column.values, list):
            is_text = np.array([_is_text(text) for text in column.values], bool)
            bad |= ~is_text.reshape(len(bad), -1).all(axis=1)
        elif column.values.dtype.kind == "f":
            bad |= ~np.isfinite(column.values).reshape(len(bad), -1).all(axis=1)
    message = "the server takes JSON only, which has no NaN, no infinity and no bytes but UTF-8"
    return filled.without(dict.fromkeys(np.flatnonzero(bad).tolist(), message))


def _is_text(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _of_matrix(wanted: Signature, matrices: Sequence[Matrix]) -> Filled:
    values = [matrix.values for matrix in matrices]
    matrix = values[0] if len(values) == 1 else np.concatenate(values)
    shapes = _shapes(wanted, matrix.shape[1])
    if shapes is None:
        raise Rejected(
            "model_rejected",
            f"the model wants {wanted}, the rows have {matrix.shape[1]} numbers",
        )
    columns, complaints, begin = [], {}, 0
    for tensor, shape in zip(wanted.inputs, shapes, strict=True):
        end = begin + math.prod(shape)
        part, misfits = _cast(matrix[:, begin:end], tensor)
        complaints.update(misfits)
        columns.append(Column(tensor, (len(part), *shape), part.reshape(len(part), *shape)))
        begin = end
    return Filled(tuple(columns), len(matrix), {}).without(complaints)


def _shapes(wanted: Signature, numbers: int) -> list[tuple[int, ...]] | None:
    """The shape of one row of each input, together of so many numbers; None where none fits."""
    if wanted.takes_text:
        return None
    known = sum(one.numbers or 0 for one in wanted.inputs)
    shapes = [_resolved(one.shape, numbers - known) for one in wanted.inputs]
    found = [shape for shape in shapes if shape is not None]
    fits = len(found) == len(shapes) and sum(map(math.prod, found)) == numbers
    return found if fits else None


def _resolved(shape: tuple[int, ...], numbers: int) -> tuple[int, ...] | None:
    """With the one dimension that may vary as it must be for so many numbers."""
    if -1 not in shape:
        return shape
    others = math.prod(size for size in shape if size != -1)
    if shape.count(-1) > 1 or not others or numbers <= 0 or numbers % others:
        return None
    return tuple(numbers // others if size == -1 else size for size in shape)


def _cast(values: Array, tensor: Tensor) -> tuple[Array, dict[int, str]]:
    """As the tensor's datatype, and the rows that hold what it does not have."""
    dtype = tensor.dtype
    if values.dtype == dtype:
        return values, {}
    with np.errstate(invalid="ignore", over="ignore"):
        made = values.astype(dtype)
    if dtype.kind == "f":
        misfits = np.isfinite(values) & ~np.isfinite(made) if values.dtype.kind == "f" else None
    else:
        # Nothing of another kind is equal to what it was cut to, NaN included.
        misfits = made != values
    if misfits is None or not misfits.any():
        return made, {}
    by_row = misfits.reshape(len(made), -1)
    flat = values.reshape(len(made), -1)
    rows = np.flatnonzero(by_row.any(axis=1)).tolist()
    return made, {
        row: f"{flat[row, int(by_row[row].argmax())]} is no {tensor.datatype}; the model wants "
        f"{tensor}"
        for row in rows
    }


def _of_json(wanted: Signature, payloads: Sequence[JsonRows]) -> Filled:
    elements = orjson.loads(b"[%b]" % b",".join([payload.body for payload in payloads]))
    at_once = _at_once(wanted, elements)
    if at_once is not None:
        return at_once
    picked = [_picked(wanted, element) for element in elements]
    refused = {row: one for row, one in enumerate(picked) if isinstance(one, str)}
    kept = [one for one in picked if not isinstance(one, str)]
    columns = []
    for place, tensor in enumerate(wanted.inputs):
        values = [row[place] for row in kept]
        if tensor.datatype == BYTES:
            shape = (len(values), *(size if size != -1 else 1 for size in tensor.shape))
            columns.append(Column(tensor, shape, list(chain.from_iterable(values))))
            continue
        if len({value.shape for value in values}) > 1:
            # Halved until those of one shape are together.
            raise Poison("too_large", "rows of different shapes cannot be in one request")
        stacked = np.stack(values) if values else np.empty((0, *map(abs, tensor.shape)))
        columns.append(Column(tensor, stacked.shape, stacked.astype(tensor.dtype)))
    return Filled(tuple(columns), len(elements), refused)


def _at_once(wanted: Signature, elements: list[Any]) -> Filled | None:
    """Where all rows are plain numbers for the only input, of the right kind and shape."""
    if len(wanted.inputs) != 1 or wanted.takes_text:
        return None
    [tensor] = wanted.inputs
    try:
        array = np.asarray(elements)
    except ValueError:
        return None
    # Whole numbers that came with others as floats may have lost digits.
    if array.dtype.kind not in ("iub" if tensor.dtype.kind in "iub" else "iuf"):
        return None
    shape = _resolved(tensor.shape, math.prod(array.shape[1:]))
    if shape is None or array.shape[1:] not in (shape, (math.prod(shape),)):
        return None
    array, misfits = _cast(array, tensor)
    column = Column(tensor, (len(array), *shape), array.reshape(len(array), *shape))
    return Filled((column,), len(elements), {}).without(misfits)


def _picked(wanted: Signature, element: Any) -> list[Any] | str:
    """A row's value for each input, texts in a list; or why it has none."""
    inputs = wanted.inputs
    if isinstance(element, dict):
        missing = [one.name for one in inputs if one.name not in element]
        is_named = not missing or len(inputs) > 1 or inputs[0].datatype != BYTES
        if missing and is_named:
            return f"the row has no {', '.join(missing)}; the model wants {wanted}"
        given = [element[one.name] for one in inputs] if is_named else [element]
    elif len(inputs) == 1:
        given = [element]
    elif isinstance(element, list) and len(element) == len(inputs):
        given = element
    else:
        return f"the row is no object with {', '.join(one.name for one in inputs)}"
    values = [_value(tensor, one) for tensor, one in zip(inputs, given, strict=True)]
    return next((value for value in values if isinstance(value, str)), values)


def _value(tensor: Tensor, given: Any) -> Any:
    """As an array of the row's shape, or a list of texts; or why it is neither."""
    misfit = f"the row is not what the model wants: {tensor}"
    if tensor.datatype == BYTES:
        texts = given if isinstance(given, list) and math.prod(tensor.shape) != 1 else [given]
        if len(texts) != (tensor.numbers or 1):
            return misfit
        return [one.encode() if isinstance(one, str) else orjson.dumps(one) for one in texts]
    try:
        array = np.asarray(given)
    except ValueError:
        return misfit
    shape = _resolved(tensor.shape, array.size)
    if array.dtype.kind not in "iufb" or shape is None:
        return misfit
    if array.shape not in (shape, (math.prod(shape),)) and not (array.ndim == 0 and shape == (1,)):
        return f"the row has {array.size} numbers, the model wants {tensor}"
    made, misfits = _cast(array.reshape(1, -1), tensor)
    return misfits[0] if misfits else made.reshape(shape)
