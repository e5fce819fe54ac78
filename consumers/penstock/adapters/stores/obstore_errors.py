"""Translates obstore's errors: `translated` is for S3, `cloud_translated` for Google and Azure.

Rule: obstore has an exception class for a few statuses only. For all others the status and the
store's error code are read from the exception's text. The error code decides first, then the
status. Owner: the clients that read and write through obstore.
Sources: Google's "HTTP status and error codes for XML", Azure's "Blob service error codes" and
"Common REST API error codes".
"""

import re
from typing import Final

from obstore.exceptions import PermissionDeniedError, PreconditionError, UnauthenticatedError

from penstock.adapters.http.certificates import untrusted
from penstock.adapters.s3.buckets import NOWHERE
from penstock.adapters.stores.names import name, section_of
from penstock.adapters.stores.refusals import (
    NO_SUCH_RANGE,
    NoBucket,
    implausible_answer,
    no_answer,
    redirected,
    refusal,
)
from penstock.errors import LockedOut, PenstockError, Poison, Transient, usage
from penstock.ports import Location

_STATUS = re.compile(r"status code: (\d{3})")
_EMPTY_RANGE = re.compile(r'CONTENT_RANGE header: "bytes [^"]*/0"')
_CODE = re.compile(r"<Code>(\w+)</Code>")
# obstore's words for a redirect to another host, or from https to http.
_REDIRECTED = re.compile(rf"\b{re.escape(NOWHERE)}|BadScheme|URL scheme is not allowed")
# obstore's words for an answer whose head cannot be read, or whose redirects form a circle.
_IMPLAUSIBLE = re.compile(
    r"source: Header \{|\bParse\(|kind: Redirect\b|non-partial response|(?i:content.range) header"
)

# The patterns and codes from here on are for Google and Azure.
_CLOUD_STATUS = re.compile(r"status code: (\d{3})|(\b404 Not Found)")
_CLOUD_CODE = re.compile(r"<Code>(\w+)</Code>|[Ee]rror[- ][Cc]ode: ?\"?(\w+)")
# Errors of the cloud's identity service, which gives a token before the store is asked.
_IDENTITY = re.compile(
    r"performing token request|getting token|Generic (?:GCS|MicrosoftAzure) "
    r"error: .*(?:token|credential)",
    re.IGNORECASE,
)

_NO_SUCH_BYTES = re.compile(r"Wanted range starting at \d+, but object was only")

_NO_BUCKET: Final = frozenset({"NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"})
_ARCHIVED: Final = frozenset({"BlobArchived", "BlobBeingRehydrated"})
_EXPIRED: Final = frozenset({"ExpiredToken", "InvalidAuthenticationInfo", "TokenExpired"})
_GONE: Final = frozenset(
    {
        "ConditionNotMet",
        "TargetConditionNotMet",
        "SnapshotNotPresent",
        "InvalidVersionForPageBlobOperation",
    }
)
# Error codes for a version id that the cloud cannot parse. No version of the cloud has such an id.
_BAD_PIN: Final = frozenset({"InvalidArgument", "InvalidQueryParameterValue", "InvalidHeaderValue"})


def is_empty(error: Exception) -> bool:
    """True if the last bytes of an empty object were asked for. MinIO then answers with a range
    that states 0 bytes as the size of the object, and obstore cannot parse this range; other stores
    answer 416.
    """
    text = str(error)
    said = _STATUS.search(text)
    return _EMPTY_RANGE.search(text) is not None or (
        said is not None and int(said[1]) == NO_SUCH_RANGE
    )


def settings_of_panic(error: Exception, location: Location) -> Exception:
    """A panic of the Rust library as an error that says what to look at; other errors unchanged.
    Only values that cannot stand in a request are known to cause panics: those of the settings, and
    of credentials that the library finds by itself. The class cannot be imported.
    """
    if type(error).__name__ not in ("RustPanic", "PanicException"):
        return error
    return usage(
        f"{name(location)}: the store's client failed while it made a request ({error}); look for "
        f"line breaks and characters that are not ASCII in {section_of(location)} and in the "
        "credentials of this machine"
    )


def translated(error: Exception, location: Location) -> PenstockError:
    """Our error for an error of obstore. For most statuses, only the error's text tells the
    status.
    """
    text = str(error)
    said, code = _STATUS.search(text), _CODE.search(text)
    status = int(said[1]) if said else _status_without_answer(error, text)
    if status is None and _REDIRECTED.search(text):
        return redirected(location)
    if status is None and _IMPLAUSIBLE.search(text):
        return implausible_answer(location, text.partition("\n")[0])
    if status is None:
        untrusting = untrusted(text, f"{section_of(location)}.ssl_cafile")
        return untrusting or no_answer(location, text.partition("\n")[0])
    return refusal(location, status, code[1] if code else "")


def _status_without_answer(error: Exception, text: str) -> int | None:
    """The status, as far as the class of the error tells it; None if no answer came."""
    match error:
        case FileNotFoundError():
            return 404
        case PermissionDeniedError() | UnauthenticatedError():
            return 403
        case PreconditionError():
            return 412
        case _:
            return 301 if "incorrectly configured region" in text else None


def cloud_translated(error: Exception, location: Location) -> PenstockError:
    text = str(error)
    found = _CLOUD_CODE.search(text)
    code = (found[1] or found[2]) if found else ""
    said = f"{name(location)}: the store answered {code or 'that it is not there'}"
    section = section_of(location)
    if code in _NO_BUCKET:
        gone = "it is gone, or never was; create it, or correct the reference or"
        return NoBucket("not_found", f"{said}: {gone} {section}")
    if code in _ARCHIVED:
        return Poison("forbidden", f"{said}: it is archived; rehydrate it first")
    if code in _EXPIRED:
        return LockedOut(f"{said}; set this machine's clock, or give fresh credentials")
    if location.version_id is not None and (
        isinstance(error, FileNotFoundError) or code in _BAD_PIN
    ):
        return Poison("changed", f"{said}: the pinned version is gone; reference the present one")
    if code in _GONE or _NO_SUCH_BYTES.search(text):
        return Poison("changed", f"{said}: the pinned version is gone; reference the present one")
    if _CLOUD_STATUS.search(text) is None and _IDENTITY.search(text):
        return Transient(
            f"{name(location)}: no token ({text.partition(chr(10))[0]}); check the "
            f"credentials of {section}"
        )
    return translated(error, location)
