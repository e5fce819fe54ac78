"""Translates the refusal of a store into one of `penstock.errors`, for all clients.

Rule: S3's error code decides first, then the HTTP status. Every error says what mends it.
"""

import asyncio
from typing import Final

from penstock.adapters.stores.names import name, section_of
from penstock.errors import (
    Fatal,
    LockedOut,
    NoAnswer,
    Overloaded,
    PenstockError,
    Poison,
    Transient,
    Unreachable,
    usage,
)
from penstock.ports import Location

# The least time between two searches for new credentials. A search blocks the event loop for tens
# of milliseconds.
RENEW_S: Final = 30.0
# The status if the requested range is outside of the object, or if the last bytes of an empty
# object are requested.
NO_SUCH_RANGE: Final = 416
_WRONG_REGION = frozenset(
    {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
)
# Codes that are about our clock or our credentials, and never about an object. InvalidTokenId is
# MinIO's.
_LOCKED_OUT = frozenset(
    {
        "RequestTimeTooSkewed",
        "RequestExpired",
        "ExpiredToken",
        "ExpiredTokenException",
        "TokenRefreshRequired",
        "InvalidToken",
        "InvalidTokenId",
    }
)
# With these codes a later try may succeed, whatever the status is: AWS, for example, sends
# RequestTimeout with 400. With the statuses below a later try may succeed as well, whether the
# store or a proxy in front of it sends them.
_PASSING = frozenset({"RequestTimeout", "OperationAborted", "ConditionalRequestConflict"})
_PASSING_STATUS = frozenset({408, 409, 421, 425, 499})
# With these the store asks for fewer requests, whatever code comes with them: AWS sends SlowDown
# with 503, other stores and proxies send 429.
_FULL_STATUS = frozenset({429, 503})
REDIRECTS = frozenset({301, 302, 303, 307, 308})
# For a name that is not valid, stores have many codes, but only these two statuses.
_NAMELESS_STATUS = frozenset({400, 405})


def refusal(
    location: Location, status: int, code: str, retry_after_s: float | None = None
) -> PenstockError:
    """Returns the error that a refusal means. `code`: S3's error code, empty if the answer has
    none.
    """
    message = f"{name(location)}: the store answered {f'{status} {code}'.strip()}"
    section = section_of(location)
    if code in _LOCKED_OUT:
        return LockedOut(
            f"{message}; set this machine's clock, or give fresh credentials",
            retry_after_s=retry_after_s,
        )
    if status in _FULL_STATUS:
        return Overloaded(message, retry_after_s=retry_after_s)
    if status in _PASSING_STATUS or status >= 500 or code in _PASSING:
        return Transient(message, retry_after_s=retry_after_s)
    if status in REDIRECTS:
        return redirected(location, message)
    if code in _WRONG_REGION:
        return Elsewhere(
            "forbidden", f"{message}: another region; set {section}.region to the bucket's"
        )
    pinned = location.version_id is not None
    if (
        status in (412, NO_SUCH_RANGE)
        or code == "NoSuchVersion"
        or (pinned and status in (400, 405))
    ):
        return Poison(
            "changed", f"{message}: the pinned version is gone; reference the present one"
        )
    if code == "NoSuchBucket":
        return NoBucket(
            "not_found",
            f"{message}: the bucket is gone, or never was; create it (aws s3 mb "
            f"s3://{location.bucket}), or correct the reference or {section}.endpoint_url",
        )
    if code == "InvalidRequest":
        return Poison(
            "forbidden",
            f"{message}: if the object is encrypted with a key of its own (SSE-C), the worker "
            "cannot read it; let AWS hold the key (SSE-S3, SSE-KMS)",
        )
    if code == "InvalidObjectState":
        return Poison("forbidden", f"{message}: it is archived; restore it first")
    if status in (401, 403):
        keys = f"{section}.key and {section}.secret"
        return Poison("forbidden", f"{message}; check {keys} and their rights")
    if status in (404, 410) or (code and status in _NAMELESS_STATUS):
        return Poison("not_found", f"{message}; upload it first, or correct the reference")
    return implausible_answer(location, f"{status} {code}".strip())


class NoBucket(Poison):
    """The store has no such bucket, so no object of the bucket can be read or written."""


class Elsewhere(Poison):
    """The store does not have the bucket, but says where it is."""


def redirected(location: Location, words: str | None = None) -> Elsewhere:
    """The error for a redirect that is not followed, because it leads to another host, or from
    https to http.
    """
    section = section_of(location)
    return Elsewhere(
        "forbidden",
        f"{words or name(location)}: the store leads to another address, which is not followed; "
        f"set {section}.region to the bucket's, or {section}.endpoint_url to the store's own "
        "address",
    )


class Renewal:
    """Decides when to look for new credentials after the store said that ours have expired: at most
    every `RENEW_S`.
    """

    def __init__(self) -> None:
        self._next_s = 0.0

    def is_due(self, error: PenstockError) -> bool:
        now_s = asyncio.get_running_loop().time()
        if not isinstance(error, LockedOut) or now_s < self._next_s:
            return False
        self._next_s = now_s + RENEW_S
        return True


def implausible_answer(location: Location, reason: object) -> Transient:
    """The error for an answer that no store would give; it may come from a proxy."""
    return Transient(
        f"{name(location)}: the answer does not look like a store's ({reason}); check "
        f"{section_of(location)}.endpoint_url and any proxy before it"
    )


def no_credentials(reason: object, section: str) -> Fatal:
    return usage(
        f"{section}: {reason}; set {section}.key and {section}.secret, {section}.profile or "
        f"{section}.anon"
    )


def no_answer(location: Location, reason: object) -> Unreachable:
    kind = NoAnswer if isinstance(reason, TimeoutError) else Unreachable
    return kind(
        f"{name(location)}: the store does not answer ({reason}); check "
        f"{section_of(location)}.endpoint_url"
    )
