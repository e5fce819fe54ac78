"""Models as servers of the Open Inference Protocol describe and compute them, and how their answers
go wrong; shared by the stubs that speak it over REST and gRPC.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from penstock.adapters.model_servers.oip.signature import BYTES
from tests.support.reference_model import numpy_answers

Fault = Literal[
    "model_raised",
    "unavailable",
    "loading",
    "no_model",
    "denied",
    "too_large",
    "slow",  # answers after `release`
    "disconnected",
    "cut",
    "one_too_few",
    "one_too_many",
    "turned",  # outputs in another order, rows and columns exchanged in none
    "not_a_number",
    "transposed",
    "an_output_less",
    "nonsense",
]
# Name, datatype, values with the rows as the first dimension.
Outputs = list[tuple[str, str, Any]]
Compute = Callable[[Mapping[str, Any]], Outputs]


class Described(NamedTuple):
    """A model: what it says of itself, and what it computes."""

    inputs: Sequence[tuple[str, str, list[int]]]
    compute: Compute
    outputs: Sequence[tuple[str, str, list[int]]] = ()
    most_rows: int | None = None


def rows_model(inputs: Mapping[str, Any]) -> Outputs:
    """The example model; a row without a finite answer is reported by the output `error`."""
    answers = numpy_answers(inputs["x"])
    scores = np.array([answer["score"] for answer in answers], np.float32)
    labels = np.array([answer["label"] for answer in answers], np.int64)
    bad = ~np.isfinite(scores)
    errors = [b"the answer is not a finite number" if one else b"" for one in bad]
    return [
        ("label", "INT64", labels),
        ("score", "FP32", np.nan_to_num(scores)),
        ("error", BYTES, np.array(errors, object)),
    ]


ROWS = Described(
    [("x", "FP32", [-1, 16])],
    rows_model,
    [("label", "INT64", [-1]), ("score", "FP32", [-1]), ("error", BYTES, [-1])],
    512,
)


def faulty(fault: Fault | None, outputs: Outputs) -> Outputs:
    if fault == "one_too_few":
        return [(name, kind, values[:-1]) for name, kind, values in outputs]
    if fault == "one_too_many":
        return [
            (name, kind, np.concatenate([values, values[:1]])) for name, kind, values in outputs
        ]
    if fault == "turned":
        return outputs[::-1]
    if fault == "an_output_less":
        return outputs[1:]
    if fault == "transposed":
        return [(name, kind, values.reshape(1, -1)) for name, kind, values in outputs]
    if fault == "not_a_number":
        outputs[1][2][0] = np.nan
    return outputs


def texts(raw: bytes) -> Any:
    """A binary tensor of BYTES."""
    found, at = [], 0
    while at < len(raw):
        length = int.from_bytes(raw[at : at + 4], "little")
        found.append(raw[at + 4 : at + 4 + length])
        at += 4 + length
    made = np.empty(len(found), object)
    made[:] = found
    return made


def binary(values: Any) -> bytes:
    """As a binary tensor."""
    if values.dtype != object:
        return bytes(np.ascontiguousarray(values).tobytes())
    return b"".join(len(one).to_bytes(4, "little") + one for one in values.ravel())
