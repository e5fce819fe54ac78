"""The input topic's own form: a reference to an object, several of them, or the rows themselves.

Rule: a value that exists is valid; construction refuses everything else with a message for the person who wrote it. Unknown fields are
let through, as producers add their own.
"""

from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from schemas.errors import SchemaError

# S3's own limit on the length of a key, in bytes of UTF-8.
KEY_BYTES = 1024

RowRange = tuple[int, int | None]


class Reference(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One object. `rows` are half-open ranges over the whole object; an end of None means to the last row.

    `event_time` is epoch milliseconds or ISO-8601 text and is passed on as it came, as are `attributes`.
    """

    bucket: str
    key: str
    stream: str | None = None
    event_time: int | str | None = None
    version_id: str | None = None
    etag: str | None = None
    size: int | None = None
    format: str | None = None
    compression: str | None = None
    rows: tuple[RowRange, ...] | None = None
    attributes: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if not self.bucket or not self.key:
            raise SchemaError("bucket and key must not be empty")
        if len(self.key.encode()) > KEY_BYTES:
            raise SchemaError(f"the key has more than {KEY_BYTES} bytes")
        if isinstance(self.event_time, str):
            _check_time(self.event_time)
        if self.rows is not None:
            _check_rows(self.rows)


class Inline(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Rows in the message itself; each element of `inline` is kept as the JSON text it is."""

    inline: tuple[msgspec.Raw, ...]
    stream: str | None = None
    event_time: int | str | None = None
    attributes: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.event_time, str):
            _check_time(self.event_time)

    def body(self) -> bytes:
        """The rows as one JSON array, the form of a JSON object in the store."""
        return b"[%b]" % b",".join(bytes(row) for row in self.inline)


class Incoming(Struct, frozen=True, kw_only=True):
    """Every field our own forms may have; which are set tells the form."""

    bucket: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    objects: tuple[msgspec.Raw, ...] | UnsetType = UNSET
    inline: tuple[msgspec.Raw, ...] | UnsetType = UNSET
    stream: str | None = None
    event_time: int | str | None = None
    version_id: str | None = None
    etag: str | None = None
    size: int | None = None
    format: str | None = None
    compression: str | None = None
    rows: tuple[RowRange, ...] | None = None
    attributes: dict[str, Any] | None = None

    def reference(self) -> Reference:
        bucket, key = self.bucket, self.key
        if isinstance(self.url, str):
            bucket, key = split_url(self.url)
        if not isinstance(bucket, str) or not isinstance(key, str):
            raise SchemaError("a reference needs bucket and key, or url")
        return Reference(
            bucket=bucket,
            key=key,
            stream=self.stream,
            event_time=self.event_time,
            version_id=self.version_id,
            etag=self.etag,
            size=self.size,
            format=self.format,
            compression=self.compression,
            rows=self.rows,
            attributes=self.attributes,
        )


def split_url(url: str) -> tuple[str, str]:
    """`s3://bucket/key` as (bucket, key)."""
    scheme, _, rest = url.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme != "s3" or not bucket or not key:
        raise SchemaError(f"url must be s3://bucket/key, not {url[:200]!r}")
    return bucket, key


def _check_time(text: str) -> None:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise SchemaError(
            f"event_time must be epoch milliseconds or ISO-8601, not {text[:100]!r}"
        ) from None


def _check_rows(ranges: tuple[RowRange, ...]) -> None:
    """Ascending and apart, so that every selected row is answered once, in order."""
    before = 0
    for start, stop in ranges:
        if start < before or (stop is not None and stop <= start):
            raise SchemaError(
                "rows must be ascending half-open ranges that do not overlap: [[0, 500], [700, 701]]"
            )
        before = stop if stop is not None else 2**63
