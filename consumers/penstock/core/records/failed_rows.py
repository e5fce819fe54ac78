"""Errors in place of answers: the rows of a release that failed, what is published in place of a
record that the output topic refused, and which rejections get a log line of their own.

Rule: neighbouring rows that failed for one reason are one `Failed`. A refused record of several
rows is cut in halves until the refused row is alone. That row is answered by an error without all
that its sender added; an error that is refused, too, has nothing in its place.

Rule of the log: the first rejection of each stream and code gets a line at once; later ones are
counted, and the counts logged when the round of `ROUND_S` ends. No minute has more than 60 lines:
in the worst case the first lines of two rounds and the counts of one, or the first lines of one and
the counts of two. Rejections for which a round has no line left are counted together.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from penstock.core.progress.order import Release
from penstock.core.rows.blocks import Ticket
from penstock.core.rows.rejections import Rejection


class Failed(NamedTuple):
    """Consecutive rows, from `row` on, that are answered by one error. `row` is None if the object
    itself failed, or the rest of it.
    """

    row: int | None
    rows: int
    member: str | None
    why: Rejection


def failed_rows(release: Release) -> Iterator[Failed]:
    for block in release.blocks:
        if block.answers is None:
            row = block.first_row
            for rows, why in block.rejections():
                yield Failed(row, rows, block.member, why)
                row += rows
        else:
            for index in sorted(block.errors):
                yield Failed(block.first_row + index, 1, block.member, block.errors[index])


def published_rows(release: Release) -> int:
    """How many of the release's rows a former assignment has already published. These rows are
    answered again only for the result object.
    """
    published = release.ticket.published_rows
    return sum(min(b.rows, max(0, published - b.first_row)) for b in release.blocks)


def unpublished(ticket: Ticket, failed: Sequence[Failed]) -> list[Failed]:
    """The failures of rows that a former assignment did not publish."""
    failures: list[Failed] = []
    for row in failed:
        passed = max(0, ticket.published_rows - (row.row or 0))
        if passed < row.rows:
            failures.append(row._replace(row=(row.row or 0) + passed, rows=row.rows - passed))
    return failures


def too_large(nbytes: int) -> Rejection:
    return Rejection(
        "result_too_large",
        f"the prediction's record has {nbytes} bytes, more than the topic takes",
        "publish",
    )


def too_large_rows(values: Sequence[bytes], fits: Callable[[bytes], bool]) -> dict[int, Rejection]:
    return {index: too_large(len(value)) for index, value in enumerate(values) if not fits(value)}


ROUND_S = 60.0
MOST_FIRST = 19
MOST_AGAIN = 19
# This many pairs of stream and code take some 30 KB. A worker rarely has more of them at a time.
MOST_PAIRS = 200


class Again(NamedTuple):
    """How many more rows or objects were rejected. `kind`: their stream and code; None: all pairs
    of stream and code that got no line of their own.
    """

    kind: tuple[str, str] | None
    rejected: int


class LoggedRejections:
    """Call `first` for each rejection, and `round_over` at the end of every `ROUND_S` in which
    there was a rejection.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._firsts = 0
        self._rest = 0

    def first(self, stream: str, code: str, count: int) -> bool:
        """Does this rejection get a line now? If not, its `count` is logged at the end of the
        round.
        """
        kind = stream, code
        if kind in self._counts:
            self._counts[kind] += count
            return False
        if self._firsts == MOST_FIRST or len(self._counts) == MOST_PAIRS:
            self._rest += count
            return False
        self._firsts += 1
        self._counts[kind] = 0
        return True

    def round_over(self) -> list[Again]:
        """Returns the counts of the round, the largest first. If the memory is full, kinds without
        a rejection in this round are forgotten, so the next rejection of such a kind counts as a
        first one.
        """
        counted = sorted(
            (Again(kind, count) for kind, count in self._counts.items() if count),
            key=lambda count: -count.rejected,
        )
        shown, left = counted[:MOST_AGAIN], counted[MOST_AGAIN:]
        if rest := self._rest + sum(count.rejected for count in left):
            shown.append(Again(None, rest))
        is_full = len(self._counts) == MOST_PAIRS
        self._counts = {kind: 0 for kind, n in self._counts.items() if n or not is_full}
        self._firsts = self._rest = 0
        return shown


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
