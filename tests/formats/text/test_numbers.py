"""Many rows at once: what is not a table of that width is never taken for one."""

import pytest

from penstock.formats.text.lines import parse_table


@pytest.mark.parametrize("cells", range(1, 8))
@pytest.mark.parametrize("columns", range(1, 8))
def test_rows_of_another_width_are_no_table(cells: int, columns: int) -> None:
    row = b",".join([b"1"] * cells) + b"\n"
    for rows in range(1, 50):
        table = parse_table(row * rows, columns)
        if cells == columns:
            assert table is not None
            assert table.tolist() == [[1.0] * cells] * rows
        else:
            assert table is None
