"""The interface of all formats of result objects.

Rule: the bytes depend on the rows alone, not on how many were added at a time, so that an object
written again has the same bytes; so compressed data is cut at fixed places. Memory is bounded by a
step.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from penstock.core.rows.blocks import Block
from penstock.core.rows.payload import NO_TIME, Kept
from penstock.core.rows.rejections import Rejection

# This many bytes are compressed at a time, and this many are handed to the store at a time.
STEP_BYTES = 1 << 20


class AnsweredRows(NamedTuple):
    """Consecutive rows of one member. `answers`: JSON texts. `errors`: for the index of each
    rejected row, the reason; the answer of a rejected row is `null`.
    """

    first_row: int
    answers: Sequence[bytes]
    member: str | None
    errors: Mapping[int, Rejection]
    kept: Kept | None = None


def rows_of(block: Block) -> AnsweredRows:
    """The rows of an answered block."""
    if block.answers is not None:
        return AnsweredRows(block.first_row, block.answers, block.member, block.errors, block.kept)
    errors: dict[int, Rejection] = {}
    for rows, why in block.rejections():
        begin = len(errors)
        errors |= dict.fromkeys(range(begin, begin + rows), why)
    nothing = [b"null"] * block.rows
    return AnsweredRows(block.first_row, nothing, block.member, errors, block.kept)


def columns_of(rows: AnsweredRows) -> Sequence[bytes | None]:
    """The JSON object of the kept columns of each row; None for rows without kept columns."""
    if rows.kept is None or rows.kept.columns is None:
        return [None] * len(rows.answers)
    kept = rows.kept.columns
    return [bytes(kept.cut(row, row + 1).body) for row in range(kept.rows)]


def times_of(rows: AnsweredRows) -> Sequence[int | None]:
    """Each row's own time in epoch milliseconds; None for a row without a time of its own."""
    if rows.kept is None or rows.kept.times is None:
        return [None] * len(rows.answers)
    return [None if time == NO_TIME else int(time) for time in rows.kept.times]


class Encoding(Protocol):
    """Encodes one result object. Call `add` with the rows in order. When `is_due` is true, call
    `take`, which returns the bytes that are ready. At the end, `close` returns the remaining bytes.
    `take` and `close` may run in another thread, but only one of the three methods may run at a
    time.
    """

    @property
    def is_due(self) -> bool: ...

    @property
    def waiting_bytes(self) -> int:
        """About how many bytes the next `take` or `close` works on."""
        ...

    def add(self, rows: AnsweredRows) -> None: ...

    def take(self) -> bytes: ...

    def close(self) -> bytes: ...
