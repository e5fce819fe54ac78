"""What obstore's errors mean.

Rule: obstore has an exception class for a few statuses only. For all others the status and S3's
error code are read from the exception's text. Owner: the obstore client.
"""

import re

from obstore.exceptions import PermissionDeniedError, PreconditionError, UnauthenticatedError

from penstock.adapters.http.certificates import untrusted
from penstock.adapters.s3.obstore_access import NOWHERE
from penstock.adapters.stores.names import (
    NO_SUCH_RANGE,
    led_away,
    no_answer,
    no_sense,
    refusal,
    section_of,
)
from penstock.errors import PenstockError
from penstock.ports import Location

_STATUS = re.compile(r"status code: (\d{3})")
_EMPTY_RANGE = re.compile(r'CONTENT_RANGE header: "bytes [^"]*/0"')
_CODE = re.compile(r"<Code>(\w+)</Code>")
# A redirect to another host, or from https to http.
_LED_AWAY = re.compile(rf"\b{re.escape(NOWHERE)}|BadScheme|URL scheme is not allowed")
# An answer came, but its head cannot be read, or its redirects form a circle.
_NO_SENSE = re.compile(
    r"source: Header \{|\bParse\(|kind: Redirect\b|non-partial response|(?i:content.range) header"
)


def is_empty(error: Exception) -> bool:
    """True if the last bytes of an empty object were asked for. MinIO answers with a range of an
    object of 0 bytes, which obstore cannot parse; other stores with 416.
    """
    text = str(error)
    said = _STATUS.search(text)
    return _EMPTY_RANGE.search(text) is not None or (
        said is not None and int(said[1]) == NO_SUCH_RANGE
    )


def translated(error: Exception, location: Location) -> PenstockError:
    """The error that one of obstore's means; the status is only in its text."""
    text = str(error)
    said, code = _STATUS.search(text), _CODE.search(text)
    status = int(said[1]) if said else _status_without_answer(error, text)
    if status is None and _LED_AWAY.search(text):
        return led_away(location)
    if status is None and _NO_SENSE.search(text):
        return no_sense(location, text.partition("\n")[0])
    if status is None:
        untrusting = untrusted(text, f"{section_of(location)}.ssl_cafile")
        return untrusting or no_answer(location, text.partition("\n")[0])
    return refusal(location, status, code[1] if code else "")


def _status_without_answer(error: Exception, text: str) -> int | None:
    """The status that belongs to one of obstore's classes; None if no answer came."""
    match error:
        case FileNotFoundError():
            return 404
        case PermissionDeniedError() | UnauthenticatedError():
            return 403
        case PreconditionError():
            return 412
        case _:
            return 301 if "incorrectly configured region" in text else None
