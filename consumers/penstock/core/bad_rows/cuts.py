"""Where rows are cut, so that a part of them is asked first.

Rule: the first cuts are between two objects, and small objects come first: an object whose rows are
all bad is soon alone. Pure.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, groupby, pairwise

from penstock.core.rows.blocks import Block, Ticket

# If an object has this many times the rows of the next smaller object, it counts as another kind of
# object, such as a large file among the ticks of a stream.
GROWS = 3.0


def fitting(blocks: Sequence[Block], most_rows: int, most_bytes: int) -> int:
    """How many rows, from the first on, fit into one request; at least one."""
    rows = nbytes = 0
    shape = blocks[0].shape if blocks else None
    for block in blocks:
        assert block.payload is not None
        if block.payload.shape != shape:
            break
        most = (most_bytes - nbytes) * block.rows // max(1, block.payload.nbytes)
        fits = min(block.rows, most_rows - rows, most)
        rows += max(0, fits)
        if fits < block.rows:
            break
        nbytes += block.payload.nbytes
    return max(1, rows)


def smallest_first(blocks: Sequence[Block]) -> list[Block]:
    """The blocks ordered by object. Objects with fewer rows come first."""
    rows: dict[Ticket, int] = {}
    for block in blocks:
        rows[block.ticket] = rows.get(block.ticket, 0) + block.rows
    place = {ticket: number for number, ticket in enumerate(rows)}
    return sorted(blocks, key=lambda block: (rows[block.ticket], place[block.ticket]))


def border_of_sizes(blocks: Sequence[Block]) -> int:
    """`blocks` are in the order of `smallest_first`. Returns how many rows come before the object
    that is larger than its predecessor by the largest factor. 0: no object has `GROWS` times the
    rows of its predecessor.
    """
    objects = groupby(blocks, key=lambda block: block.ticket)
    sizes = [sum(block.rows for block in of_one) for _, of_one in objects]
    borders = accumulate(sizes)
    best, steepest = 0, GROWS
    for border, (one, following) in zip(borders, pairwise(sizes), strict=False):
        if following >= steepest * one:
            best, steepest = border, following / one
    return best


def border_near_middle(blocks: Sequence[Block], whole: int) -> int:
    """How many rows come before the border between two objects that is nearest to the middle. 0:
    there is only one object.
    """
    best = before = 0
    for one, following in pairwise(blocks):
        before += one.rows
        if one.ticket is not following.ticket and abs(2 * before - whole) < abs(2 * best - whole):
            best = before
    return best


def first_half(suspects: Sequence[Block], *, at_border: bool) -> int:
    """How many suspects to ask. The first cuts are between two objects. So an object whose rows are
    all bad is soon alone, and the other objects are answered. Small objects are asked before large
    ones, because small objects are live ticks. If they are answered, that one request has shown
    that the large object is at fault.
    """
    whole = rows_of(suspects)
    border = 0
    if at_border:
        border = border_of_sizes(suspects) or border_near_middle(suspects, whole)
    return border or max(1, whole // 2)


def leading(blocks: list[Block], rows: int | None) -> tuple[list[Block], list[Block]]:
    """Returns two lists: the first `rows` rows (None: all), and the rows behind them. A block that
    lies across the border is cut.
    """
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


def rows_of(blocks: Iterable[Block]) -> int:
    return sum(block.rows for block in blocks)


def of_living_lanes(blocks: list[Block]) -> list[Block]:
    """The blocks whose lanes are not closed."""
    return [block for block in blocks if block.ticket.owner.alive]
