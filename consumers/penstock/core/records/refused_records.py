"""What is published in place of a record that the output topic refused.

Rule: one of several rows is cut in halves until the refused row is alone. That row is answered by
an error without all that its sender added; an error that is refused, too, has nothing in its place.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from penstock.core.rows.rejections import Rejection


class Error(NamedTuple):
    """A record with an error in place of its answer, and the row and member that it is about."""

    value: bytes
    row: int | None
    member: str | None


class Form(NamedTuple):
    """How the records of one form are cut, and how an error takes the place of one that cannot be
    cut. `halves` gives a record of one row back as it is. `error` gives None if there is nothing to
    send in its place.
    """

    halves: Callable[[bytes], Sequence[bytes]]
    error: Callable[[bytes, Rejection], Error | None]


def error_of(value: bytes, why: Rejection) -> Error | None:
    """For a record of one row in JSON."""
    try:
        record = msgspec.json.decode(value)
    except msgspec.DecodeError:
        return None
    if not isinstance(record, dict) or "error" in record:
        return None
    for name in ("columns", "attributes", "result"):
        record.pop(name, None)
    error = {"code": why.code, "message": why.message}
    changed = msgspec.json.encode(record | {"prediction": None, "error": error})
    return Error(changed, record.get("row"), record.get("member"))


def middle(rows: int) -> int:
    """Where a record of so many rows is cut: before this row."""
    return (rows + 1) // 2


def _halves_of_array(value: bytes) -> Sequence[bytes]:
    rows = _rows(value)
    if len(rows) < 2:
        return [value]
    at = middle(len(rows))
    return [b"[%b]" % b",".join(map(bytes, part)) for part in (rows[:at], rows[at:])]


def _error_of_array(value: bytes, why: Rejection) -> Error | None:
    (row,) = _rows(value)
    error = error_of(bytes(row), why)
    return error and error._replace(value=b"[%b]" % error.value)


def _rows(array: bytes) -> list[msgspec.Raw]:
    return msgspec.json.decode(array, type=list[msgspec.Raw])


OF_ROWS = Form(lambda value: [value], error_of)
OF_ARRAYS = Form(_halves_of_array, _error_of_array)
