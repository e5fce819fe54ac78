"""Rows that are read one by one: a bad row is a run of its own, and says why it is bad."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from penstock.core.rows.payload import Payload
from penstock.errors import Poison
from penstock.formats.base.runs import Run

T = TypeVar("T")

# A run holds at most this many rows that were read one by one. Reading them takes 1 to 3 ms; then
# other objects may have a turn.
MOST_EXACT_ROWS = 512

_SHOWN_BYTES = 40  # of a bad cell or value in an error message


class BadRow(ValueError):
    """One row cannot be read; the message says why."""


def read_rows(
    rows: Sequence[bytes],
    read: Callable[[bytes], T],
    join: Callable[[list[T]], Payload],
    most_rows: int = MOST_EXACT_ROWS,
) -> Iterator[Run]:
    """Read row by row; `read` raises `BadRow`, or `Poison`. Consecutive good rows are one run, of
    at most `most_rows`.
    """
    good: list[T] = []
    for row in rows:
        try:
            good.append(read(row))
            if len(good) == most_rows:
                yield Run(len(good), join(good))
                good = []
            continue
        except (BadRow, Poison) as found:
            error = found
        if good:
            yield Run(len(good), join(good))
            good = []
        if isinstance(error, Poison):
            raise error
        yield bad_row(str(error))
    if good:
        yield Run(len(good), join(good))


def bad_row(error: str) -> Run:
    return Run(rows=1, payload=None, error=error)


def too_long(limit_bytes: int) -> str:
    return f"row is longer than {limit_bytes} bytes (limits.row_bytes)"


def shown(text: bytes) -> str:
    """The beginning of a bad cell or value, for an error message."""
    return text[:_SHOWN_BYTES].decode(errors="replace") + ("…" if len(text) > _SHOWN_BYTES else "")
