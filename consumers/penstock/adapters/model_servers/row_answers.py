"""Reads from a model's JSON answer the prediction of each row, or why there is none.

Rule: one element a row, in order. Predictions are cut from the text of the answer (without blanks
between tokens), so that every number keeps its digits.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import orjson
from msgspec import Raw
from orjson import Fragment

from penstock.adapters.model_servers.http_calls import Reply, Request
from penstock.adapters.model_servers.refusals import (
    EXCERPT_CHARS,
    MOST_VALUES,
    clean,
    excerpt,
    too_many_values,
)
from penstock.core.records.json_pointers import resolve
from penstock.errors import Poison, Rejected
from penstock.ports import Answers

# orjson's limit of nesting; a deeper prediction would also break readers of the output topic.
MOST_DEPTH: Final = 254
_MOST_LENIENT: Final = 1 << 17
_PREDICTIONS: Final = "/predictions"
_SCALARS: Final = frozenset({int, float, bool, type(None)})
# Decodes one level of nesting; the values stay JSON text.
_LEVEL: Final = msgspec.json.Decoder(dict[str, Raw] | list[Raw])
_ELEMENTS: Final = msgspec.json.Decoder(list[Raw])


def parse(raw: bytes, rows: int, pointer: str = "") -> Answers:
    """One entry per row, from the array at `pointer` (RFC 6901). Raises `Rejected` if the answer is
    not JSON, and `Poison` if the number of elements is wrong.
    """
    try:
        text = _part(raw, pointer) if pointer else raw
        document = orjson.loads(text)
        if isinstance(document, dict) and "predictions" in document:
            text, document = _part(text, _PREDICTIONS), document["predictions"]
    except (orjson.JSONDecodeError, msgspec.DecodeError, RecursionError) as error:
        return _lenient(raw, rows, pointer, error)
    values = _values(document, raw, rows)
    try:
        # An answer can be nested too deep only if it has many more brackets than rows. `dumps`
        # refuses an answer that is nested too deep.
        if raw.count(b"[") + raw.count(b"{") > len(values) + MOST_DEPTH:
            orjson.dumps(values)
        texts, nbytes = _cut(compact(text), values)
    except orjson.JSONEncodeError as error:
        raise Rejected("model_rejected", f"the model's answer is unusable: {error}") from None
    rejected: dict[int, str] = {}
    # Most answers skip this, because without these bytes no row can be an error. A backslash may be
    # part of an escaped "error".
    if b'"error"' in raw or b"null" in raw or b"\\" in raw:
        rejected = {row: _message(value) for row, value in enumerate(values) if _is_error(value)}
    for row in rejected:
        texts[row] = b"null"
    return Answers(texts, rejected, nbytes + len(b"null") * len(rejected))


def parse_single(raw: bytes, rows: int) -> Answers:
    """The answer to a request with one row, or with no row if the request only asked for health. If
    the answer is an array of one element, or has such an array in the field `predictions`, the
    element is that row's prediction. Any other JSON is the prediction itself, from a handler that
    does not know batches.
    """
    if not rows:
        return Answers((), {})
    try:
        is_of_batch = _is_array_of_one(orjson.loads(raw))
    except orjson.JSONDecodeError:
        is_of_batch = raw.lstrip().startswith(b"[")
    return parse(raw if is_of_batch else b"[%b]" % raw, 1)


def from_lines(raw: bytes) -> bytes:
    """Turn an answer with one JSON line per row into an array."""
    return b"[%b]" % b",".join(line for line in raw.splitlines() if line.strip())


def refused_at(answers: Answers, pointer: str) -> Answers:
    """Reject the rows whose answers have an error at the pointer."""
    values, errors = list(answers.values), dict(answers.errors)
    for row, value in enumerate(values):
        try:
            error = resolve(orjson.loads(value), pointer) if row not in errors else None
        except LookupError:
            continue
        if error:
            values[row], errors[row] = b"null", _message({"error": error})
    return Answers(values, errors)


def _is_array_of_one(document: Any) -> bool:
    if isinstance(document, dict) and document.keys() == {"predictions"}:
        document = document["predictions"]
    return isinstance(document, list) and len(document) == 1


def _values(values: Any, raw: bytes, rows: int) -> list[Any]:
    if isinstance(values, list) and len(values) == rows:
        return values
    count = len(values) if isinstance(values, list) else f"no array but {excerpt(raw)}"
    raise Poison(
        "model_mismatch",
        f"the model was given {rows} rows and answered {count}; it must answer one per row",
    )


def _part(raw: bytes, pointer: str) -> bytes:
    """The unchanged text at a pointer. Raises `DecodeError` if `raw` is not JSON."""
    try:
        return bytes(resolve(Raw(raw), pointer, _opened))
    except LookupError:
        raise _nothing_at(pointer, raw) from None


def _opened(raw: Raw) -> dict[str, Raw] | list[Raw] | None:
    try:
        level: dict[str, Raw] | list[Raw] = _LEVEL.decode(raw)
    except msgspec.ValidationError:
        return None
    return level


def _nothing_at(pointer: str, raw: bytes) -> Rejected:
    return Rejected(
        "model_rejected", f"the model's answer has no {pointer} (model.answers): {excerpt(raw)}"
    )


def _lenient(raw: bytes, rows: int, pointer: str, complaint: Exception) -> Answers:
    """Read an answer that holds NaN or Infinity. JSON does not have these values, but Python's own
    encoder writes them. Only the rows with such a value are rejected. Numbers stay text.

    This takes 1 µs for each value. So of a longer answer nobody looks for the rows here: it is
    refused, and the caller finds them by asking with parts of the batch.
    """
    is_long = raw.count(b",") > _MOST_LENIENT
    try:
        if is_long:
            raise ValueError
        document = json.loads(
            raw, parse_constant=_NotFinite, parse_float=Fragment, parse_int=Fragment
        )
        document = resolve(document, pointer)
        if isinstance(document, dict) and "predictions" in document:
            document = document["predictions"]
        values = _values(document, raw, rows)
        pairs = [_tagged(value) for value in values]
    except LookupError:
        raise _nothing_at(pointer, raw) from None
    except (ValueError, RecursionError):
        has_nan = is_long and (b"NaN" in raw or b"Infinity" in raw)
        why = f"{complaint}; NaN or Infinity is in it" if has_nan else complaint
        message = f"the model's answer is not JSON ({why}): {excerpt(raw)}"
        raise Rejected("model_rejected", message) from None
    errors = {row: error for row, (_, error) in enumerate(pairs) if error is not None}
    return Answers([text for text, _ in pairs], errors)


class _NotFinite:
    """Stands for NaN or Infinity. orjson cannot encode this object, so `_tagged` finds the row by
    the failure.
    """

    def __init__(self, name: str) -> None:
        self.name = name


def _is_error(value: Any) -> bool:
    return value is None or (type(value) is dict and "error" in value)


def _tagged(value: Any) -> tuple[bytes, str | None]:
    if _is_error(value):
        return b"null", _message(value)
    try:
        text = orjson.dumps(value)
        orjson.loads(text)  # refuses numbers beyond float64
        return bytes(memoryview(text)), None  # a copy: orjson's own results hold 4 KiB each
    except (orjson.JSONEncodeError, orjson.JSONDecodeError):
        return b"null", (
            "the model's answer holds NaN, Infinity or a number beyond float64, or is no text"
        )


def compact(text: bytes) -> bytes:
    """Remove blanks between tokens, for two reasons: `_cut` looks for separators without blanks,
    and a line feed would break the lines of a result object.
    """
    if b" " in text or b"\n" in text or b"\t" in text or b"\r" in text:
        return msgspec.json.format(text, indent=-1)
    return text


def _cut(array: bytes, values: Sequence[Any]) -> tuple[list[bytes], int]:
    """Returns two things: the JSON text of each of `values`, cut from the compact array; and the
    most bytes that these texts can have together.

    In compact text a separator stands between any two elements. So if the split gives as many parts
    as there are elements, no separator was inside an element. Otherwise a JSON decoder cuts the
    array.
    """
    kinds = set(map(type, values))
    text = array[1:-1]
    texts: list[bytes] = []
    if kinds == {dict}:
        texts = text.replace(b"},{", b"}\n{").split(b"\n")
    elif kinds == {list}:
        texts = text.replace(b"],[", b"]\n[").split(b"\n")
    elif kinds <= _SCALARS and values:
        texts = text.split(b",")
    if len(texts) != len(values):
        texts = list(map(bytes, _ELEMENTS.decode(array)))
    return texts, len(text)


def _message(value: Any) -> str:
    """The reason why a row has no prediction, as the row's element of the answer gives it."""
    if value is None:
        return "the model answered null for this row, as some encoders do for NaN"
    error = value["error"]
    if isinstance(error, str):
        return clean(error)
    try:
        return clean(orjson.dumps(error)[:EXCERPT_CHARS].decode(errors="replace"))
    except orjson.JSONEncodeError:
        return "the model's error for this row cannot be encoded"


def spread(answers: Answers, rows: int, refused: Mapping[int, str]) -> Answers:
    """Merge, in row order, the answers to the rows that were sent and the rows that were refused
    before. `refused`: a mapping from a row's number to the reason.
    """
    if not refused:
        return answers
    places = [row for row in range(rows) if row not in refused]
    values = [b"null"] * rows
    for row, value in zip(places, answers.values, strict=True):
        values[row] = value
    errors = {places[row]: message for row, message in answers.errors.items()}
    return Answers(values, {**errors, **refused})


def _most_values(body: bytes) -> int:
    """How many values the JSON has at most, with its keys."""
    commas = body.count(b",")
    keys = commas + body.count(b"{")  # each follows one of them
    if commas <= MOST_VALUES < commas + 3 * keys:
        keys = sum(map(body.count, (b'":', b'" ', b'"\n', b'"\r', b'"\t')))
    return commas + 3 * keys


def read_answer(
    read: Callable[[bytes, int], Answers], reply: Reply, rows: int, request: Request
) -> Answers:
    """Returns the answers that the function `read` finds in the body of a 200. If `read` raises
    `Poison`, the error also shows what was sent.
    """
    try:
        if len(reply.body) > MOST_VALUES and _most_values(reply.body) > MOST_VALUES:
            raise too_many_values()
        return read(reply.body, rows)
    except Poison as error:
        error.sent = request.shown(rows)
        raise
