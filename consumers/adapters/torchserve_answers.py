"""What TorchServe's answers mean: predictions row by row, or an error of the right family.

Rule: a status alone is ambiguous, the body's `type` and `message` decide. Predictions are cut from
the text of the answer, not encoded one by one: that costs five times as much, and each result
kept would pin 4 KB. Pure functions; owner: the TorchServe adapter.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from consumers.errors import (
    EXIT_USAGE,
    Fatal,
    Overloaded,
    PenstockError,
    Poison,
    Rejected,
    Transient,
    WorkerDied,
)
from consumers.ports import Answers

OK: Final = 200
NOT_FOUND: Final = 404
_WRAPPER: Final = b'{"predictions":['
_SCALARS: Final = frozenset({int, float, bool, type(None)})
# How much of a server's own words a person wants to read.
_EXCERPT_CHARS: Final = 300


def parse(raw: bytes, rows: int) -> Answers:
    """One entry per row. Raises `Rejected` for what is no JSON, `Poison` for a wrong count."""
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise Rejected(
            "model_rejected",
            f"the model's answer is not JSON ({error}); NaN and Infinity are not allowed either",
        ) from None
    wrapped = isinstance(document, dict) and "predictions" in document
    values = document["predictions"] if wrapped else document
    if not isinstance(values, list) or len(values) != rows:
        found = len(values) if isinstance(values, list) else f"no array but {_excerpt(raw)}"
        raise Poison(
            "model_mismatch",
            f"the model was given {rows} rows and answered {found}; it must answer one per row",
        )
    texts = _cut(_inner(raw, document, wrapped) or orjson.dumps(values)[1:-1], values)
    rejected = {
        row: _message(value["error"])
        for row, value in enumerate(values)
        if type(value) is dict and "error" in value
    }
    for row in rejected:
        texts[row] = b"null"
    return Answers(texts, rejected)


def _inner(raw: bytes, document: Any, wrapped: bool) -> bytes | None:
    """The array's text between the brackets; None where white space makes cutting it unsafe."""
    if b" " in raw or b"\n" in raw or b"\t" in raw or b"\r" in raw:
        return None
    if not wrapped:
        return raw[1:-1]
    whole = len(document) == 1 and raw.startswith(_WRAPPER)
    return raw[len(_WRAPPER) : -2] if whole else None


def _cut(text: bytes, values: Sequence[Any]) -> list[bytes]:
    """`values` as JSON each, from their compact text.

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
        joined = b"\n".join(map(orjson.dumps, values))
        texts = joined.split(b"\n") if values else []
    return texts


def refusal(status: int, headers: Mapping[str, str], raw: bytes, url: str) -> PenstockError:
    """What an answer other than 200 means."""
    kind, message = _said(raw)
    said = f"{url} answered {status} {kind}: {message}".replace(" : ", ": ")
    wish = headers.get("Retry-After", "")
    retry_after_s = float(wish) if wish.isdecimal() else None
    if message.startswith("Worker died"):
        return WorkerDied(said, retry_after_s=retry_after_s)
    if status == 429 or (status == 503 and kind != "InternalServerException"):
        return Overloaded(said, retry_after_s=retry_after_s)
    if status in (401, 403) or kind == "InvalidKeyException":
        return Fatal(f"{said}; set model.token or model.token_file", exit_code=EXIT_USAGE)
    if status in (NOT_FOUND, 405) or status < 400:
        return Fatal(
            f"{said}; check model.url, model.name and model.version, and that the model is loaded",
            exit_code=EXIT_USAGE,
        )
    if status == 413:
        return Poison("too_large", f"{said}; raise max_request_size or lower window.max_bytes")
    if status == 408 or (status >= 500 and not _by_handler(status, kind)):
        return Transient(said, retry_after_s=retry_after_s)
    return Rejected("model_rejected", said)


def _by_handler(status: int, kind: str) -> bool:
    """TorchServe reports what a handler raised as its own exception, or as out of resources."""
    return kind == "InternalServerException" or status == 507


def _said(raw: bytes) -> tuple[str, str]:
    """TorchServe's `type` and `message`; for any other body its beginning."""
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return "", _excerpt(raw)
    if isinstance(document, dict) and "message" in document:
        return str(document.get("type", "")), str(document["message"])[:_EXCERPT_CHARS]
    return "", _excerpt(raw)


def _excerpt(raw: bytes) -> str:
    return raw[:_EXCERPT_CHARS].decode(errors="replace") or "(nothing)"


def _message(error: Any) -> str:
    return error if isinstance(error, str) else orjson.dumps(error).decode()
