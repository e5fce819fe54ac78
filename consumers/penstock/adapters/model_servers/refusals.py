"""What a model server's refusal means, as far as its HTTP status tells.

Rule: a failing server (`Transient`), refused rows (`Poison`, `Rejected`) and a wrong setting
(`Fatal`) are kept apart. Error texts are read by the protocol's own adapter.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import orjson

from penstock.errors import (
    EXIT_USAGE,
    Doubtful,
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
NOT_ALLOWED: Final = 405
NOT_IMPLEMENTED: Final = 501
TOO_LARGE: Final = 413
# With these statuses a server says that it has too much to do. 420, 509 and 529 are not registered,
# but in use.
_BUSY: Final = frozenset({420, 429, 503, 509, 529})
_DENIED: Final = frozenset({401, 402, 403, 407, 498})
# These are about how every request is made: its address, method, headers or protocol. Servers
# without versions answer 501 to a request that names a version.
_WRONG_ADDRESS: Final = frozenset(
    {NOT_FOUND, NOT_ALLOWED, 410, 411, 414, 417, 426, 428, 431, 451, 494, NOT_IMPLEMENTED, 505}
)
# Only by these a server says that it has read the rows and cannot take them. The other 4xx, such as
# 408, 423, 425 and the 444, 460 and 499 of proxies, are about the connection or the service.
_OF_ROWS: Final = frozenset({400, 406, 409, 412, 415, 416, 418, 422, 424})
# Frameworks answer this if the model raised, whatever the cause was.
_RAISED: Final = 500
# Retry-After in seconds. RFC 9110 knows whole seconds only; some servers send fractions. Not more
# than this many characters are read: a year, in seconds, has eight digits.
_SECONDS: Final = re.compile(r"\d+(?:\.\d*)?", re.ASCII)
MOST_DIGITS: Final = 8
# What to check if there is no connection. A server that hangs up, or is slow, does run.
MEND: Final = "check model.url and that the model server runs"
# How many characters of a server's own words an error shows: as many as a person wants to read.
EXCERPT_CHARS: Final = 300
# How many values the JSON of an answer may have, by its commas. Reading a value takes up to 100
# bytes of memory, so an answer of empty objects would take forty times its size. 512 vectors of
# 8,192 numbers are half as many. A key may take 200 bytes with its entry, and counts as four.
MOST_VALUES: Final = 8 << 20
# What nobody wants to read of a page in HTML, of which so many bytes are looked at.
_MARKUP: Final = re.compile(
    rb"(<style\b.*?(?:</style>|\Z)|<[^<>]*>|\s)+", re.DOTALL | re.IGNORECASE
)
_PAGE_BYTES: Final = 8_192
# The fields in which the usual frameworks put their error texts.
_COMPLAINTS: Final = ("error", "detail", "message", "error_message")


def by_status(
    status: int,
    headers: Mapping[str, str],
    reason: str,
    *,
    too_large: Poison,
    by_model: bool = False,
    may_be_model: bool = False,
) -> PenstockError:
    """`reason`: the whole error text for a person. `too_large`: the error to return for a 413.
    `by_model`: True if the model itself refused, not the server in front of it. In this case even a
    5xx is about the rows. `may_be_model`: True if 500 can mean that the model raised.
    """
    wish_s = retry_after_s(headers)
    if by_model and status >= _RAISED:
        return Rejected("model_rejected", reason)
    if status in _BUSY:
        return Overloaded(reason, retry_after_s=wish_s)
    if status in _DENIED:
        return denied(reason)
    if status < 400 and "Location" in headers:
        return usage(
            f"{reason}: it redirects to {headers['Location']}, and redirects are not followed; set "
            "model.url (or model.path) so that this is the address that is asked"
        )
    if status in _WRONG_ADDRESS or status < 400:
        return not_there(reason)
    if status == TOO_LARGE:
        return too_large
    if status in _OF_ROWS:
        return Rejected("model_rejected", reason)
    if may_be_model and status == _RAISED:
        return Doubtful("model_rejected", reason)
    return Transient(reason, retry_after_s=wish_s)


class NotThere(Fatal):
    """The server does not know the address, or the model."""


def not_there(reason: str) -> NotThere:
    return NotThere(
        f"{reason}; check model.url, model.name (in [[models]] served_as, if its server calls it "
        "otherwise) and model.version, and that the model is loaded",
        exit_code=EXIT_USAGE,
    )


def denied(reason: str) -> Fatal:
    return usage(f"{reason}; set model.token or model.token_file")


def too_large(url: str, sent_bytes: int) -> Poison:
    return Poison(
        "too_large",
        f"{url} does not take a request of {sent_bytes} bytes; raise its limit there (TorchServe: "
        "max_request_size)",
    )


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Retry-After in seconds. If the header holds a date, the result is the time from the answer's
    own Date until then; if there is no Date, the time from now.
    """
    wish = headers.get("Retry-After", "").strip()
    if _SECONDS.fullmatch(wish):
        return float(wish[:MOST_DIGITS])
    until = _moment(wish)
    if until is None:
        return None
    now = _moment(headers.get("Date", "")) or datetime.now(UTC)
    return max(0.0, (until - now).total_seconds())


def _moment(date: str) -> datetime | None:
    """Reads each of HTTP's forms of a date (RFC 9110, 5.6.7); all of them mean UTC."""
    try:
        time = parsedate_to_datetime(date)
    except (ValueError, TypeError, OverflowError):
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def complaint(raw: bytes) -> str:
    """Find the error text of an answer. The usual frameworks put it into a field of a JSON object
    (as a text, or as `{"message": text}`). If no such field is there, the beginning of the body is
    taken.
    """
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError:
        is_page = raw.lstrip().startswith(b"<")
        return excerpt(_MARKUP.sub(b" ", raw[:_PAGE_BYTES]).strip() if is_page else raw)
    fields = document if isinstance(document, dict) else {}
    for name in _COMPLAINTS:
        reason = fields.get(name)
        reason = reason.get("message") if isinstance(reason, dict) else reason
        if isinstance(reason, str) and reason:
            return clean(reason)
    return excerpt(raw)


def of_server(error: PenstockError) -> PenstockError:
    """The error to raise if a request without rows was refused. If `error` blames rows, the result
    blames the server instead, because no row was sent.
    """
    return Transient(str(error)) if isinstance(error, Poison) else error


def too_many_bytes(most_bytes: int) -> Poison:
    return Poison(
        "result_too_large",
        f"the model's answer has more than {most_bytes} bytes (limits.answer_bytes_per_row, at "
        "most 64 MiB in all); answer less for each row, raise the limit, or lower window.max_rows",
    )


def too_many_values() -> Poison:
    return Poison(
        "result_too_large",
        f"the model's answer has more than {MOST_VALUES} values; answer less for each row",
    )


def excerpt(raw: bytes) -> str:
    return clean(raw[:EXCERPT_CHARS].decode(errors="replace")) or "(nothing)"


def clean(text: str) -> str:
    """The text, shortened and on one line, with a blank for every character that cannot be
    printed.
    """
    return "".join(char if char.isprintable() else " " for char in text[:EXCERPT_CHARS])
