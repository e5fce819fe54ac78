"""CSV and TSV as other tools write them."""

from pathlib import Path
from typing import Any

import pytest

from tests.writers.support import Cell, File, float32, hold, module, named

# Content that a writer of texts must quote, and numbers that shortest printing shows.
TEXTS = ["plain", "a,b", 'say "hi"', "two\nlines", "ü €", " blanks ", "semi;colon"]
NUMBERS = [[1.5, -2.0, 0.1], [1e300, 3.0, 1e-7], [0.0, 123456789.0, -0.5]]


def numbers(data: bytes, key: str = "numbers.csv") -> File:
    right: list[object] = [list(row) for row in NUMBERS]
    finite = [row if abs(row[0]) < 1e38 else [float("inf"), *row[1:]] for row in NUMBERS]
    return File(key, data, {"json": right, "float32": float32(finite)})


def pandas_numbers(**options: Any) -> Any:
    def write(folder: Path) -> File:
        pd = module("pandas")
        path = folder / "numbers.csv"
        pd.DataFrame(NUMBERS, columns=["a", "b", "c"]).to_csv(path, index=False, **options)
        return numbers(path.read_bytes())

    return write


CELLS: list[Cell] = [
    Cell("pandas", "to_csv, numbers", pandas_numbers(), ["module:pandas"]),
    Cell("pandas", "to_csv, sep=;", pandas_numbers(sep=";"), ["module:pandas"]),
]


@pytest.mark.parametrize("cell", named(CELLS))
def test_rows_are_what_was_written(cell: Cell, tmp_path: Path) -> None:
    hold(cell, tmp_path)
