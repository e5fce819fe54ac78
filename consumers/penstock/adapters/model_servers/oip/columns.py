"""The inputs of a request as columns, without the rows that do not fit.

Rule: no value is changed to fit. If the datatype cannot hold a number, such as 256 in UINT8 or 0.5
in INT64, only the row that holds this number is refused, before anything is sent. Pure functions;
owner: the adapters of the Open Inference Protocol.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.adapters.model_servers.oip.signature import Tensor

Array = npt.NDArray[Any]
_length = struct.Struct("<I").pack


class Column(NamedTuple):
    """One input of a request. `values`: an array whose first dimension is the rows, or a list of
    texts in row order.
    """

    tensor: Tensor
    shape: tuple[int, ...]
    values: Array | Sequence[bytes | memoryview]

    def raw(self) -> bytes | memoryview:
        """The values as the bytes of a binary tensor."""
        if not isinstance(self.values, np.ndarray):
            lengths = map(_length, map(len, self.values))
            return b"".join(chain.from_iterable(zip(lengths, self.values, strict=True)))
        return np.ascontiguousarray(self.values).data.cast("B")

    def kept(self, keep: npt.NDArray[np.bool_]) -> "Column":
        rows = int(keep.sum())
        if not isinstance(self.values, np.ndarray):
            each = len(self.values) // max(1, len(keep))
            wanted = np.repeat(keep, each).tolist()
            texts = [text for text, is_kept in zip(self.values, wanted, strict=True) if is_kept]
            return self._replace(shape=(rows, *self.shape[1:]), values=texts)
        return self._replace(shape=(rows, *self.shape[1:]), values=self.values[keep])


class Filled(NamedTuple):
    """`rows`: how many rows were given. `refused`: for each row that is not in the columns, the
    reason.
    """

    columns: tuple[Column, ...]
    rows: int
    refused: Mapping[int, str]

    @property
    def sent(self) -> int:
        return self.rows - len(self.refused)

    def without(self, refused: Mapping[int, str]) -> "Filled":
        """Leave out more rows. `refused`: a mapping from a row's number in the present columns to
        the reason.
        """
        if not refused:
            return self
        places = [row for row in range(self.rows) if row not in self.refused]
        keep = np.ones(len(places), bool)
        keep[list(refused)] = False
        more = {places[row]: message for row, message in refused.items()}
        columns = tuple(column.kept(keep) for column in self.columns)
        return Filled(columns, self.rows, {**self.refused, **more})


def fit_for_json(filled: Filled) -> Filled:
    """Leave out the rows with values that JSON cannot carry."""
    bad = np.zeros(filled.sent, bool)
    for column in filled.columns:
        if not isinstance(column.values, np.ndarray):
            is_text = np.array([_is_text(text) for text in column.values], bool)
            bad |= ~is_text.reshape(len(bad), -1).all(axis=1)
        elif column.values.dtype.kind == "f":
            bad |= ~np.isfinite(column.values).reshape(len(bad), -1).all(axis=1)
    message = "the server takes JSON only, which cannot carry NaN, infinity or bytes beyond UTF-8"
    return filled.without(dict.fromkeys(np.flatnonzero(bad).tolist(), message))


def _is_text(text: bytes | memoryview) -> bool:
    try:
        bytes(text).decode()
    except UnicodeDecodeError:
        return False
    return True


def resolved(shape: tuple[int, ...], numbers: int) -> tuple[int, ...] | None:
    """The shape, with its one variable dimension set so that the shape holds this many numbers;
    None if that is impossible.
    """
    if -1 not in shape:
        return shape
    others = math.prod(size for size in shape if size != -1)
    if shape.count(-1) > 1 or not others or numbers <= 0 or numbers % others:
        return None
    return tuple(numbers // others if size == -1 else size for size in shape)


def fitted(values: Array, tensor: Tensor) -> tuple[Array, dict[int, str]]:
    """Returns two things: the values in the tensor's datatype; and, for each row with a value that
    this datatype cannot hold, the reason.
    """
    dtype = tensor.dtype
    if values.dtype == dtype:
        return values, {}
    with np.errstate(invalid="ignore", over="ignore"):
        made = values.astype(dtype)
    if dtype.kind == "f":
        misfits = np.isfinite(values) & ~np.isfinite(made) if values.dtype.kind == "f" else None
    else:
        # `made` differs from `values` where the conversion changed a value. NaN always differs.
        misfits = made != values
    if misfits is None or not misfits.any():
        return made, {}
    by_row = misfits.reshape(len(made), -1)
    flat = values.reshape(len(made), -1)
    rows = np.flatnonzero(by_row.any(axis=1)).tolist()
    return made, {
        row: f"{flat[row, int(by_row[row].argmax())]} does not fit {tensor.datatype}; the model "
        f"wants {tensor}"
        for row in rows
    }
