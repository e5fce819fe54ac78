"""Checks the names of buckets and objects, and matches globs.

Rule: a name that a client could not pass on exactly is refused, as by a store without such an
object.
"""

import re
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import unquote, urlsplit

from fsspec.utils import glob_translate

from penstock.core.routing.store_choice import DEFAULT
from penstock.errors import Poison, usage
from penstock.ports import PROBE, Location

# How many names are listed at a time: as many as a page of S3's listing has.
LISTED_AT_ONCE: Final = 1000

# A bucket has no slash, so that `bucket/key` can be read in one way only.
is_bucket: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}").fullmatch
# Finds an empty segment of a key, a segment `.` or `..`, or a control character. S3 allows such
# keys, but a library that treats keys as paths would change or refuse them.
is_odd: Final = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|[\x00-\x1f\x7f]").search
_GLOB_CHARACTER = re.compile(r"[*?\[]")


def folder_of(endpoint_url: str | None) -> str | None:
    """The local folder that a `file:///folder` endpoint names; None for a real store."""
    parts = urlsplit(endpoint_url or "")
    return unquote(parts.path) if parts.scheme == "file" else None


def section_of(location: Location) -> str:
    """The section of the configuration that describes the object's store, for error texts."""
    return DEFAULT if location.store == DEFAULT else f"stores.{location.store}"


def check_bucket(location: Location) -> None:
    if not is_bucket(location.bucket):
        raise Poison("not_found", f"{name(location)}: no bucket has such a name")


def is_for_botocore(bucket: str, key: str | None = None) -> bool:
    """True if only botocore can ask for it: for an odd key, and for what AWS has in place of a
    bucket (the ARN of an access point, a directory bucket of S3 Express, an alias of Outposts),
    which botocore knows how to address and sign.
    """
    if key is not None and is_odd(key):
        return True
    return bucket.startswith("arn:") or bucket.endswith(("--x-s3", "--xa-s3", "--op-s3"))


def name(location: Location) -> str:
    where = "" if location.store == DEFAULT else f" of the store {location.store}"
    if location.key == PROBE.key:
        # Nobody announced this object, so its name would tell nothing.
        to = "" if location.bucket == PROBE.bucket else f" to bucket {location.bucket!r}"
        return f"a first question{to}{where}"
    return f"object {location.key!r} in bucket {location.bucket!r}{where}"


@dataclass(frozen=True, slots=True)
class Glob:
    """`prefix`: the literal beginning of the glob. `depth`: how many slashes a match has; None if
    the glob holds `**`.
    """

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
