from hypothesis import given
from hypothesis import strategies as st

from consumers.core.bisect import halves
from consumers.core.blocks import Block
from tests.core.builders import block, ticket


def rows_in(blocks: list[Block]) -> list[tuple[int, int]]:
    """(record offset, row) of every row."""
    return [
        (one.ticket.record.offset, one.first_row + index)
        for one in blocks
        for index in range(one.rows)
    ]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12).filter(lambda sizes: sum(sizes) > 1))
def test_halves_keep_every_row_in_order_and_are_about_equal(sizes: list[int]) -> None:
    blocks = [block(ticket(offset=number), rows) for number, rows in enumerate(sizes)]
    before = rows_in(blocks)
    left, right = halves(blocks)
    assert rows_in(left) + rows_in(right) == before
    assert 0 <= len(rows_in(right)) - len(rows_in(left)) <= 1


def test_a_bad_row_is_alone_after_log2_cuts() -> None:
    part, cuts = [block(ticket(), 512)], 0
    while sum(one.rows for one in part) > 1:
        left, right = halves(part)
        part = left if any(row == 137 for _, row in rows_in(left)) else right
        cuts += 1
    assert (rows_in(part), cuts) == ([(0, 137)], 9)
