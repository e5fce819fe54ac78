"""What a model server's refusal means, as far as the status tells.

Rule: an ill server, refused rows and a wrong setting are three different things; what the words of
a protocol mean, its adapter knows. Pure functions.
"""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

import orjson

from consumers.errors import (
    EXIT_USAGE,
    Fatal,
    Overloaded,
    PenstockError,
    Poison,
    Rejected,
    Transient,
)

OK: Final = 200
NOT_FOUND: Final = 404
NOT_IMPLEMENTED: Final = 501
TOO_LARGE: Final = 413
# Of a wait in seconds: a year has eight.
MOST_DIGITS: Final = 8
# How much of a server's own words a person wants to read.
EXCERPT_CHARS: Final = 300
# Where complaints stand in the answers of the usual frameworks.
_COMPLAINTS: Final = ("error", "detail", "message", "error_message")


def by_status(
    status: int,
    headers: Mapping[str, str],
    said: str,
    *,
    too_large: Poison,
    by_model: bool,
) -> PenstockError:
    """`said` is the whole complaint for a person; `by_model`: not the server but the model behind
    it refused, so that a 5xx, too, is about the rows.
    """
    wish_s = retry_after_s(headers)
    if status == 429 or (status == 503 and not by_model):
        return Overloaded(said, retry_after_s=wish_s)
    if status in (401, 403):
        return denied(said)
    if status in (NOT_FOUND, 405) or status < 400:
        return Fatal(
            f"{said}; check model.url, model.name and model.version, and that the model is loaded",
            exit_code=EXIT_USAGE,
        )
    if status == TOO_LARGE:
        return too_large
    if status == 408 or (status >= 500 and not by_model):
        return Transient(said, retry_after_s=wish_s)
    return Rejected("model_rejected", said)


def denied(said: str) -> Fatal:
    return Fatal(f"{said}; set model.token or model.token_file", exit_code=EXIT_USAGE)


def too_large(url: str, sent_bytes: int) -> Poison:
    return Poison(
        "too_large",
        f"{url} does not take a request of {sent_bytes} bytes; raise its limit there (TorchServe: "
        "max_request_size)",
    )


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """In seconds, or as a date, which counts from the answer's own."""
    wish = headers.get("Retry-After", "").strip()
    if wish.isdecimal():
        return float(wish[:MOST_DIGITS])
    try:
        until, now = (parsedate_to_datetime(text) for text in (wish, headers.get("Date", "")))
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError):
        return None


def complaint(raw: bytes) -> str:
    """What the usual frameworks complain of, in JSON as text or as `{"message": text}`; else how
    the body begins.
    """
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return excerpt(raw)
    fields = document if isinstance(document, dict) else {}
    for name in _COMPLAINTS:
        said = fields.get(name)
        said = said.get("message") if isinstance(said, dict) else said
        if isinstance(said, str) and said:
            return clean(said)
    return excerpt(raw)


def of_server(error: PenstockError) -> PenstockError:
    """No rows were sent: what would be a complaint of them is one of the server's state."""
    return Transient(str(error)) if isinstance(error, Poison) else error


def excerpt(raw: bytes) -> str:
    return clean(raw[:EXCERPT_CHARS].decode(errors="replace")) or "(nothing)"


def clean(text: str) -> str:
    """Short, on one line, and without what a terminal or an encoder would stumble over."""
    return "".join(one if one.isprintable() else " " for one in text[:EXCERPT_CHARS])
