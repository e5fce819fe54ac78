"""The inputs and outputs of a model, as its server describes them.

Rule: the first dimension of a tensor is the batch. Settings take precedence.
"""

import math
import re
import struct
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock import config
from penstock.errors import usage

BYTES: Final = "BYTES"
# For each datatype: numpy's type. It is little-endian, as in binary tensors.
DTYPES: Final[Mapping[str, str]] = {
    "BOOL": "|b1",
    "UINT8": "|u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "|i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}
# An entry of `model.inputs`: `name:DATATYPE`, or `name:DATATYPE:28x28` with the shape of one row.
_WRITTEN: Final = re.compile(
    r"(?P<name>.+?):(?P<datatype>[A-Z0-9]+)(?::(?P<shape>-?\d+(x-?\d+)*))?"
)


class Tensor(NamedTuple):
    """One input. `shape`: the shape of one row; -1 stands for a dimension that may vary."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.datatype} {[-1, *self.shape]}"

    @property
    def numbers(self) -> int | None:
        """How many numbers one row has; None if that may vary."""
        return None if -1 in self.shape else math.prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(DTYPES[self.datatype])


class Signature(NamedTuple):
    """`outputs`: the names of the outputs to ask for; empty: all outputs. `most_rows`: the most
    rows of one request; None: no limit.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[str, ...] = ()
    most_rows: int | None = None

    def __str__(self) -> str:
        if len(self.inputs) == 1:
            return str(self.inputs[0])
        return ", ".join(f"{tensor.name}: {tensor}" for tensor in self.inputs)

    @property
    def takes_text(self) -> bool:
        return any(tensor.datatype == BYTES for tensor in self.inputs)


def signature(metadata: Mapping[str, Any], limits: Any, settings: config.Model) -> Signature:
    """Makes the signature. `metadata`: the server's description of the model. `limits`: the model's
    configuration; empty if the server does not tell it.
    """
    inputs, fixed_rows = _inputs(metadata, settings)
    if not inputs:
        raise usage(
            f"the server does not describe the inputs of {settings.name}; set model.inputs, as in "
            'inputs = ["x:FP32:16"]'
        )
    known = [f"{tensor.name}: {tensor}" for tensor in inputs]
    for tensor in inputs:
        if tensor.datatype != BYTES and tensor.datatype not in DTYPES:
            raise usage(
                f"the model wants {', '.join(known)}; {tensor.datatype} is not supported, only "
                f"{', '.join(DTYPES)} and {BYTES}"
            )
    limit = limits.get("max_batch_size") if isinstance(limits, dict) else None
    most_rows = limit if isinstance(limit, int) and limit > 0 else fixed_rows
    return Signature(inputs, tuple(settings.outputs or ()), most_rows)


def _inputs(
    metadata: Mapping[str, Any], settings: config.Model
) -> tuple[tuple[Tensor, ...], int | None]:
    if settings.inputs:
        return tuple(map(written, settings.inputs)), None
    tensors, batches = [], set()
    described = metadata.get("inputs")
    for tensor in described if isinstance(described, list) else ():
        name, datatype, shape = _tensor(tensor, settings)
        batches.add(shape[0] if shape else -1)
        tensors.append(Tensor(name, datatype, shape[1:]))
    fixed = batches - {-1}
    if fixed - {1}:
        raise usage(
            f"the model wants {', '.join(map(str, tensors))} with exactly {max(fixed)} rows in "
            "each request; Penstock sends as many as there are: export the model with a variable "
            "first dimension, or say with model.inputs that it has one"
        )
    return tuple(tensors), 1 if fixed else None


def _tensor(described: Any, settings: config.Model) -> tuple[str, str, tuple[int, ...]]:
    try:
        return (
            str(described["name"]),
            str(described["datatype"]),
            tuple(map(int, described["shape"])),
        )
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise usage(
            f"the server's description of the model {settings.name} cannot be read ({error!r}); "
            "set model.inputs"
        ) from None


def written(text: str) -> Tensor:
    """The tensor that an entry of `model.inputs` describes."""
    match = _WRITTEN.fullmatch(text)
    if match is None:
        raise usage(
            f"model.inputs: {text!r} cannot be read; write name:DATATYPE:SHAPE with the shape of "
            "one row, as in x:FP32:16, image:UINT8:224x224x3 or text:BYTES"
        )
    shape = match["shape"]
    return Tensor(
        match["name"], match["datatype"], tuple(map(int, shape.split("x"))) if shape else ()
    )


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
