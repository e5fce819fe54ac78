"""Runs of rows as lists of blocks: counted, cut, and looked through.

Rule: a block is cut in two where a run ends within it; nothing else about it changes.
Owner: the searches.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, groupby, pairwise, takewhile

from consumers.core.blocks import Block, Ticket

# An object that has so many times the rows of the one before is of another kind: a file beside a
# tick.
GROWS = 3.0


def leading(blocks: list[Block], rows: int | None) -> tuple[list[Block], list[Block]]:
    """The first so many rows (None: all) and the others; a block in the middle is cut."""
    if rows is None:
        return blocks, []
    for index, block in enumerate(blocks):
        if block.rows > rows:
            if not rows:
                return blocks[:index], blocks[index:]
            rest = block.split(rows)
            return blocks[: index + 1], [rest, *blocks[index + 1 :]]
        rows -= block.rows
    return blocks, []


def rows_of(blocks: list[Block]) -> int:
    return sum(block.rows for block in blocks)


def alive(blocks: list[Block]) -> list[Block]:
    """Without those of an assignment that is over."""
    return [block for block in blocks if block.ticket.owner.alive]


def rows_while(blocks: Sequence[Block], holds: Callable[[Block], bool]) -> int:
    return sum(block.rows for block in takewhile(holds, blocks))


def smallest_first(blocks: Sequence[Block]) -> list[Block]:
    """The blocks object by object, those of the fewest rows first."""
    rows: dict[Ticket, int] = {}
    for block in blocks:
        rows[block.ticket] = rows.get(block.ticket, 0) + block.rows
    place = {ticket: number for number, ticket in enumerate(rows)}
    return sorted(blocks, key=lambda block: (rows[block.ticket], place[block.ticket]))


def border_of_sizes(blocks: Sequence[Block]) -> int:
    """Rows before the border at which objects grow the most, of blocks that are `smallest_first`;
    0: none is `GROWS` times as large as the one before it.
    """
    sizes = [rows_of(list(group)) for _, group in groupby(blocks, key=lambda block: block.ticket)]
    borders = accumulate(sizes)
    best, steepest = 0, GROWS
    for border, (one, following) in zip(borders, pairwise(sizes), strict=False):
        if following >= steepest * one:
            best, steepest = border, following / one
    return best


def border_near_middle(blocks: Sequence[Block], whole: int) -> int:
    """Rows before the border between two objects that is nearest to the middle; 0:
    there is none.
    """
    best = before = 0
    for one, following in pairwise(blocks):
        before += one.rows
        if one.ticket is not following.ticket and abs(2 * before - whole) < abs(2 * best - whole):
            best = before
    return best
