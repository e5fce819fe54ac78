"""Runs of rows as lists of blocks: counted, cut, and looked through.

Rule: a block is cut in two where a run ends within it; nothing else about it changes.
Owner: the searches.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise, takewhile

from consumers.core.blocks import Block


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
