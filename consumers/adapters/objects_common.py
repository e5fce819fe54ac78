"""What the object clients share: names that are safe, globs, resuming, what a refusal means.

Rule: one table says what a store's answer means, whichever library brought it.
Owner: the `objects_*` adapters.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Self, TypeVar
from urllib.parse import unquote, urlsplit

from fsspec.utils import glob_translate

from consumers import config
from consumers.errors import EXIT_USAGE, Fatal, PenstockError, Poison, Transient, Unreachable
from consumers.ports import Location, Part

T = TypeVar("T")

CHUNK_BYTES: Final = 1 << 20
# Up to here one read is cheaper than a stream, and small beside the byte budget (256 MiB).
WHOLE_BYTES: Final = 8 << 20
CONNECT_TIMEOUT_S: Final = 5.0
# Silence, not duration: a slow consumer may take hours over one body.
READ_TIMEOUT_S: Final = 30.0
DEFAULT_REGION: Final = "us-east-1"
# The answer to a question for bytes that are not there: an empty object has no last ones.
NO_SUCH_RANGE: Final = 416

# 0.05 + 0.2 + 0.8 s: outlives a restarting proxy; anything longer is the caller's to wait for.
RESUMES_WITHOUT_PROGRESS: Final = 3
FIRST_PAUSE_S: Final = 0.05
PAUSE_GROWTH: Final = 4

# Never a slash: `bucket/key` must not be readable in two ways.
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
# Empty, `.` and `..` segments, control characters: legal in S3, rewritten or refused by paths.
_ODD_KEY = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|[\x00-\x1f\x7f]")
_GLOB_CHARACTER = re.compile(r"[*?\[]")

_WRONG_REGION = frozenset(
    {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
)
_STALE_CREDENTIALS = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})


def folder_of(endpoint_url: str | None) -> str | None:
    """The local folder that a `file:///folder` endpoint names; None for a real store."""
    parts = urlsplit(endpoint_url or "")
    return unquote(parts.path) if parts.scheme == "file" else None


def check_credentials(settings: config.Objects) -> None:
    if (settings.key is None) != (settings.secret is None):
        raise Fatal(
            "objects.key and objects.secret go together: set both or neither", exit_code=EXIT_USAGE
        )


def is_odd(key: str) -> bool:
    """Would a path library change or refuse this key?"""
    return _ODD_KEY.search(key) is not None


def check_bucket(location: Location) -> None:
    if not _BUCKET.fullmatch(location.bucket):
        raise Poison("not_found", f"{name(location)}: no bucket has such a name")


def quoted(etag: str) -> str:
    """As HTTP wants it: bucket events leave the quotes out. What no header can hold pins nothing
    that exists.
    """
    if not (etag.isascii() and etag.isprintable()):
        raise Poison("changed", f"{etag[:40]!a} is no entity tag")
    return etag if etag.endswith('"') else f'"{etag}"'


def name(location: Location) -> str:
    return f"object {location.key!r} in bucket {location.bucket!r}"


@dataclass(frozen=True, slots=True)
class Glob:
    """`prefix` is the literal part; `depth` the slashes of every match, None with `**`."""

    prefix: str
    depth: int | None
    pattern: re.Pattern[str]

    @classmethod
    def of(cls, text: str) -> Self:
        magic = _GLOB_CHARACTER.search(text)
        try:
            pattern = re.compile(glob_translate(text))
        except (ValueError, re.error) as error:
            raise Fatal(f"glob {text!r}: {error}", exit_code=EXIT_USAGE) from None
        return cls(
            text[: magic.start()] if magic else text,
            None if "**" in text else text.count("/"),
            pattern,
        )

    def matches(self, key: str) -> bool:
        fits = self.depth is None or key.count("/") == self.depth
        return fits and self.pattern.match(key) is not None


async def resuming(
    size: int, read_from: Callable[[int], AsyncGenerator[bytes]], location: Location
) -> AsyncGenerator[bytes]:
    """All `size` bytes; a cut transfer goes on where it stopped. `read_from` keeps the pin."""
    done = failures = 0
    while done < size:
        try:
            async with aclosing(read_from(done)) as chunks:
                async for chunk in chunks:
                    done += len(chunk)
                    failures = 0
                    yield chunk
            if done < size:
                raise Unreachable(f"{name(location)}: the transfer ended at byte {done} of {size}")
        except Transient:
            failures += 1
            if failures > RESUMES_WITHOUT_PROGRESS:
                raise
            await asyncio.sleep(FIRST_PAUSE_S * PAUSE_GROWTH ** (failures - 1))


async def repeated(attempt: Callable[[], Awaitable[T]]) -> T:
    """What it returns; a transfer that broke is made again a few times."""
    failures = 0
    while True:
        try:
            return await attempt()
        except Transient:
            failures += 1
            if failures > RESUMES_WITHOUT_PROGRESS:
                raise
        await asyncio.sleep(FIRST_PAUSE_S * PAUSE_GROWTH ** (failures - 1))


def check_part(part: Part, location: Location, start: int, stop: int | None) -> Part:
    """Raises `Unreachable` unless exactly the bytes came that were asked for."""
    first = max(0, part.size + start) if start < 0 else start
    last = part.size if stop is None else min(stop, part.size)
    if len(part.data) != max(0, last - first):
        raise Unreachable(
            f"{name(location)}: asked for bytes {first} to {last} of {part.size}, "
            f"{len(part.data)} came"
        )
    return part


def refusal(
    location: Location, status: int, code: str, retry_after_s: float | None = None
) -> PenstockError:
    """What an answer other than the object means. `code` is S3's own word, if it said one."""
    said = f"{name(location)}: the store answered {f'{status} {code}'.strip()}"
    if status in (408, 429) or status >= 500 or code in _STALE_CREDENTIALS:
        return Transient(said, retry_after_s=retry_after_s)
    if status == 301 or code in _WRONG_REGION:
        return Poison("forbidden", f"{said}: another region; set objects.region to the bucket's")
    pinned = location.version_id is not None
    if (
        status in (412, NO_SUCH_RANGE)
        or code == "NoSuchVersion"
        or (pinned and status in (400, 405))
    ):
        return Poison("changed", f"{said}: the pinned version is gone; reference the present one")
    if code == "NoSuchBucket":
        return Poison(
            "not_found", f"{said}; create it, or correct the reference or objects.endpoint_url"
        )
    if status in (401, 403):
        return Poison("forbidden", f"{said}; check objects.key and objects.secret and their rights")
    return Poison("not_found", f"{said}; upload it first, or correct the reference")


def no_credentials(reason: object) -> Fatal:
    return Fatal(
        f"objects: {reason}; set objects.key and objects.secret, objects.profile or objects.anon",
        exit_code=EXIT_USAGE,
    )


def no_answer(location: Location, reason: object) -> Unreachable:
    return Unreachable(
        f"{name(location)}: the store does not answer ({reason}); check objects.endpoint_url"
    )


def no_pin(location: Location) -> Unreachable:
    return Unreachable(f"{name(location)}: the transfer broke, and without an ETag it cannot go on")
