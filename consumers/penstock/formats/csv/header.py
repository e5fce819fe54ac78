"""The header of a CSV: is the first row one, and which column is meant by a name or a number?

Rule: header = "auto" takes a first line without any number for a header; for JSON rows only if the
second line has a number, since in a file of texts nothing tells a header from a row (a lone line of
texts is a header). Naming a column means there is a header. Cells count from 0. Owner: the CSV
parser.
"""

from collections.abc import Mapping, Sequence
from itertools import islice

from penstock.errors import Poison
from penstock.formats.base.runs import RowOptions
from penstock.formats.csv.cells import TEXTS_ONLY, split_cells
from penstock.formats.csv.dialect import CsvOptions, Dialect, is_decimal_comma
from penstock.formats.csv.numbers import is_number
from penstock.formats.text.lines import RawRows, split_first


def is_header(
    cells: Sequence[bytes], rest: RawRows, options: RowOptions, dialect: Dialect
) -> bool | None:
    """Is the first row a header? None: the second row must be seen first."""
    header = options.of(CsvOptions).header
    if header != "auto":
        return header == "yes"
    if options.stays:
        return True
    if options.columns and any(isinstance(column, str) for column in options.columns):
        return True
    if any(map(is_number, cells)):
        return False
    # Numbers with the other decimal sign make it a row: a bad one, whose reason says why.
    if any(is_decimal_comma(dialect.back(cell)) for cell in cells):
        return False
    if options.as_numbers:
        return True
    if not rest:
        return None
    second = split_cells(split_first(rest)[0], options.max_columns)
    has_number = any(map(is_number, second))
    if not has_number:
        options.notices.once(TEXTS_ONLY)
    return has_number


def index_of(column: str | int, places: Mapping[str, int], columns: int) -> int:
    """The index of a column. `places`: the header's names; `columns`: how many cells a row has."""
    if isinstance(column, str):
        if column in places:
            return places[column]
        names = ", ".join(islice(places, 20))
        found = f"its header has {names}" if names else "it has no header"
        raise Poison("bad_format", f'no column "{column}" in the CSV: {found}')
    if not 0 <= column < columns:
        raise Poison("bad_format", f"no column {column} in the CSV: it has {columns}")
    return column
