"""Turns JSON rows into the tensors that a model of the Open Inference Protocol wants.

Rule: rows that all fit become one array at once. Only if some do not, each row is looked at by
itself, and those that do not fit are refused alone. Pure functions; owner: `inputs`.
"""

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import orjson

from penstock.adapters.model_servers.oip.columns import Column, Filled, fitted, resolved
from penstock.adapters.model_servers.oip.signature import BYTES, Signature, Tensor
from penstock.core.rows.payload import JsonRows
from penstock.errors import Poison


def of_json(wanted: Signature, payloads: Sequence[JsonRows]) -> Filled:
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
            # The caller halves such a request until each part has rows of one shape.
            raise Poison("too_large", "rows of different shapes cannot be in one request")
        stacked = np.stack(values) if values else np.empty((0, *map(abs, tensor.shape)))
        columns.append(Column(tensor, stacked.shape, stacked.astype(tensor.dtype)))
    return Filled(tuple(columns), len(elements), refused)


def _at_once(wanted: Signature, elements: list[Any]) -> Filled | None:
    """All rows as one array, if they are numbers of the right kind and shape for the only input;
    else None.
    """
    if len(wanted.inputs) != 1 or wanted.takes_text:
        return None
    [tensor] = wanted.inputs
    try:
        array = np.asarray(elements)
    except ValueError:
        return None
    # Floats are not taken for an integer input: integers among them may have lost digits.
    if array.dtype.kind not in ("iub" if tensor.dtype.kind in "iub" else "iuf"):
        return None
    shape = resolved(tensor.shape, math.prod(array.shape[1:]))
    if shape is None or array.shape[1:] not in (shape, (math.prod(shape),)):
        return None
    array, misfits = fitted(array, tensor)
    column = Column(tensor, (len(array), *shape), array.reshape(len(array), *shape))
    return Filled((column,), len(elements), {}).without(misfits)


def _picked(wanted: Signature, element: Any) -> list[Any] | str:
    """A row's value for each input, texts in a list; or a text with the reason it is refused."""
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
        return f"the row is not an object with {', '.join(one.name for one in inputs)}"
    values = [_value(tensor, one) for tensor, one in zip(inputs, given, strict=True)]
    return next((value for value in values if isinstance(value, str)), values)


def _value(tensor: Tensor, given: Any) -> Any:
    """An array of the row's shape, or a list of texts; or a text with the reason it is refused."""
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
    shape = resolved(tensor.shape, array.size)
    if array.dtype.kind not in "iufb" or shape is None:
        return misfit
    if array.shape not in (shape, (math.prod(shape),)) and not (array.ndim == 0 and shape == (1,)):
        return f"the row has {array.size} numbers, the model wants {tensor}"
    made, misfits = fitted(array.reshape(1, -1), tensor)
    return misfits[0] if misfits else made.reshape(shape)
