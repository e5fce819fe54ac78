"""Shared by the object clients: checks of names, globs, pins, and what a refusal means.

Rule: one function says what a store's answer means, whichever library brought it.
Owner: the `objects_*` adapters.
"""

import asyncio
import re
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import unquote, urlsplit

from fsspec.utils import glob_translate

from penstock import config
from penstock.core.routing.store_choice import DEFAULT
from penstock.errors import (
    Fatal,
    LockedOut,
    PenstockError,
    Poison,
    Transient,
    Unreachable,
    usage,
)
from penstock.ports import Location

CHUNK_BYTES: Final = 1 << 20
# Up to here one read is cheaper than a stream, and small beside the byte budget (256 MiB).
WHOLE_BYTES: Final = 8 << 20
# How many names are listed at a time: a page of S3's listing; others have at least this many.
LISTED_AT_ONCE: Final = 1000
CONNECT_TIMEOUT_S: Final = 5.0
# Silence, not duration: a slow consumer may take hours over one body.
READ_TIMEOUT_S: Final = 30.0
# The least time between two searches for new credentials: each blocks the event loop for tens of
# milliseconds.
RENEW_S: Final = 30.0
DEFAULT_REGION: Final = "us-east-1"
# The status for a range outside of the object; also for the last bytes of an empty object.
NO_SUCH_RANGE: Final = 416

# Never a slash: `bucket/key` must not be readable in two ways.
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
# Empty, `.` and `..` segments, control characters: legal in S3, rewritten or refused by paths.
_ODD_KEY = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|[\x00-\x1f\x7f]")
_GLOB_CHARACTER = re.compile(r"[*?\[]")

_WRONG_REGION = frozenset(
    {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
)
# Codes about our clock or our credentials, never about an object. InvalidTokenId is MinIO's.
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
# Codes that a retry cures, whatever their status (AWS says RequestTimeout with 400), and such
# statuses, from the store or from a proxy in front of it.
_PASSING = frozenset({"RequestTimeout", "OperationAborted", "ConditionalRequestConflict"})
_PASSING_STATUS = frozenset({408, 409, 421, 425, 429, 499})
REDIRECTS = frozenset({301, 302, 303, 307, 308})
# Stores have many codes for a name that is not valid; their statuses are these.
_NAMELESS_STATUS = frozenset({400, 405})


def folder_of(endpoint_url: str | None) -> str | None:
    """The local folder that a `file:///folder` endpoint names; None for a real store."""
    parts = urlsplit(endpoint_url or "")
    return unquote(parts.path) if parts.scheme == "file" else None


def check_credentials(settings: config.Access, section: str) -> None:
    if (settings.key is None) != (settings.secret is None):
        raise usage(f"{section}.key and {section}.secret go together: set both or neither")
    if settings.token is not None and settings.key is None:
        raise usage(f"{section}.token goes together with {section}.key and {section}.secret")


def section_of(location: Location) -> str:
    """The section of the configuration with this object's store, for messages."""
    return DEFAULT if location.store == DEFAULT else f"stores.{location.store}"


def is_odd(key: str) -> bool:
    """True if a library that treats keys as paths would change or refuse this key."""
    return _ODD_KEY.search(key) is not None


def check_bucket(location: Location) -> None:
    if not _BUCKET.fullmatch(location.bucket):
        raise Poison("not_found", f"{name(location)}: no bucket has such a name")


def quoted(etag: str) -> str:
    """An entity tag with its quotes, as HTTP wants it; bucket events leave them out. Raises
    `Poison` for a text that a header cannot hold: no object has such a tag.
    """
    if not (etag.isascii() and etag.isprintable()):
        raise Poison("changed", f"{etag[:40]!a} is not an entity tag")
    return etag if etag.endswith('"') else f'"{etag}"'


def name(location: Location) -> str:
    where = "" if location.store == DEFAULT else f" of the store {location.store}"
    return f"object {location.key!r} in bucket {location.bucket!r}{where}"


@dataclass(frozen=True, slots=True)
class Glob:
    """`prefix`: the literal beginning. `depth`: how many slashes a match has; None with `**`."""

    prefix: str
    depth: int | None
    pattern: re.Pattern[str]

    @classmethod
    def of(cls, text: str) -> Self:
        magic = _GLOB_CHARACTER.search(text)
        try:
            pattern = re.compile(glob_translate(text))
        except (ValueError, re.error) as error:
            raise usage(f"glob {text!r}: {error}") from None
        return cls(
            text[: magic.start()] if magic else text,
            None if "**" in text else text.count("/"),
            pattern,
        )

    def matches(self, key: str) -> bool:
        fits = self.depth is None or key.count("/") == self.depth
        return fits and self.pattern.match(key) is not None


def pin_of(said: str | None) -> str | None:
    """A version id or an entity tag; None if it identifies no version. Stores with suspended
    versioning call every version `null`.
    """
    return None if said in (None, "", "null") else said


def wants_etag(location: Location) -> bool:
    """True if the entity tag should be pinned. A version id is a better pin, except `null`."""
    return location.etag is not None and pin_of(location.version_id) is None


def refusal(
    location: Location, status: int, code: str, retry_after_s: float | None = None
) -> PenstockError:
    """The error that a refusal means. `code`: S3's error code, empty if there is none."""
    said = f"{name(location)}: the store answered {f'{status} {code}'.strip()}"
    section = section_of(location)
    if code in _LOCKED_OUT:
        return LockedOut(
            f"{said}; set this machine's clock, or give fresh credentials",
            retry_after_s=retry_after_s,
        )
    if status in _PASSING_STATUS or status >= 500 or code in _PASSING:
        return Transient(said, retry_after_s=retry_after_s)
    if status in REDIRECTS:
        return led_away(location, said)
    if code in _WRONG_REGION:
        return Elsewhere(
            "forbidden", f"{said}: another region; set {section}.region to the bucket's"
        )
    pinned = location.version_id is not None
    if (
        status in (412, NO_SUCH_RANGE)
        or code == "NoSuchVersion"
        or (pinned and status in (400, 405))
    ):
        return Poison("changed", f"{said}: the pinned version is gone; reference the present one")
    if code == "NoSuchBucket":
        return NoBucket(
            "not_found",
            f"{said}: the bucket is gone, or never was; create it (aws s3 mb "
            f"s3://{location.bucket}), or correct the reference or {section}.endpoint_url",
        )
    if code == "InvalidObjectState":
        return Poison("forbidden", f"{said}: it is archived; restore it first")
    if status in (401, 403):
        keys = f"{section}.key and {section}.secret"
        return Poison("forbidden", f"{said}; check {keys} and their rights")
    if status in (404, 410) or (code and status in _NAMELESS_STATUS):
        return Poison("not_found", f"{said}; upload it first, or correct the reference")
    return no_sense(location, f"{status} {code}".strip())


class NoBucket(Poison):
    """The store has no such bucket, so it has none of its objects and takes none."""


class Elsewhere(Poison):
    """The store does not have the bucket, but says where it is."""


def led_away(location: Location, said: str | None = None) -> Elsewhere:
    """A redirect, which is followed neither to another host nor from https to http."""
    section = section_of(location)
    return Elsewhere(
        "forbidden",
        f"{said or name(location)}: the store leads to another address, which is not followed; set "
        f"{section}.region to the bucket's, or {section}.endpoint_url to the store's own address",
    )


class Renewal:
    """Decides when to look for new credentials after the store called ours expired: at most every
    `RENEW_S`.
    """

    def __init__(self) -> None:
        self._next_s = 0.0

    def is_due(self, error: PenstockError) -> bool:
        now_s = asyncio.get_running_loop().time()
        if not isinstance(error, LockedOut) or now_s < self._next_s:
            return False
        self._next_s = now_s + RENEW_S
        return True


def no_sense(location: Location, reason: object) -> Transient:
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
    return Unreachable(
        f"{name(location)}: the store does not answer ({reason}); check "
        f"{section_of(location)}.endpoint_url"
    )
