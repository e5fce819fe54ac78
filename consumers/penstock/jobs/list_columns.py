"""What the columns of a list of objects mean, and the reference that a row makes.

Rule: columns are known by their names: the names of a reference's fields, and those of S3 Inventory
in any spelling (`VersionId`, `version_id`, `e_tag`). A version, entity tag or size in a row pins
the object. A row of a delete marker, or of a version that is not the latest, makes no reference.
Owner: the reading of one list.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final
from urllib.parse import unquote_plus

from penstock.messages.reference import EPOCH, Reference, SchemaError
from penstock.messages.urls import split_url

_FIELDS: Final = {
    "bucket": "bucket",
    "key": "key",
    "url": "url",
    "stream": "stream",
    "model": "model",
    "format": "format",
    "compression": "compression",
    "versionid": "version_id",
    "etag": "etag",
    "size": "size",
    "eventtime": "event_time",
    "lastmodifieddate": "event_time",
    "islatest": "is_latest",
    "isdeletemarker": "is_delete_marker",
}
_NUMBERS: Final = ("size", "event_time")
_FLAGS: Final = ("is_latest", "is_delete_marker")
# A number of at most this many digits always fits 64 bits.
_MOST_DIGITS: Final = 18
_MILLISECOND: Final = EPOCH.resolution * 1000


def field_of(name: str) -> str | None:
    """The field of a reference that a column of this name holds; None: the column has no
    meaning.
    """
    return _FIELDS.get(name.strip().lower().replace("_", ""))


class Columns:
    """`is_encoded`: True if keys are percent-encoded, as in the CSV files of S3 Inventory. Raises
    `SchemaError` if the columns name no objects.
    """

    def __init__(self, names: Sequence[str], *, is_encoded: bool = False) -> None:
        fields = [field_of(name) for name in names]
        self._count = len(names)
        self._fields = [(index, field) for index, field in enumerate(fields) if field is not None]
        self._is_encoded = is_encoded
        if not ({"bucket", "key"} <= set(fields) or "url" in fields):
            shown = ", ".join(name[:40] for name in names[:6])
            raise SchemaError(
                f"no columns bucket and key, nor url, but: {shown}. A list needs a first line with "
                "their names; of an S3 Inventory give its manifest.json"
            )

    def reference(self, row: Sequence[Any]) -> Reference | None:
        """The reference of a row; None: the row makes no reference, because its object was deleted
        or the row is about an older version. Raises `SchemaError` for a wrong row.
        """
        if len(row) != self._count:
            raise SchemaError(f"{len(row)} columns instead of {self._count}")
        said: dict[str, Any] = {
            field: value if isinstance(value, str) else _converted(field, value)
            for index, field in self._fields
            if (value := row[index]) is not None and value not in ("", b"")
        }
        if not _is_true(said.pop("is_latest", True)) or _is_true(
            said.pop("is_delete_marker", False)
        ):
            return None
        if "url" in said:
            said["store"], said["bucket"], said["key"] = split_url(said.pop("url"))
        elif not ("bucket" in said and "key" in said):
            raise SchemaError("bucket or key is empty")
        if self._is_encoded:
            said["key"] = unquote_plus(said["key"])
        _make_numbers(said)
        return Reference(**said)


def _converted(field: str, value: object) -> object:
    """A value of a Parquet list that is no text, converted to what the field takes. Raises
    `SchemaError`.
    """
    match value:
        case float() | Decimal() if field in _NUMBERS and math.isfinite(value):
            if field == "event_time" or value == int(value):
                return int(value)
        case datetime() if field == "event_time":
            return (value.replace(tzinfo=value.tzinfo or UTC) - EPOCH) // _MILLISECOND
        case date() if field == "event_time":
            return (datetime.combine(value, time(), UTC) - EPOCH) // _MILLISECOND
        case bool() if field in _FLAGS:
            return value
        case int() if not isinstance(value, bool):
            return value if field in _NUMBERS else str(value)
        case bytes() if field not in _NUMBERS:  # its writer has not said that it is UTF-8
            with suppress(UnicodeDecodeError):
                return value.decode()
    raise SchemaError(f"{field} {value!r:.40} is of a wrong kind ({type(value).__name__})")


def _is_true(said: object) -> bool:
    return said is True or (isinstance(said, str) and said.lower() in ("true", "1"))


def _make_numbers(said: dict[str, Any]) -> None:
    size, at = said.get("size"), said.get("event_time")
    if isinstance(size, str):
        if not _is_number(size):
            raise SchemaError(f"size {size[:40]!r} is not a number of bytes")
        said["size"] = int(size)
    if isinstance(at, str) and _is_number(at):
        said["event_time"] = int(at)


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= _MOST_DIGITS
