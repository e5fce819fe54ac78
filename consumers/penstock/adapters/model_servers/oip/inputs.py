"""Turns rows into the tensors that a model of the Open Inference Protocol wants.

Rule: rows of numbers move as one matrix, opaque rows and typed columns unchanged. If no row of a
request can fit, it is refused as a whole, and the error says what the model wants. Pure functions;
owner: the adapters of the protocol.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

import numpy as np

from penstock.adapters.model_servers.oip.columns import Column, Filled, fitted, resolved
from penstock.adapters.model_servers.oip.json_rows import of_json
from penstock.adapters.model_servers.oip.signature import BYTES, Signature, Tensor
from penstock.core.rows.payload import BytesRows, Columns, JsonRows, Matrix, Payload
from penstock.errors import Rejected


def fill(wanted: Signature, payloads: Sequence[Payload]) -> Filled:
    """All rows of `payloads`, which have one shape. Raises `Rejected` if no row can fit."""
    if isinstance(payloads[0], Matrix):
        return _of_matrix(wanted, cast("Sequence[Matrix]", payloads))
    if isinstance(payloads[0], BytesRows):
        return _of_bytes(wanted, cast("Sequence[BytesRows]", payloads))
    if isinstance(payloads[0], Columns):
        return _of_columns(wanted, cast("Sequence[Columns]", payloads))
    return of_json(wanted, cast("Sequence[JsonRows]", payloads))


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
    """The shape of one row for each input, so that together they hold this many numbers; None if
    that is impossible.
    """
    if wanted.takes_text:
        return None
    known = sum(one.numbers or 0 for one in wanted.inputs)
    shapes = [resolved(one.shape, numbers - known) for one in wanted.inputs]
    found = [shape for shape in shapes if shape is not None]
    fits = len(found) == len(shapes) and sum(map(math.prod, found)) == numbers
    return found if fits else None


def _of_bytes(wanted: Signature, payloads: Sequence[BytesRows]) -> Filled:
    [tensor, *others] = wanted.inputs
    if others or tensor.datatype != BYTES or math.prod(map(abs, tensor.shape)) != 1:
        raise Rejected("model_rejected", f"the model wants {wanted}, the rows are opaque bytes")
    texts = [payload.row(index) for payload in payloads for index in range(payload.rows)]
    shape = (len(texts), *(1 for _ in tensor.shape))
    return Filled((Column(tensor, shape, texts),), len(texts), {})


def _of_columns(wanted: Signature, payloads: Sequence[Columns]) -> Filled:
    """Columns by name. If the only input is numeric and no column has its name, it takes all
    columns in order.
    """
    names = payloads[0].batch.schema.names
    rows = sum(payload.rows for payload in payloads)
    missing = [one.name for one in wanted.inputs if one.name not in names]
    if missing and len(wanted.inputs) == 1 and not wanted.takes_text:
        # numpy chooses one type that holds all columns; `fitted` then checks every value.
        groups = [[payload.batch.column(name) for payload in payloads] for name in names]
        matrix = np.column_stack([_numbers(group, wanted) for group in groups])
        shapes = _shapes(wanted, len(names))
        if shapes is None:
            raise Rejected(
                "model_rejected", f"the model wants {wanted}, the rows have {len(names)} columns"
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
    """One column as one input."""
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
    """Arrow arrays, also of lists of numbers, as one numpy array; missing values become NaN."""
    found = np.concatenate([part.to_numpy(zero_copy_only=False) for part in parts])
    if found.dtype == object and len(found) and all(one is not None for one in found):
        with suppress(ValueError):
            found = np.stack(list(found))
    if found.dtype.kind not in "iufb":
        raise Rejected("model_rejected", f"the model wants {wanted}, a column is not of numbers")
    return found


def _text(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value if value is not None else "").encode()
