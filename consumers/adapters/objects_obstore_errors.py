"""What errors of obstore mean.

Rule: obstore has a class for a few statuses; everything else, the status itself and S3's own word
are only in the text. Owner: the obstore client.
"""

import re

from obstore.exceptions import PermissionDeniedError, PreconditionError, UnauthenticatedError

from consumers.adapters.certificates import untrusted
from consumers.adapters.objects_common import (
    NO_SUCH_RANGE,
    led_away,
    no_answer,
    no_sense,
    refusal,
    section_of,
)
from consumers.adapters.objects_obstore_reach import NOWHERE
from consumers.errors import PenstockError
from consumers.ports import Location

_STATUS = re.compile(r"status code: (\d{3})")
_EMPTY_RANGE = re.compile(r'CONTENT_RANGE header: "bytes [^"]*/0"')
_CODE = re.compile(r"<Code>(\w+)</Code>")
# To another host, or from https to http.
_LED_AWAY = re.compile(rf"\b{re.escape(NOWHERE)}|BadScheme|URL scheme is not allowed")
# An answer came, but its head makes no sense, or it leads in circles.
_NO_SENSE = re.compile(
    r"source: Header \{|\bParse\(|kind: Redirect\b|non-partial response|(?i:content.range) header"
)


def is_empty(error: Exception) -> bool:
    """Is this the answer to a question for the last bytes of an object that has none? MinIO tells
    of a range of none of its 0 bytes, which obstore cannot read.
    """
    text = str(error)
    said = _STATUS.search(text)
    return _EMPTY_RANGE.search(text) is not None or (
        said is not None and int(said[1]) == NO_SUCH_RANGE
    )


def translated(error: Exception, location: Location) -> PenstockError:
    """What an error of obstore means: the status is only in its text."""
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
    """For errors without an HTTP answer: what S3 would have said; None when nobody answered."""
    match error:
        case FileNotFoundError():
            return 404
        case PermissionDeniedError() | UnauthenticatedError():
            return 403
        case PreconditionError():
            return 412
        case _:
            return 301 if "incorrectly configured region" in text else None
