"""Where the answers of an input object are written: the name of their result object.

Rule: a name is made of the reference and its record alone, never of the time of the writing, so a
repeat after a crash writes the same object. Whatever a reference says, it stays below the
template's own folders: no segment is empty, `.` or `..`, and none is longer than stores and file
systems take. Owner: the publish stage.
"""

import hashlib
import re
from collections.abc import Mapping
from string import Formatter
from typing import NamedTuple

from consumers.core.blocks import Ticket
from consumers.core.places import DEFAULT
from schemas.reference import day_of

FIELDS = frozenset(
    {"store", "bucket", "key", "stream", "date", "topic", "partition", "offset", "model"}
)
# By the end of the template.
FORMATS = ("jsonl", "jsonl.gz", "csv", "parquet")

# S3 takes 1,024 bytes, a file system 255 a segment; `.`, a random part and `.part` come to it.
MAX_KEY_BYTES = 1_000
MAX_SEGMENT_BYTES = 200
_DIGEST_CHARS = 16

# What no path may have, and `%` itself, so that two names never become one.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f%\\]")
_LIKE_A_PART = re.compile(r"\.rows-(?=[^/]+-\d+-\d+-\d+$)")
# What `{bucket}` is for inline rows, and what `{key}` looks like.
INLINE = "inline"
_INLINE_KEY = re.compile(r"[a-zA-Z0-9._-]+/\d+/\d+")
_URL = re.compile(r"(?P<scheme>[a-z0-9]+)://(?P<bucket>[^/]*)/(?P<key>.+)")


class ResultName(NamedTuple):
    """`bucket` is empty where the scheme is `file`; the key is an absolute path then."""

    scheme: str
    bucket: str
    key: str

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key.lstrip('/')}"


class ResultNames:
    """`of` a ticket. Raises `ValueError` for a template that can name no results."""

    def __init__(
        self, template: str, model: str, *, is_for_one: bool = False, are_several: bool = False
    ) -> None:
        """`model` is the default one's name; where there `are_several`, the template keeps them
        apart. `is_for_one`: only one object is ever written, so the template may name it as it is.
        """
        self._model = model
        self.format = _format_of(template)
        found = _URL.fullmatch(template)
        if found is None:
            raise ValueError(
                f"{template!r} is no URL with a bucket and a key; write "
                f"s3://bucket/{{key}}.{self.format}, or file:///folder/{{key}}.{self.format} for a "
                "folder of this machine"
            )
        self._suffix = f".{self.format}"
        self.scheme, self.bucket = found["scheme"], found["bucket"]
        if self.scheme == "file" and self.bucket:
            raise ValueError(f"{template!r} names a host; write file:///folder/...")
        self._key = found["key"].removesuffix(self._suffix)
        named = _fields(self.bucket) | _fields(self._key)
        if unknown := named - FIELDS:
            raise ValueError(
                f"{template!r} has {{{min(unknown)}}}; there are "
                + ", ".join(f"{{{name}}}" for name in sorted(FIELDS))
            )
        if not (is_for_one or "key" in named or {"partition", "offset"} <= named):
            raise ValueError(
                f"{template!r} names one object for many: put in {{key}}, or {{partition}} and "
                "{offset}"
            )
        if are_several and not self._keeps_models_apart:
            raise ValueError(
                f"{template!r} may give answers of two models one name; put in {{model}} as a "
                "folder of its own, before {key} and {stream}, or as the bucket's only field"
            )
        self._names_records = {"partition", "offset"} <= named
        self._names_stores = "store" in named

    @property
    def _keeps_models_apart(self) -> bool:
        """What is before the model has no folders of the world's, so no two of these names can be
        the same.
        """
        if "model" in _fields(self.bucket):
            return _fields(self.bucket) == {"model"}
        before, found, _ = f"/{self._key}/".partition("/{model}/")
        return bool(found) and not _fields(before) & {"key", "stream"}

    def of(self, ticket: Ticket) -> ResultName:
        values = _values(ticket, ticket.model or self._model)
        safe = {name: _safe(text) for name, text in values.items()}
        if _is_like_inline(ticket):
            safe["key"] = f"%{ord(safe['key'][0]):02X}{safe['key'][1:]}"
        safe["model"] = safe["model"].replace("/", "%2F")  # it is one folder
        bucket, key = self.bucket.format_map(safe), self._key.format_map(safe)
        # The name of a part is nobody else's: what ends like one has no such dot.
        key = _LIKE_A_PART.sub("%2Erows-", key)
        key = _short(key + self._own(ticket)) + self._suffix
        return ResultName(self.scheme, bucket, f"/{key}" if self.scheme == "file" else key)

    def _own(self, ticket: Ticket) -> str:
        """What keeps apart answers to the same object that are not the same: those to some of its
        rows only, those of one message that names several objects, and those to objects of one
        name in several stores.
        """
        if self._names_records:
            return f".{ticket.object_index}" if ticket.object_index else ""
        # A `%` that no value has, see `_safe`: nothing else ends so.
        place = "" if self._names_stores or ticket.store == DEFAULT else f"%in-{ticket.store}"
        return place + self._part(ticket)

    def _part(self, ticket: Ticket) -> str:
        if ticket.reference is None or ticket.reference.rows is None:
            return ""
        owner, record = ticket.owner, ticket.record
        return f".rows-{owner.topic}-{owner.partition}-{record.offset}-{ticket.object_index}"


def _format_of(template: str) -> str:
    for name in sorted(FORMATS, key=len, reverse=True):
        if template.endswith(f".{name}"):
            return name
    raise ValueError(f"{template!r} must end with {', '.join(f'.{name}' for name in FORMATS)}")


def _fields(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


def _values(ticket: Ticket, model: str) -> Mapping[str, str]:
    reference, owner, record = ticket.reference, ticket.owner, ticket.record
    origin = reference or ticket.inline
    bucket = reference.bucket if reference else INLINE
    key = reference.key if reference else f"{owner.topic}/{owner.partition}/{record.offset}"
    if bucket.endswith("://"):  # a file of this machine, by its whole path
        bucket, key = bucket.removesuffix("://"), key.lstrip("/")
    event_time = origin.event_time if origin else None
    return {
        "store": ticket.store,
        "bucket": bucket,
        "key": key,
        "stream": ticket.stream,
        "date": day_of(record.timestamp_ms if event_time is None else event_time),
        "topic": owner.topic,
        "partition": str(owner.partition),
        "offset": str(record.offset),
        "model": model,
    }


def _is_like_inline(ticket: Ticket) -> bool:
    """An object that lies where inline rows would: it is told from them by a `%`."""
    reference = ticket.reference
    return (
        reference is not None
        and reference.bucket == INLINE
        and _INLINE_KEY.fullmatch(reference.key) is not None
    )


def _safe(text: str) -> str:
    """The value as path segments that lead nowhere else."""
    text = _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", text)
    text = text.encode(errors="replace").decode()
    segments = (
        "%" if not part else part.replace(".", "%2E") if part in (".", "..") else part
        for part in text.split("/")
    )
    return "/".join(segments)


def _short(key: str) -> str:
    """As it is, or with a digest in place of what is too long."""
    key = "/".join(_cut(part, MAX_SEGMENT_BYTES) for part in key.split("/"))
    if len(key.encode()) <= MAX_KEY_BYTES:
        return key
    return (
        f"{key.encode()[: MAX_KEY_BYTES // 2].decode(errors='ignore').rstrip('/')}~{_digest(key)}"
    )


def _cut(text: str, most_bytes: int) -> str:
    if len(text.encode()) <= most_bytes:
        return text
    kept = text.encode()[: most_bytes - _DIGEST_CHARS - 1].decode(errors="ignore")
    return f"{kept}~{_digest(text)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARS]
