"""Reads many rows at a time: a block of rows that cannot be read at once is halved.

Rule: a bad row slows down only its neighbours. Pure.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from penstock.formats.base.runs import Run
from penstock.formats.text.lines import RawRows, count_rows, rows_of

# Fewer rows than this are read one by one: a call of pyarrow costs 220 us, a row read alone 2-4 us.
EXACT_ROWS = 64


def parse_halving(
    block: RawRows,
    bulk: Callable[[RawRows], Run | None],
    exact: Callable[[list[bytes]], Iterator[Run]],
) -> Iterable[Run]:
    """Read all rows at once by `bulk`. If `bulk` gives None, halve the block and try each half, so
    that a bad row slows down only its neighbours; a few rows are read one by one, by `exact`.
    """
    run = bulk(block)
    if run is not None:
        return (run,)
    rows = count_rows(block)
    if rows <= EXACT_ROWS:
        return exact(rows_of(block))
    both = halves(block, rows)
    return chain.from_iterable(parse_halving(half, bulk, exact) for half in both)


def halves(block: RawRows, rows: int) -> tuple[RawRows, RawRows]:
    if isinstance(block, list):
        return block[: rows // 2], block[rows // 2 :]
    # The middle of the bytes is found faster than the middle of the lines. If the last line is
    # longer than all lines before it together, it is a half by itself.
    middle = block.find(b"\n", len(block) // 2) + 1
    if middle == len(block):
        middle = block.rfind(b"\n", 0, -1) + 1
    return block[:middle], block[middle:]


def portions(block: RawRows, most_rows: int) -> Iterator[RawRows]:
    """The block in pieces of at most `most_rows` rows."""
    rows = count_rows(block)
    if rows <= most_rows:
        yield block
    else:
        for half in halves(block, rows):
            yield from portions(half, most_rows)
