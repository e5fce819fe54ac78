"""The name of an input object's result object, by the template of the settings.

Rule: made only of the reference and its record, so a repeat writes the same object. A reference
cannot name a place outside the template's own folders: no segment is empty, `.` or `..`, or longer
than stores and file systems take. A name can be read back: a folder of the template has at most one
field of free text, and numbers are separated from the text beside them. So two names are equal only
if all their fields are equal.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from string import Formatter
from typing import Final, NamedTuple

from penstock.core.routing.store_choice import DEFAULT
from penstock.core.rows.blocks import Ticket
from penstock.messages.reference import Reference, day_of

FIELDS: Final = frozenset(
    {"store", "bucket", "key", "stream", "date", "topic", "partition", "offset", "model"}
)
# The formats of results. The ending of the template names one of them.
FORMATS: Final = ("jsonl", "jsonl.gz", "csv", "parquet")

# Free text: all fields but those whose form is fixed. A date has ten characters, and a number has
# only digits.
_FREE: Final = FIELDS - {"date", "partition", "offset"}
_NUMBERS: Final = frozenset({"partition", "offset"})
# Fields that may contain slashes.
_PATHS: Final = frozenset({"key", "stream"})
_URL = re.compile(r"(?P<scheme>[a-z0-9]+)://(?P<bucket>[^/]*)/(?P<key>.+)")


class Template(NamedTuple):
    """A template in parts. `key` lacks the ending that names the format. `fields`: all fields that
    bucket and key use.
    """

    scheme: str
    bucket: str
    key: str
    format: str
    fields: frozenset[str]

    def names_records(self, *, is_one_input: bool) -> bool:
        wanted = _NUMBERS if is_one_input else _NUMBERS | {"topic"}
        return wanted <= self.fields


class Piece(NamedTuple):
    """A field, or the text between two fields."""

    text: str
    is_field: bool


def parsed(text: str) -> Template:
    """The parts of a template. Raises `ValueError` for a template that cannot name results."""
    format = _format_of(text)
    match = _URL.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is no URL with a bucket and a key; write s3://bucket/{{key}}.{format}, or "
            f"file:///folder/{{key}}.{format} for a folder of this machine"
        )
    bucket, key = match["bucket"], match["key"].removesuffix(f".{format}")
    if match["scheme"] == "file" and bucket:
        raise ValueError(f"{text!r} names a host; write file:///folder/...")
    # Each folder is checked by itself. Between two fields a slash always separates, but any other
    # text may also be a part of a field's value.
    folders = [_pieces(text, folder) for folder in (bucket, *key.split("/"))]
    for folder in folders[1:]:
        if "".join(piece.text for piece in folder) in ("", ".", ".."):
            raise ValueError(f"{text!r} has a folder that is empty, . or ..; leave it out")
    for folder in folders:
        _check_apart(text, folder)
    if lost := _PATHS & {piece.text for piece in folders[0] if piece.is_field}:
        raise ValueError(
            f"{text!r} has {{{min(lost)}}} in the bucket's name; put it behind the bucket"
        )
    fields = frozenset(piece.text for folder in folders for piece in folder if piece.is_field)
    return Template(match["scheme"], bucket, key, format, fields)


def _format_of(text: str) -> str:
    for name in sorted(FORMATS, key=len, reverse=True):
        if text.endswith(f".{name}"):
            return name
    raise ValueError(f"{text!r} must end with {', '.join(f'.{name}' for name in FORMATS)}")


def _pieces(template: str, folder: str) -> Sequence[Piece]:
    return list(_pieces_of(template, folder))


def _pieces_of(template: str, folder: str) -> Iterator[Piece]:
    for text, field, form, conversion in Formatter().parse(folder):
        if text:
            yield Piece(text, is_field=False)
        if field is None:
            continue
        if field not in FIELDS:
            raise ValueError(
                f"{template!r} has {{{field}}}; there are "
                + ", ".join(f"{{{name}}}" for name in sorted(FIELDS))
            )
        if form or conversion:
            raise ValueError(f"{template!r}: a field takes no format, write {{{field}}}")
        yield Piece(field, is_field=True)


def _check_apart(template: str, folder: Sequence[Piece]) -> None:
    """Raises `ValueError` if the text of a folder could be read back in two ways."""
    free = [f"{{{piece.text}}}" for piece in folder if piece.is_field and piece.text in _FREE]
    if len(free) > 1:
        raise ValueError(
            f"{template!r} may give two objects one name: {' and '.join(free)} stand in one "
            "folder; put a / between them"
        )
    if any(_run_together(left, right) for left, right in pairwise(folder)):
        raise ValueError(
            f"{template!r} may give two objects one name: put a - beside {{partition}} and "
            "{offset}"
        )


def _run_together(left: Piece, right: Piece) -> bool:
    """Does a field of digits stand directly beside another field or a digit?"""
    if not {piece.text for piece in (left, right) if piece.is_field} & _NUMBERS:
        return False
    if left.is_field and right.is_field:
        return True
    return right.text[0].isdigit() if left.is_field else left.text[-1].isdigit()


# S3 takes keys of 1,024 bytes, and a file system takes segments of 255. While a file is being
# written, its name also has `.`, a random part and `.part`.
MAX_KEY_BYTES = 1_000
MAX_SEGMENT_BYTES = 200
_DIGEST_CHARS = 16

# Characters that no path may have. `%` is one of them, because it stands before the codes of the
# others: so two names never become one.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f%\\]")
_LIKE_A_PART = re.compile(r"\.rows-(?=[^/]+-\d+-\d+-\d+$)")
# The ending of a name with an extension: `.csv`, or `.csv.gz`. What Spark writes before the ending,
# as in `part-0001.c000.snappy.parquet`, is none.
_PACKING = re.compile(r"\.(?:snappy|gz|zst|zstd|lz4|bz2|xz|br|brotli|lzo|c\d+)$")
_EXTENSION = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,9}$")
# What `{bucket}` becomes for inline rows, and the form of their `{key}`: topic, partition, offset.
INLINE = "inline"
_INLINE_KEY = re.compile(r"[a-zA-Z0-9._-]+/\d+/\d+")


@dataclass(frozen=True, slots=True)
class NameScope:
    """In what the objects to be named can differ: bucket, topic or model. `is_one_object`: there is
    only one object.
    """

    is_one_bucket: bool = False
    is_one_input: bool = True
    are_several_models: bool = False
    is_one_object: bool = False


class ResultName(NamedTuple):
    """With the scheme `file`, `bucket` is empty and `key` is an absolute path."""

    scheme: str
    bucket: str
    key: str

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key.lstrip('/')}"


class ResultNames:
    """`of` gives the name of a ticket's result. Raises `ValueError` for a template that cannot name
    results, or that would give two results one name.
    """

    def __init__(self, template: str, model: str, scope: NameScope) -> None:
        """`model`: the name of the default model."""
        parts = parsed(template)
        if not scope.is_one_object:
            _check(template, parts, scope)
        self._model = model
        self.format, self._suffix = parts.format, f".{parts.format}"
        self.scheme, self.bucket, self._key = parts.scheme, parts.bucket, parts.key
        self._ends_in_key = parts.key.endswith("{key}")
        self._own_folders = parts.key.partition("{")[0].count("/")
        self._names_records = parts.names_records(is_one_input=scope.is_one_input)
        self._names_stores = "store" in parts.fields
        self._names_buckets = "bucket" in parts.fields
        # Only one field may keep its slashes; otherwise the text between two slashes could belong
        # to either field.
        self._folded = ("model", "stream") if "key" in parts.fields else ("model",)

    def of(self, ticket: Ticket) -> ResultName:
        values = _values(ticket, ticket.model or self._model)
        safe = {name: _safe(text) for name, text in values.items()}
        if self._is_like_inline(ticket):
            safe["key"] = f"%{ord(safe['key'][0]):02X}{safe['key'][1:]}"
        for name in self._folded:
            safe[name] = safe[name].replace("/", "%2F")
        bucket, key = self.bucket.format_map(safe), self._key.format_map(safe)
        own, mark = self._own(ticket), ""
        if self._ends_in_key and not own and ticket.reference is not None:
            key, mark = self._ended_once(bucket, key, ticket.reference)
        # A name ends with `.rows-...` only if it is of a result of a part of an object: in all
        # other names the dot before `rows-` is escaped.
        key = _LIKE_A_PART.sub("%2Erows-", self._with_folders(key))
        key = _short(key + mark + own) + self._suffix
        return ResultName(self.scheme, bucket, f"/{key}" if self.scheme == "file" else key)

    def _ended_once(self, bucket: str, key: str, reference: Reference) -> tuple[str, str]:
        """The key without the ending that its result gets; and what distinguishes the result's
        name: `a.parquet` has the result `a.parquet`, so the result of `a` is `a%.parquet`, but the
        result of `a.csv` is `a.csv.parquet`, and that of `a.csv.parquet` ends twice.
        """
        stem = key.removesuffix(self._suffix)
        plain = stem
        while packing := _PACKING.search(plain):
            plain = plain[: packing.start()]
        if _EXTENSION.search(plain):
            return key, ""
        if stem == key:
            return key, "%"
        is_itself = self._may_replace(bucket, key, reference)
        return (key, "") if is_itself or stem.endswith("/") or not stem else (stem, "")

    def _may_replace(self, bucket: str, key: str, reference: Reference) -> bool:
        """True if an object of this name may be the object of the reference. We do not know which
        folder of this machine a bucket is, so the end of the path has to do.
        """
        if self.scheme != "file":
            return (bucket, key) == (reference.bucket, reference.key)
        if reference.bucket.endswith("://"):
            return f"/{key}" == reference.key
        return f"/{key}".endswith(f"/{reference.bucket}/{reference.key}")

    def _with_folders(self, key: str) -> str:
        """Rename each folder whose name could also be the name of a result, because neither a file
        system nor MinIO can have a folder and a file of one name.
        """
        *folders, last = key.split("/")
        start, end = self._own_folders, len(self._suffix)
        for place, folder in enumerate(folders[start:], start):
            if folder.endswith(self._suffix):
                folders[place] = f"{folder[:-end]}%2E{self._suffix[1:]}"
        return "/".join([*folders, last])

    def _is_like_inline(self, ticket: Ticket) -> bool:
        """Does the object have a bucket and key that inline rows could have? Then a `%`
        distinguishes its result's name from that of inline rows.
        """
        reference = ticket.reference
        return (
            reference is not None
            and (reference.bucket == INLINE or not self._names_buckets)
            and _INLINE_KEY.fullmatch(reference.key) is not None
        )

    def _own(self, ticket: Ticket) -> str:
        """The part of the name that distinguishes several results of one object name: results of
        only some rows of the object, of several objects of one message, or of objects in several
        stores.
        """
        if self._names_records:
            return f"%object-{ticket.object_index}" if ticket.object_index else ""
        # No value has a bare `%` (see `_safe`), so no other name can end in this way.
        place = "" if self._names_stores or ticket.store == DEFAULT else f"%in-{ticket.store}"
        return place + self._part(ticket)

    def _part(self, ticket: Ticket) -> str:
        if ticket.reference is None or ticket.reference.rows is None:
            return ""
        (topic, partition), offset = ticket.owner.where, ticket.record.offset
        return f".rows-{topic}-{partition}-{offset}-{ticket.object_index}"


def _check(template: str, parts: Template, scope: NameScope) -> None:
    """Raises `ValueError` if the template gives two objects of this scope one name."""
    names_records = parts.names_records(is_one_input=scope.is_one_input)
    if not names_records and "key" not in parts.fields:
        if parts.names_records(is_one_input=True):
            raise ValueError(f"{template!r} gives records of two topics one name; put in {{topic}}")
        raise ValueError(
            f"{template!r} names one object for many: put in {{bucket}} and {{key}}, or "
            "{partition} and {offset}"
        )
    if scope.are_several_models and "model" not in parts.fields:
        raise ValueError(
            f"{template!r} gives answers of two models one name; put in {{model}} as a folder of "
            "its own"
        )
    if not (names_records or scope.is_one_bucket or "bucket" in parts.fields):
        raise ValueError(
            f"{template!r} gives objects of one key in two buckets one name; put in {{bucket}}. A "
            "worker that reads one bucket may name that bucket in objects.allow instead"
        )


def _values(ticket: Ticket, model: str) -> Mapping[str, str]:
    reference, where, record = ticket.reference, ticket.owner.where, ticket.record
    origin = reference or ticket.inline
    bucket = reference.bucket if reference else INLINE
    key = reference.key if reference else f"{where}/{record.offset}"
    if bucket.endswith("://"):  # an object of this machine is named by its whole path
        bucket, key = bucket.removesuffix("://"), key.lstrip("/")
    event_time = origin.event_time if origin else None
    return {
        "store": ticket.store,
        "bucket": bucket,
        "key": key,
        "stream": ticket.stream,
        "date": day_of(record.timestamp_ms if event_time is None else event_time),
        "topic": where.topic,
        "partition": str(where.partition),
        "offset": str(record.offset),
        "model": model,
    }


def _safe(text: str) -> str:
    """The value as path segments that cannot lead out of their folder."""
    text = _UNSAFE.sub(lambda char: f"%{ord(char[0]):02X}", text)
    text = text.encode(errors="replace").decode()
    segments = (
        "%" if not part else part.replace(".", "%2E") if part in (".", "..") else part
        for part in text.split("/")
    )
    return "/".join(segments)


def _short(key: str) -> str:
    """The key; if it is too long, a shorter one with a digest."""
    key = "/".join(_cut(part, MAX_SEGMENT_BYTES) for part in key.split("/"))
    if len(key.encode()) <= MAX_KEY_BYTES:
        return key
    return (
        f"{key.encode()[: MAX_KEY_BYTES // 2].decode(errors='ignore').rstrip('/')}%~{_digest(key)}"
    )


def _cut(text: str, most_bytes: int) -> str:
    if len(text.encode()) <= most_bytes:
        return text
    kept = text.encode()[: most_bytes - _DIGEST_CHARS - 2].decode(errors="ignore")
    return f"{kept}%~{_digest(text)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARS]
