"""The interface of all formats of result objects.

Rule: the bytes depend on the rows alone, never on how many came at a time, so that a repeat writes
the same object. For this, compressed data is cut at fixed places. Memory is bounded by a step, not
by the object. Owner: the writer of one result object.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from penstock.core.rows.blocks import Block, Rejection
from penstock.core.rows.kept import Kept

# So much is compressed, or handed to the store, at a time.
STEP_BYTES = 1 << 20


class Rows(NamedTuple):
    """Consecutive rows of one member; `answers` are JSON, `null` where `errors` (by index) has the
    reason. `event_time` is the reference's own, as JSON, where each row may have another.
    """

    first_row: int
    answers: Sequence[bytes]
    member: str | None
    errors: Mapping[int, Rejection]
    kept: Kept | None = None


def rows_of(block: Block) -> Rows:
    """The rows of an answered block."""
    if block.answers is not None:
        return Rows(block.first_row, block.answers, block.member, block.errors, block.kept)
    errors: dict[int, Rejection] = {}
    for rows, why in block.rejections():
        begin = len(errors)
        errors |= dict.fromkeys(range(begin, begin + rows), why)
    nothing = [b"null"] * block.rows
    return Rows(block.first_row, nothing, block.member, errors, block.kept)


class Encoding(Protocol):
    """One result object. `add` rows in order; `take` what is ready when it `is_due`; `close` gives
    the rest. `take` and `close` may be called in a thread, one at a time, never beside `add`.
    """

    @property
    def is_due(self) -> bool: ...

    @property
    def waiting_bytes(self) -> int:
        """About how many bytes the next `take` or `close` works on."""
        ...

    def add(self, rows: Rows) -> None: ...

    def take(self) -> bytes: ...

    def close(self) -> bytes: ...
