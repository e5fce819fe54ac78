"""What the answers of Google Cloud Storage and Azure mean.

Rule: the cloud's own error code decides first, then the HTTP status. Owner: the clients of both.
Sources: Google's "HTTP status and error codes for XML", Azure's "Blob service error codes" and
"Common REST API error codes".
"""

import re
from typing import Final

from penstock.adapters.stores import obstore_errors
from penstock.adapters.stores.names import NoBucket, name, section_of
from penstock.errors import LockedOut, PenstockError, Poison, Transient
from penstock.ports import Location

_STATUS = re.compile(r"status code: (\d{3})|(\b404 Not Found)")
_CODE = re.compile(r"<Code>(\w+)</Code>|[Ee]rror[- ][Cc]ode: ?\"?(\w+)")
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
# Codes for a version that the cloud cannot parse: no version of its own has such an id.
_BAD_PIN: Final = frozenset({"InvalidArgument", "InvalidQueryParameterValue", "InvalidHeaderValue"})


def translated(error: Exception, location: Location) -> PenstockError:
    text = str(error)
    found = _CODE.search(text)
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
    if _STATUS.search(text) is None and _IDENTITY.search(text):
        return Transient(
            f"{name(location)}: no token ({text.partition(chr(10))[0]}); check the "
            f"credentials of {section}"
        )
    return obstore_errors.translated(error, location)
