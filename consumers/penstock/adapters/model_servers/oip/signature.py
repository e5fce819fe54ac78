"""The inputs and outputs of a model of the Open Inference Protocol, as its server describes them.

Rule: the first dimension of a tensor is the batch. Settings take precedence over the server's
description. Pure functions; owner: the adapters of the protocol.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

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
        return ", ".join(f"{one.name}: {one}" for one in self.inputs)

    @property
    def takes_text(self) -> bool:
        return any(one.datatype == BYTES for one in self.inputs)


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
    known = [f"{one.name}: {one}" for one in inputs]
    for one in inputs:
        if one.datatype != BYTES and one.datatype not in DTYPES:
            raise usage(
                f"the model wants {', '.join(known)}; {one.datatype} is not supported, only "
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
    for one in described if isinstance(described, list) else ():
        name, datatype, shape = _tensor(one, settings)
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
    found = _WRITTEN.fullmatch(text)
    if found is None:
        raise usage(
            f"model.inputs: {text!r} cannot be read; write name:DATATYPE:SHAPE with the shape of "
            "one row, as in x:FP32:16, image:UINT8:224x224x3 or text:BYTES"
        )
    shape = found["shape"]
    return Tensor(
        found["name"], found["datatype"], tuple(map(int, shape.split("x"))) if shape else ()
    )
