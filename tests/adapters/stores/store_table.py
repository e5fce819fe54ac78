"""What an object client meets, and what the worker does then: one table, proven by
`test_store_table.py` for every client and printed in docs/stores.md.

Rule: a row is a kind of answer with all its forms; `but` names the clients that differ, and how.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tests.adapters.stores.faulty_store import Fault, Request

READ: Final = "read"
AGAIN: Final = "again"
WAITED: Final = "waited for"

MEANINGS: Final = {
    READ: "the worker reads the object, byte by byte as it is in the store",
    AGAIN: (
        "the worker tries again; after two minutes without a new row, while other objects come, it "
        "answers the object by the error `unavailable`"
    ),
    WAITED: (
        "the worker waits without end and rejects no object. But if the store meanwhile answers "
        "requests for other objects of the same bucket, the fault lies with this object: "
        "**again**"
    ),
}
# Anything else in the last column is the code of the marker and the dead letter.

TENTHS = range(10)
PASSING = (409, 429, 500, 501, 503, 504)
REDIRECTS = (301, 302, 303, 307, 308)
ELSEWHERE = {"Location": "http://localhost:1/bucket/key"}
SENSELESS = (304, 400, 405, 411)


class Row(NamedTuple):
    request: Request
    answer: str
    faults: tuple[Fault, ...]
    outcome: str
    but: Mapping[str, str] = {}


def _first(answer: str, *faults: Fault, outcome: str, **but: str) -> Row:
    return Row("first", answer, faults, outcome, but)


def _rest(answer: str, *faults: Fault, outcome: str, **but: str) -> Row:
    return Row("rest", answer, faults, outcome, but)


def _statuses(request: Request, *statuses: int, code: str = "") -> tuple[Fault, ...]:
    return tuple(Fault(request, status=status, code=code) for status in statuses)


def _headers(request: Request, name: str, *values: str | None) -> tuple[Fault, ...]:
    return tuple(Fault(request, headers={name: value}) for value in values)


def _said(request: Request, status: int, *codes: str) -> tuple[Fault, ...]:
    return tuple(Fault(request, status=status, code=code) for code in codes)


def _locked_out(request: Request) -> tuple[Fault, ...]:
    return (
        *_said(request, 403, "RequestTimeTooSkewed", "InvalidTokenId"),
        *_said(request, 400, "ExpiredToken", "TokenRefreshRequired", "InvalidToken"),
    )


LOCKED_OUT = "`RequestTimeTooSkewed`, `ExpiredToken`, `InvalidToken` and the like"

TABLE: Final = (
    _first("200 with all headers", Fault(), outcome=READ),
    _first(
        "`ETag` or `x-amz-version-id` left out or `null`: taken as missing",
        *_headers("first", "ETag", None, "null"),
        *_headers("first", "x-amz-version-id", None, "null"),
        outcome=READ,
    ),
    _first(
        "two `ETag` or `x-amz-version-id` that differ: one of them is taken",
        Fault(doubled={"ETag": '"other"'}),
        Fault(headers={"x-amz-version-id": "v1"}, doubled={"x-amz-version-id": "v2"}),
        outcome=READ,
    ),
    _first("no `Last-Modified`", *_headers("first", "Last-Modified", None), outcome=READ),
    _first(
        "`Last-Modified: null`",
        *_headers("first", "Last-Modified", "null"),
        outcome=AGAIN,
        direct=READ,
    ),
    _first(
        "no `Content-Length`, `null`, or two that differ",
        *_headers("first", "Content-Length", None, "null"),
        Fault(doubled={"Content-Length": "7"}),
        outcome=AGAIN,
    ),
    _first("cut at any tenth", *(Fault(cut_tenth=tenth) for tenth in TENTHS), outcome=READ),
    _first(
        "silent from any tenth on (30 s)",
        *(Fault(cut_tenth=tenth, silent=True) for tenth in TENTHS if tenth),
        outcome=READ,
    ),
    _first("slow, but never silent", Fault(slow=True), outcome=READ),
    _first("silent before the first byte", Fault(cut_tenth=0, silent=True), outcome=WAITED),
    _first(LOCKED_OUT, *_locked_out("first"), outcome=WAITED),
    _first(
        "204; 304, 400, 405, 411 without a code",
        *_statuses("first", 204, *SENSELESS),
        outcome=AGAIN,
    ),
    _first(
        "206 (nobody asked for a part)",
        *_statuses("first", 206),
        outcome=AGAIN,
        direct=READ,
        obstore=READ,
    ),
    _first(
        "409, 429, 500, 501, 503, 504, with and without a code; 400 `RequestTimeout`",
        *_statuses("first", *PASSING),
        *_statuses("first", *PASSING, code="SlowDown"),
        *_said("first", 400, "RequestTimeout"),
        outcome=AGAIN,
    ),
    _first(
        "301, 302, 303, 307, 308, with and without a `Location` on another host",
        *_statuses("first", *REDIRECTS),
        *(Fault(status=status, headers=ELSEWHERE) for status in REDIRECTS),
        outcome="forbidden",
    ),
    _first(
        "401, 403, with and without a code",
        *_statuses("first", 401, 403),
        *_said("first", 403, "AccessDenied", "SignatureDoesNotMatch", "InvalidObjectState"),
        outcome="forbidden",
    ),
    _first(
        "404 with and without a code; 400, 405 with one",
        *_statuses("first", 404),
        *_said("first", 404, "NoSuchKey", "NoSuchBucket"),
        *_said("first", 400, "KeyTooLongError"),
        *_said("first", 405, "MethodNotAllowed"),
        outcome="not_found",
    ),
    _first(
        "412, 416; 404 `NoSuchVersion`",
        *_statuses("first", 412, 416),
        *_said("first", 412, "PreconditionFailed"),
        *_said("first", 404, "NoSuchVersion"),
        outcome="changed",
    ),
    _rest("206 with the bytes asked for", Fault("rest"), outcome=READ),
    _rest(
        "no `ETag` or `null`; no `Last-Modified`",
        *_headers("rest", "ETag", None, "null"),
        *_headers("rest", "Last-Modified", None),
        outcome=READ,
    ),
    _rest("another `ETag`", *_headers("rest", "ETag", '"other"'), outcome="changed"),
    _rest(
        "`Content-Range` left out, `null` or of other bytes; `Content-Length: null`; a "
        "`Content-Encoding` that the object had not",
        *_headers("rest", "Content-Range", None, "null", "bytes 0-3/9437184"),
        *_headers("rest", "Content-Length", "null"),
        *_headers("rest", "Content-Encoding", "gzip"),
        outcome=AGAIN,
    ),
    _rest(
        "200 or 206 with the whole: `Range` was ignored; 204",
        Fault("rest", ignores_range=True),
        Fault("rest", ignores_range=True, status=206),
        *_statuses("rest", 204),
        outcome=AGAIN,
    ),
    _rest("slow, but never silent", Fault("rest", slow=True), outcome=READ),
    _rest(
        "always cut, at any tenth; silent from the first or the fifth on",
        *(Fault("rest", cut_tenth=tenth) for tenth in TENTHS),
        *(Fault("rest", cut_tenth=tenth, silent=True) for tenth in (0, 5)),
        outcome=AGAIN,
    ),
    _rest(
        f"304, 400, 405, 411 without a code; {', '.join(map(str, PASSING))}; {LOCKED_OUT}",
        *_statuses("rest", *SENSELESS, *PASSING),
        *_locked_out("rest"),
        outcome=AGAIN,
    ),
    _rest(
        "301, 302, 303, 307, 308, 401, 403",
        *_statuses("rest", *REDIRECTS, 401, 403),
        outcome="forbidden",
    ),
    _rest("404", *_statuses("rest", 404), outcome="not_found"),
    _rest("412, 416", *_statuses("rest", 412, 416), outcome="changed"),
)


def printed() -> str:
    """The table as it stands in the pages."""
    lines = ["| asked for | the store answers | the worker |", "|---|---|---|"]
    names = {"first": "the object", "rest": "the rest of it"}
    for row in TABLE:
        but = "".join(f"; {client}: {_told(outcome)}" for client, outcome in row.but.items())
        lines.append(f"| {names[row.request]} | {row.answer} | {_told(row.outcome)}{but} |")
    return "\n".join(lines) + "\n"


def _told(outcome: str) -> str:
    return outcome if outcome in MEANINGS else f"`{outcome}`"
