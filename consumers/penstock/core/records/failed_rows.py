"""The rows of a release that are answered by errors, and the rows that were published before.

Rule: neighbours that failed for one reason are one `Failed`. Owner: the encoding of a release.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from penstock.core.order.releases import Release
from penstock.core.rows.blocks import Ticket
from penstock.core.rows.rejections import Rejection


class Failed(NamedTuple):
    """Consecutive rows, from `row` on, that are answered by one error. `row` None: the object
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
    """How many of the release's rows a former assignment published. These rows are answered again
    only for the result object.
    """
    published = release.ticket.published_rows
    return sum(min(b.rows, max(0, published - b.first_row)) for b in release.blocks)


def unpublished(ticket: Ticket, failed: Sequence[Failed]) -> list[Failed]:
    """The failures without those of rows that a former assignment published."""
    found: list[Failed] = []
    for one in failed:
        passed = max(0, ticket.published_rows - (one.row or 0))
        if passed < one.rows:
            found.append(one._replace(row=(one.row or 0) + passed, rows=one.rows - passed))
    return found


def too_large(nbytes: int) -> Rejection:
    return Rejection(
        "result_too_large",
        f"the prediction's record has {nbytes} bytes, more than the topic takes",
        "publish",
    )


def too_large_rows(values: Sequence[bytes], fits: Callable[[bytes], bool]) -> dict[int, Rejection]:
    return {index: too_large(len(value)) for index, value in enumerate(values) if not fits(value)}
