"""What a model server's refusal means, as far as its HTTP status tells.

Rule: a failing server (`Transient`), refused rows (`Poison`, `Rejected`) and a wrong setting
(`Fatal`) are kept apart. If a protocol's error texts tell more than the status, the protocol's own
adapter reads the texts. Pure functions.
"""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

import orjson

from penstock.errors import (
    Fatal,
    Overloaded,
    PenstockError,
    Poison,
    Rejected,
    Transient,
    usage,
)

OK: Final = 200
NOT_FOUND: Final = 404
NOT_IMPLEMENTED: Final = 501
TOO_LARGE: Final = 413
# The most digits that are read of a Retry-After in seconds. A year, in seconds, has eight digits.
MOST_DIGITS: Final = 8
# How many characters of a server's own words an error shows: as many as a person wants to read.
EXCERPT_CHARS: Final = 300
# The fields in which the usual frameworks put their error texts.
_COMPLAINTS: Final = ("error", "detail", "message", "error_message")


def by_status(
    status: int,
    headers: Mapping[str, str],
    said: str,
    *,
    too_large: Poison,
    by_model: bool,
) -> PenstockError:
    """`said`: the whole error text for a person. `too_large`: the error to return for a 413.
    `by_model`: True if the model itself refused, not the server in front of it. In this case even a
    5xx is about the rows.
    """
    wish_s = retry_after_s(headers)
    if status == 429 or (status == 503 and not by_model):
        return Overloaded(said, retry_after_s=wish_s)
    if status in (401, 403):
        return denied(said)
    if status in (NOT_FOUND, 405) or status < 400:
        return not_there(said)
    if status == TOO_LARGE:
        return too_large
    if status == 408 or (status >= 500 and not by_model):
        return Transient(said, retry_after_s=wish_s)
    return Rejected("model_rejected", said)


def not_there(said: str) -> Fatal:
    return usage(
        f"{said}; check model.url, model.name and model.version, and that the model is loaded"
    )


def denied(said: str) -> Fatal:
    return usage(f"{said}; set model.token or model.token_file")


def too_large(url: str, sent_bytes: int) -> Poison:
    return Poison(
        "too_large",
        f"{url} does not take a request of {sent_bytes} bytes; raise its limit there (TorchServe: "
        "max_request_size)",
    )


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Retry-After in seconds. If the header holds a date, the result is the time from the answer's
    own Date until then.
    """
    wish = headers.get("Retry-After", "").strip()
    if wish.isdecimal():
        return float(wish[:MOST_DIGITS])
    try:
        until, now = (parsedate_to_datetime(text) for text in (wish, headers.get("Date", "")))
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError):
        return None


def complaint(raw: bytes) -> str:
    """Find the error text of an answer. The usual frameworks put it into a field of a JSON object
    (as a text, or as `{"message": text}`). If no such field is there, the beginning of the body is
    taken.
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
    """The error to raise if a request without rows was refused. If `error` blames rows, the result
    blames the server instead, because no row was sent.
    """
    return Transient(str(error)) if isinstance(error, Poison) else error


def excerpt(raw: bytes) -> str:
    return clean(raw[:EXCERPT_CHARS].decode(errors="replace")) or "(nothing)"


def clean(text: str) -> str:
    """The text, shortened and on one line, with a blank for every character that cannot be
    printed.
    """
    return "".join(one if one.isprintable() else " " for one in text[:EXCERPT_CHARS])
