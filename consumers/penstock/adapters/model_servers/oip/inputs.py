"""Turns rows into the tensors that a model of the Open Inference Protocol wants.

Rule: numbers are passed on as one matrix, opaque rows and columns unchanged. JSON rows become one
array at once if all fit; else each is looked at by itself, and only those that do not fit are
refused. If none can, the whole request is, and the error says what the model wants.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final, cast

import numpy as np
import orjson
from msgspec.json import Encoder

from penstock.adapters.model_servers.oip.signature import (
    BYTES,
    Column,
    Filled,
    Signature,
    Tensor,
    fitted,
    resolved,
)
from penstock.core.rows.payload import BytesRows, Columns, JsonRows, Matrix, Payload
from penstock.errors import Poison, Rejected

# For many short texts: each result of orjson holds 4 KiB.
_ENCODER: Final = Encoder()


def fill(wanted: Signature, payloads: Sequence[Payload]) -> Filled:
    """Fill the model's inputs with the rows of `payloads`; all these rows have one shape. Raises
    `Rejected` if no row can fit.
    """
    if isinstance(payloads[0], Matrix):
        return _of_matrix(wanted, cast("Sequence[Matrix]", payloads))
    if isinstance(payloads[0], BytesRows):
        return _of_bytes(wanted, cast("Sequence[BytesRows]", payloads))
    if isinstance(payloads[0], Columns):
        return _of_columns(wanted, cast("Sequence[Columns]", payloads))
    return _of_json(wanted, cast("Sequence[JsonRows]", payloads))


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
        part, misfits = fitted(matrix[:, begin:end], tensor)
        complaints.update(misfits)
        columns.append(Column(tensor, (len(part), *shape), part.reshape(len(part), *shape)))
        begin = end
    return Filled(tuple(columns), len(matrix), {}).without(complaints)


def _shapes(wanted: Signature, numbers: int) -> list[tuple[int, ...]] | None:
    """For each input, the shape of one row, so that all inputs together hold this many numbers;
    None if that is impossible.
    """
    if wanted.takes_text:
        return None
    known = sum(tensor.numbers or 0 for tensor in wanted.inputs)
    shapes = [resolved(tensor.shape, numbers - known) for tensor in wanted.inputs]
    fitting = [shape for shape in shapes if shape is not None]
    fits = len(fitting) == len(shapes) and sum(map(math.prod, fitting)) == numbers
    return fitting if fits else None


def _of_bytes(wanted: Signature, payloads: Sequence[BytesRows]) -> Filled:
    [tensor, *others] = wanted.inputs
    if others or tensor.datatype != BYTES or math.prod(map(abs, tensor.shape)) != 1:
        raise Rejected("model_rejected", f"the model wants {wanted}, the rows are opaque bytes")
    texts = [payload.row(index) for payload in payloads for index in range(payload.rows)]
    shape = (len(texts), *(1 for _ in tensor.shape))
    return Filled((Column(tensor, shape, texts),), len(texts), {})


def _of_columns(wanted: Signature, payloads: Sequence[Columns]) -> Filled:
    """Fill each input from the column with its name. If the only input is numeric and no column has
    its name, the input takes all columns in order.
    """
    names = payloads[0].batch.schema.names
    rows = sum(payload.rows for payload in payloads)
    missing = [tensor.name for tensor in wanted.inputs if tensor.name not in names]
    if missing and len(wanted.inputs) == 1 and not wanted.takes_text:
        # numpy chooses one type that holds all columns; `fitted` then checks every value.
        groups = [[payload.batch.column(name) for payload in payloads] for name in names]
        # If a column holds lists, a row has as many numbers in this column as a list has.
        matrix = np.column_stack([_numbers(group, wanted).reshape(rows, -1) for group in groups])
        numbers = matrix.shape[1]
        shapes = _shapes(wanted, numbers)
        if shapes is None:
            raise Rejected(
                "model_rejected",
                f"the model wants {wanted}, the rows have {len(names)} columns with {numbers} "
                "numbers",
            )
        made, complaints = fitted(matrix, wanted.inputs[0])
        whole = Column(wanted.inputs[0], (rows, *shapes[0]), made.reshape(rows, *shapes[0]))
        return Filled((whole,), rows, {}).without(complaints)
    if missing:
        raise Rejected(
            "model_rejected",
            f"the model wants {wanted}; the rows have no {', '.join(missing)} but "
            f"{', '.join(names)}",
        )
    columns: list[Column] = []
    refused: dict[int, str] = {}
    for tensor in wanted.inputs:
        parts = [payload.batch.column(tensor.name) for payload in payloads]
        column, misfits = _named(parts, tensor, wanted)
        refused |= misfits
        columns.append(column)
    return Filled(tuple(columns), rows, {}).without(refused)


def _named(parts: list[Any], tensor: Tensor, wanted: Signature) -> tuple[Column, dict[int, str]]:
    """Returns two things: the column that fills one input; and, for each row that does not fit, the
    reason.
    """
    if tensor.datatype == BYTES:
        values = [value for part in parts for value in part.to_pylist()]
        nothing = f"the row has no {tensor.name}; the model wants {wanted}"
        misfits = {row: nothing for row, value in enumerate(values) if value is None}
        texts = [_text(value) for value in values]
        return Column(tensor, (len(texts), *(1 for _ in tensor.shape)), texts), misfits
    numbers = _numbers(parts, wanted)
    shape = resolved(tensor.shape, math.prod(numbers.shape[1:]))
    if shape is None or math.prod(shape) != math.prod(numbers.shape[1:]):
        raise Rejected(
            "model_rejected",
            f"the model wants {tensor.name}: {tensor}, the rows have {list(numbers.shape[1:])}",
        )
    made, misfits = fitted(numbers, tensor)
    return Column(tensor, (len(made), *shape), made.reshape(len(made), *shape)), misfits


def _numbers(parts: list[Any], wanted: Signature) -> Any:
    """Joins Arrow arrays of numbers, or of lists of numbers, into one numpy array. Missing values
    become NaN.
    """
    values = np.concatenate([part.to_numpy(zero_copy_only=False) for part in parts])
    if values.dtype == object and len(values) and all(value is not None for value in values):
        with suppress(ValueError):
            values = np.stack(list(values))
    if values.dtype.kind not in "iufb":
        raise Rejected("model_rejected", f"the model wants {wanted}, a column is not of numbers")
    return values


def _text(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value if value is not None else "").encode()


def _of_json(wanted: Signature, payloads: Sequence[JsonRows]) -> Filled:
    elements = orjson.loads(b"[%b]" % b",".join([payload.body for payload in payloads]))
    at_once = _at_once(wanted, elements)
    if at_once is not None:
        return at_once
    picked = [_picked(wanted, element) for element in elements]
    refused = {row: element for row, element in enumerate(picked) if isinstance(element, str)}
    kept = [element for element in picked if not isinstance(element, str)]
    columns = []
    for place, tensor in enumerate(wanted.inputs):
        values = [row[place] for row in kept]
        if tensor.datatype == BYTES:
            shape = (len(values), *(size if size != -1 else 1 for size in tensor.shape))
            columns.append(Column(tensor, shape, list(chain.from_iterable(values))))
            continue
        if len({value.shape for value in values}) > 1:
            # If a request has rows of different shapes, the caller halves it until each part has
            # rows of one shape.
            raise Poison("too_large", "rows of different shapes cannot be in one request")
        stacked = np.stack(values) if values else np.empty((0, *map(abs, tensor.shape)))
        columns.append(Column(tensor, stacked.shape, stacked.astype(tensor.dtype)))
    return Filled(tuple(columns), len(elements), refused)


def _at_once(wanted: Signature, elements: list[Any]) -> Filled | None:
    """Returns all rows as one array, if they are numbers of the right kind and shape for the only
    input; else None.
    """
    if len(wanted.inputs) != 1 or wanted.takes_text:
        return None
    [tensor] = wanted.inputs
    try:
        array = np.asarray(elements)
    except ValueError:
        return None
    # An integer input takes no floats: if integers and floats are mixed, numpy turns all into
    # floats, and large integers may lose digits.
    if array.dtype.kind not in ("iub" if tensor.dtype.kind in "iub" else "iuf"):
        return None
    shape = resolved(tensor.shape, math.prod(array.shape[1:]))
    if shape is None or array.shape[1:] not in (shape, (math.prod(shape),)):
        return None
    array, misfits = fitted(array, tensor)
    column = Column(tensor, (len(array), *shape), array.reshape(len(array), *shape))
    return Filled((column,), len(elements), {}).without(misfits)


def _picked(wanted: Signature, element: Any) -> list[Any] | str:
    """Returns the row's value for each input (texts as a list). If the row is refused, returns a
    text that says why.
    """
    inputs = wanted.inputs
    if isinstance(element, dict):
        missing = [tensor.name for tensor in inputs if tensor.name not in element]
        is_named = not missing or len(inputs) > 1 or inputs[0].datatype != BYTES
        if missing and is_named:
            return f"the row has no {', '.join(missing)}; the model wants {wanted}"
        given = [element[tensor.name] for tensor in inputs] if is_named else [element]
    elif len(inputs) == 1:
        given = [element]
    elif isinstance(element, list) and len(element) == len(inputs):
        given = element
    else:
        return f"the row is not an object with {', '.join(tensor.name for tensor in inputs)}"
    values = [_json_value(tensor, value) for tensor, value in zip(inputs, given, strict=True)]
    return next((value for value in values if isinstance(value, str)), values)


def _json_value(tensor: Tensor, given: Any) -> Any:
    """Returns an array of the row's shape, or a list of texts. If the row is refused, returns a
    text that says why.
    """
    misfit = f"the row is not what the model wants: {tensor}"
    if tensor.datatype == BYTES:
        texts = given if isinstance(given, list) and math.prod(tensor.shape) != 1 else [given]
        if len(texts) != (tensor.numbers or 1):
            return misfit
        return [text.encode() if isinstance(text, str) else _ENCODER.encode(text) for text in texts]
    try:
        array = np.asarray(given)
    except ValueError:
        return misfit
    shape = resolved(tensor.shape, array.size)
    if array.dtype.kind not in "iufb" or shape is None:
        return misfit
    if array.shape not in (shape, (math.prod(shape),)) and not (array.ndim == 0 and shape == (1,)):
        return f"the row has {array.size} numbers, the model wants {tensor}"
    made, misfits = fitted(array.reshape(1, -1), tensor)
    return misfits[0] if misfits else made.reshape(shape)
