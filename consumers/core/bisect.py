"""Cutting a batch in halves, to find the row the model cannot take: log2 extra calls, not one per
row.
"""

from consumers.core.blocks import Block


def halves(blocks: list[Block]) -> tuple[list[Block], list[Block]]:
    """Two lists of about equal rows, cutting the block in the middle; `blocks` has at least two
    rows.
    """
    half = sum(block.rows for block in blocks) // 2
    left: list[Block] = []
    for index, block in enumerate(blocks):
        if block.rows >= half:
            rest = [block.split(half)] if half < block.rows else []
            return [*left, block], [*rest, *blocks[index + 1 :]]
        left.append(block)
        half -= block.rows
    raise AssertionError("the middle of a batch is inside it")
