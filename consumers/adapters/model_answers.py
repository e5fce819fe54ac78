"""What a model's JSON answer says of each row: its prediction, or why there is none.

Rule: one element for each row, in order. Predictions are cut from the text of the answer, not
encoded one by one: that costs five times as much, and each result kept would pin 4 KB. Pure
functions, shared by the adapters of model servers that answer JSON.
"""

import json
import math
from collections.abc import Sequence
from typing import Any, Final

import orjson

from consumers.adapters.model_refusals import EXCERPT_CHARS, clean, excerpt
from consumers.core.pointers import resolve
from consumers.errors import Poison, Rejected
from consumers.ports import Answers

# orjson encodes no deeper; readers of the output topic need not either.
MOST_DEPTH: Final = 254
_WRAPPER: Final = b'{"predictions":['
_NAME: Final = b'"predictions"'
_SCALARS: Final = frozenset({int, float, bool, type(None)})


def parse(raw: bytes, rows: int) -> Answers:
    """One entry per row. Raises `Rejected` for what is no JSON, `Poison` for a wrong count."""
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        return _lenient(raw, rows, error)
    wrapped = isinstance(document, dict) and "predictions" in document
    values = _values(document, raw, rows)
    try:
        # Brackets that outnumber the rows may be nested, deeper than a reader can follow.
        if raw.count(b"[") + raw.count(b"{") > len(values) + MOST_DEPTH:
            orjson.dumps(values)
        text = _inner(raw, document, wrapped) or orjson.dumps(values)[1:-1]
        texts, nbytes = _cut(text, values)
    except orjson.JSONEncodeError as error:
        raise Rejected("model_rejected", f"the model's answer is unusable: {error}") from None
    rejected: dict[int, str] = {}
    # Most answers cannot hold what is looked for here; a backslash may hide it.
    if b'"error"' in raw or b"null" in raw or b"\\" in raw:
        rejected = {row: _message(value) for row, value in enumerate(values) if _is_error(value)}
    for row in rejected:
        texts[row] = b"null"
    return Answers(texts, rejected, nbytes + len(b"null") * len(rejected))


def parse_single(raw: bytes, rows: int) -> Answers:
    """The answer to a request that carried one row (or none, where only health was asked). An array
    of one element, bare or as `predictions`, is that row's; a handler that knows nothing of
    batches answers the row itself, by any JSON.
    """
    if not rows:
        return Answers((), {})
    try:
        is_of_batch = _is_array_of_one(orjson.loads(raw))
    except orjson.JSONDecodeError:
        is_of_batch = raw.lstrip().startswith(b"[")
    return parse(raw if is_of_batch else b"[%b]" % raw, 1)


def found_at(raw: bytes, pointer: str) -> bytes:
    """The part of an answer that a JSON pointer (RFC 6901) names, as JSON again."""
    document = loaded(raw)
    try:
        found = resolve(document, pointer)
    except LookupError:
        raise Rejected(
            "model_rejected", f"the model's answer has no {pointer} (model.answers): {excerpt(raw)}"
        ) from None
    # Python's encoder takes what its decoder took, NaN included: `parse` tells of which rows.
    return json.dumps(found).encode()


def from_lines(raw: bytes) -> bytes:
    """An answer of a line for each row, as an array."""
    return b"[%b]" % b",".join(line for line in raw.splitlines() if line.strip())


def refused_at(answers: Answers, pointer: str) -> Answers:
    """With the rows rejected in whose answers something stands at the pointer."""
    values, errors = list(answers.values), dict(answers.errors)
    for row, value in enumerate(values):
        try:
            error = resolve(orjson.loads(value), pointer) if row not in errors else None
        except LookupError:
            continue
        if error:
            values[row], errors[row] = b"null", _message({"error": error})
    return Answers(values, errors)


def loaded(raw: bytes) -> Any:
    """JSON, and the NaN and Infinity that Python's own encoder writes. Raises `Rejected`."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        try:
            return json.loads(raw)
        except (ValueError, RecursionError):
            raise Rejected("model_rejected", f"the model's answer is not JSON ({error})") from None


def _is_array_of_one(document: Any) -> bool:
    if isinstance(document, dict) and document.keys() == {"predictions"}:
        document = document["predictions"]
    return isinstance(document, list) and len(document) == 1


def _values(document: Any, raw: bytes, rows: int) -> list[Any]:
    is_wrapped = isinstance(document, dict) and "predictions" in document
    values = document["predictions"] if is_wrapped else document
    if isinstance(values, list) and len(values) == rows:
        return values
    found = len(values) if isinstance(values, list) else f"no array but {excerpt(raw)}"
    raise Poison(
        "model_mismatch",
        f"the model was given {rows} rows and answered {found}; it must answer one per row",
    )


def _lenient(raw: bytes, rows: int, complaint: ValueError) -> Answers:
    """NaN and Infinity are no JSON, but Python's own encoder writes them: the rows that have one
    are known from the others.
    """
    try:
        document = json.loads(raw, parse_constant=_NotFinite, parse_float=_finite)
        values = _values(document, raw, rows)
        pairs = [_tagged(value) for value in values]
    except (ValueError, RecursionError):
        raise Rejected("model_rejected", f"the model's answer is not JSON ({complaint})") from None
    errors = {row: error for row, (_, error) in enumerate(pairs) if error is not None}
    return Answers([text for text, _ in pairs], errors)


class _NotFinite:
    """What stands in a document for a number that JSON does not have; no encoder takes it."""

    def __init__(self, name: str) -> None:
        self.name = name


def _finite(text: str) -> float | _NotFinite:
    number = float(text)
    return number if math.isfinite(number) else _NotFinite(text)


def _is_error(value: Any) -> bool:
    return value is None or (type(value) is dict and "error" in value)


def _tagged(value: Any) -> tuple[bytes, str | None]:
    if _is_error(value):
        return b"null", _message(value)
    try:
        return orjson.dumps(value), None
    except orjson.JSONEncodeError:
        return b"null", "the model's answer holds NaN or Infinity, or cannot be encoded"


def _inner(raw: bytes, document: Any, wrapped: bool) -> bytes | None:
    """The array's text between the brackets; None where white space makes cutting it unsafe."""
    if b" " in raw or b"\n" in raw or b"\t" in raw or b"\r" in raw:
        return None
    if not wrapped:
        return raw[1:-1]
    # A name that stands twice (a backslash may hide it) leaves one entry and the text of both.
    is_twice = raw.count(_NAME) > 1 or b"\\" in raw
    whole = len(document) == 1 and raw.startswith(_WRAPPER) and not is_twice
    return raw[len(_WRAPPER) : -2] if whole else None


def _cut(text: bytes, values: Sequence[Any]) -> tuple[list[bytes], int]:
    """`values` as JSON each, from their compact text, and how many bytes they have at most.

    Compact text has the separator between any two elements, and these separators cannot overlap:
    as many parts as elements means that none was found inside an element.
    """
    kinds = set(map(type, values))
    texts: list[bytes] = []
    if kinds == {dict}:
        texts = text.replace(b"},{", b"}\n{").split(b"\n")
    elif kinds == {list}:
        texts = text.replace(b"],[", b"]\n[").split(b"\n")
    elif kinds <= _SCALARS and values:
        texts = text.split(b",")
    if len(texts) != len(values):
        # JSON text has no raw line feed. Joining first keeps none of the small results.
        text = b"\n".join(map(orjson.dumps, values))
        texts = text.split(b"\n") if values else []
    return texts, len(text)


def _message(value: Any) -> str:
    """Why an element is no prediction."""
    if value is None:
        return "the model answered null for this row, as some encoders do for NaN"
    error = value["error"]
    if isinstance(error, str):
        return clean(error)
    try:
        return clean(orjson.dumps(error)[:EXCERPT_CHARS].decode(errors="replace"))
    except orjson.JSONEncodeError:
        return "the model's error for this row cannot be encoded"
