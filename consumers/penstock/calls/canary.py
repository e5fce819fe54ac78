"""Reads `model.canary`: a row that the model is known to answer. Probes of the model's health send
it.

Rule: a text that is no row in the configured form is a wrong setting and refused at the start. For
opaque bytes the setting is the path of a file. Owner: the start, and `penstock doctor`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import orjson

from penstock.core.rows.payload import BytesRows, Form, JsonRows, Matrix, Payload
from penstock.errors import usage


def canary_of(text: str | None, form: Form) -> Payload | None:
    """The row of `model.canary` in the form that is sent."""
    if text is None:
        return None
    wanted, read = _READERS[form]
    try:
        return read(text)
    except (ValueError, TypeError, OSError) as error:
        raise usage(f"model.canary = {text!r}: write {wanted} ({error})") from None


def _numbers(text: str) -> Payload:
    with np.errstate(over="ignore"):
        values = np.array([orjson.loads(text)], "<f4")
    if values.ndim != 2 or not values.size or not np.isfinite(values).all():
        raise ValueError("these are not finite numbers")
    return Matrix(values)


_READERS: Final[dict[Form, tuple[str, Callable[[str], Payload]]]] = {
    "json": ("a row of JSON", lambda text: JsonRows.of([orjson.dumps(orjson.loads(text))])),
    "matrix": ("a row of numbers, as [1.5, 2, 3]", _numbers),
    "columns": ("a row of numbers, as [1.5, 2, 3]", _numbers),
    "bytes": (
        "the path of a file that is a row",
        lambda text: BytesRows.of([Path(text).read_bytes()]),
    ),
}
