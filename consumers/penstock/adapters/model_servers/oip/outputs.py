"""Makes predictions from the tensors that a model of the Open Inference Protocol answered.

Rule: a prediction has one entry per output, the row's slice of it. A text in the BYTES output
`error` rejects its row. The JSON of a whole column is made at once and cut by row, which is faster.
"""

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain, repeat, takewhile
from operator import mul
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import orjson

from penstock.adapters.model_servers.oip.signature import BYTES, DTYPES
from penstock.adapters.model_servers.refusals import clean
from penstock.errors import Poison
from penstock.ports import Answers

# numpy knows no more dimensions. The product of many large ones takes time without end.
_MOST_DIMENSIONS: Final = 32
# How many lists the JSON of all outputs may have, as `[[],[],[]]` has four. A list takes orjson
# more than 100 bytes, and dimensions of 1 or 0 make lists that no byte of the answer pays for.
_MOST_LISTS: Final = 4 << 20
# How many bytes the names of the outputs may take, as each row repeats them.
_MOST_NAMES_BYTES: Final = 64 << 20
# The name of the output that rejects rows.
ERROR: Final = "error"
_LENGTH: Final = struct.Struct("<I")
_NUMPY: Final = orjson.OPT_SERIALIZE_NUMPY
# For many short texts: each result of orjson holds 4 KiB, however short it is.
_json: Final = msgspec.json.Encoder().encode
# For each of numpy's kinds of values: the Python types that such values may have in JSON and in
# messages. A float may be None, because some encoders write null for NaN.
_PYTHON: Final[Mapping[str, frozenset[type]]] = {
    "b": frozenset({bool}),
    "i": frozenset({int}),
    "u": frozenset({int}),
    "f": frozenset({int, float, type(None)}),
    "S": frozenset({str, bytes}),
}


class OutputTensor(NamedTuple):
    """`values`: an array of numbers, or a list of texts; flat, in row order."""

    name: str
    shape: tuple[int, ...]
    values: npt.NDArray[Any] | list[bytes]


def from_raw(
    name: str, datatype: str, shape: Sequence[int], raw: bytes | memoryview
) -> OutputTensor:
    """An output that came as a binary tensor."""
    if datatype == BYTES:
        return OutputTensor(name, tuple(shape), _texts(name, raw))
    dtype = _dtype(name, datatype)
    if len(raw) % dtype.itemsize:
        raise unusable(f"output {name} has {len(raw)} bytes, not a whole number of {datatype}")
    if dtype.kind == "b" and len(raw) and np.frombuffer(raw, np.uint8).max() > 1:
        raise unusable(f"output {name} has a byte that is not a {datatype}")
    return OutputTensor(name, tuple(shape), np.frombuffer(raw, dtype))


def from_list(name: str, datatype: str, shape: Sequence[int], data: Sequence[Any]) -> OutputTensor:
    """An output that came as JSON or typed values. `data`: the values, either flat or nested as the
    shape says.
    """
    dtype = None if datatype == BYTES else _dtype(name, datatype)
    try:
        flat = _flat(data, tuple(shape))
        if odd := set(map(type, flat)) - _PYTHON[dtype.kind if dtype else "S"]:
            raise TypeError(f"it holds {', '.join(sorted(kind.__name__ for kind in odd))}")
        if dtype is None:
            texts = [text if isinstance(text, bytes) else text.encode() for text in flat]
            return OutputTensor(name, tuple(shape), texts)
        return OutputTensor(name, tuple(shape), np.asarray(flat, dtype))
    except (ValueError, TypeError, OverflowError) as error:
        raise unusable(f"output {name} is no {datatype} {list(shape)}: {error}") from None


def _flat(data: Sequence[Any], shape: tuple[int, ...]) -> Sequence[Any]:
    if not isinstance(data, list):
        raise TypeError(f"its data is no list but {type(data).__name__}")
    if list not in set(map(type, data)):
        return data
    nested = np.asarray(data, object)
    if nested.shape != shape:
        raise ValueError(f"its data is nested as {list(nested.shape)}")
    flat: list[Any] = nested.ravel().tolist()
    return flat


def answers(outputs: Sequence[OutputTensor], rows: int, wanted: Sequence[str] = ()) -> Answers:
    """Returns one entry per row. `wanted`: the outputs to use, all of which must be there. If
    `wanted` is empty, all outputs are used.
    """
    complaints: dict[int, str] = {}
    used: dict[str, OutputTensor] = {}
    for output in outputs:
        _check(output, rows)
        if output.name == ERROR and isinstance(output.values, list):
            complaints |= _complaints(output, rows)
        elif not wanted or output.name in wanted:
            used[output.name] = output
    missing = [name for name in wanted if name not in used and name != ERROR]
    if missing or not outputs:
        answered = ", ".join(output.name for output in outputs) or "no outputs"
        raise Poison(
            "model_mismatch",
            f"the model answered {answered}; {', '.join(missing) or 'at least one'} is missing",
        )
    names = [_json(name) for name in used]
    _check_together(names, used.values(), rows)
    columns: list[Sequence[bytes]] = []
    errors: dict[int, str] = {}
    for output in used.values():
        texts, misfits = _json_rows(output, rows)
        columns.append(texts)
        errors = misfits | errors
    errors |= complaints
    text = _joined(names, columns, rows)
    values = text.split(b"\n") if rows else []
    for row in errors:
        values[row] = b"null"
    return Answers(values, errors, len(text) + len(b"null") * len(errors))


def unusable(why: str) -> Poison:
    return Poison("model_mismatch", f"the model's answer contradicts itself: {why}")


def _dtype(name: str, datatype: str) -> np.dtype[Any]:
    if datatype not in DTYPES:
        raise unusable(f"output {name} is {datatype}, which is not supported; see model.outputs")
    return np.dtype(DTYPES[datatype])


def _texts(name: str, raw: bytes | memoryview) -> list[bytes]:
    """The texts of a binary tensor. Four bytes before each text give its length."""
    texts: list[bytes] = []
    at, end = 0, len(raw)
    # If all bytes are zero, all texts are empty, as is usual for an `error` output. This saves the
    # loop over the rows.
    if end % _LENGTH.size == 0 and not np.frombuffer(raw, np.uint8).any():
        return [b""] * (end // _LENGTH.size)
    while at < end:
        if at + _LENGTH.size > end:
            raise unusable(f"output {name} ends within a text")
        (length,) = _LENGTH.unpack_from(raw, at)
        at += _LENGTH.size
        if at + length > end:
            raise unusable(f"output {name} ends within a text")
        texts.append(bytes(raw[at : at + length]))
        at += length
    return texts


def _check(output: OutputTensor, rows: int) -> None:
    shape = list(output.shape)
    if len(shape) > _MOST_DIMENSIONS:
        raise unusable(f"output {output.name} has {len(shape)} dimensions")
    if not shape or shape[0] != rows or min(shape) < 0:
        raise Poison(
            "model_mismatch",
            f"the model was given {rows} rows and its output {output.name} has the shape {shape}; "
            "the first dimension must be the rows",
        )
    if len(output.values) != math.prod(shape):
        raise Poison(
            "model_mismatch",
            f"output {output.name} has the shape {shape} and {len(output.values)} values",
        )


def _check_together(names: Iterable[bytes], outputs: Iterable[OutputTensor], rows: int) -> None:
    """Refuses outputs whose JSON would be far larger than their bytes, before any of it is made."""
    if rows * (names_bytes := sum(map(len, names))) > _MOST_NAMES_BYTES:
        raise unusable(f"the names of its outputs have {names_bytes} bytes in each row")
    if (lists := sum(_lists(output, rows) for output in outputs)) > _MOST_LISTS:
        raise unusable(f"its outputs have {lists} lists, more than {_MOST_LISTS}")


def _lists(output: OutputTensor, rows: int) -> int:
    """How many lists the output is in JSON; at least one for each row, as rows cost as much."""
    if isinstance(output.values, list) or len(output.values) == rows:
        return rows
    return sum(accumulate(output.shape[:-1], mul))


def _complaints(output: OutputTensor, rows: int) -> dict[int, str]:
    texts = output.values
    if not any(texts):
        return {}
    if len(texts) != rows:
        raise unusable(f"output {ERROR} has the shape {list(output.shape)}; one text for each row")
    return {row: clean(text.decode(errors="replace")) for row, text in enumerate(texts) if text}


def _json_rows(output: OutputTensor, rows: int) -> tuple[Sequence[bytes], dict[int, str]]:
    """Returns two things: the JSON of each row; and, for each row that is rejected because its JSON
    would not be valid, the reason.
    """
    values, shape = output.values, output.shape
    if isinstance(values, list):
        return _json_texts(output, values, rows)
    if not values.size:
        return [_empty(output)] * rows if rows else [], {}
    bad: dict[int, str] = {}
    if values.dtype.kind == "f":
        is_finite = np.isfinite(values)
        if not is_finite.all():
            message = f"the model's output {output.name} holds NaN or infinity"
            whole = is_finite.reshape(rows, -1).all(axis=1)
            bad = dict.fromkeys(np.flatnonzero(~whole).tolist(), message)
    inner = shape[1:] if math.prod(shape[1:]) != 1 else ()
    text = orjson.dumps(values.reshape(rows, *inner), option=_NUMPY)
    opening, closing = b"[" * len(inner), b"]" * len(inner)
    depth = len(inner) + 1
    parts = text[depth:-depth].split(closing + b"," + opening)
    return ([opening + part + closing for part in parts] if inner else parts), bad


def _empty(output: OutputTensor) -> bytes:
    """A row of an output without a number, whose text need not be short all the same."""
    text = b"[]"
    for count in reversed(list(takewhile(bool, output.shape[1:]))):
        text = b"[%b]" % b",".join([text] * count)
    return text


def _json_texts(
    output: OutputTensor, texts: list[bytes], rows: int
) -> tuple[list[bytes], dict[int, str]]:
    bad: dict[int, str] = {}
    columns, each = [], len(texts) // rows if rows else 0
    for row in range(rows):
        try:
            mine = [text.decode() for text in texts[row * each : (row + 1) * each]]
        except UnicodeDecodeError:
            bad[row] = f"the model's output {output.name} is not UTF-8"
            mine = [""]
        columns.append(_json(mine[0] if each == 1 else mine))
    return columns, bad


def _joined(names: Sequence[bytes], columns: Sequence[Sequence[bytes]], rows: int) -> bytes:
    """Returns `{"a":1,"b":2}` for each row, one row per line. JSON text cannot contain a raw line
    feed, so the lines can be split again.
    """
    pieces: list[Iterable[bytes]] = []
    opening = b"{"
    for name, texts in zip(names, columns, strict=True):
        pieces += [repeat(opening + name + b":", rows), texts]
        opening = b","
    pieces.append(repeat(b"}\n" if names else b"{}\n", rows))
    return b"".join(chain.from_iterable(zip(*pieces, strict=True)))[:-1]
