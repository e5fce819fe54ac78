"""The cells of one CSV row: divided and unquoted, written as JSON, and kept beside their row.

Rule: each call is about one row, without state. Owner: the reader of CSV rows.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring as json_string
from math import isinf

from penstock.core.rows.kept import Kept
from penstock.errors import Poison
from penstock.formats.base.kept_columns import moment_ms
from penstock.formats.base.runs import BadRow, shown
from penstock.formats.magic import named_by_magic
from penstock.formats.text.lines import RawRows

# How a missing value is written: as an empty cell, or as spreadsheets, R and databases write it.
MISSING = ("", "NA", "N/A", "null", "NULL")
MISSING_CELLS = frozenset(text.encode() for text in MISSING)
TEXTS_ONLY = (
    "the first line of a CSV is taken for a row, since the second has no number either; "
    'if it is a header, set rows.header = "yes"'
)
LONE_LINE = (
    "the only line of a CSV is taken for a header, since it has no number; if it is a row, set "
    'rows.header = "no"'
)
OLD_MAC = (
    "the lines of the CSV end with carriage returns alone; write it with newlines (a spreadsheet's "
    '"CSV", not its "CSV (Macintosh)")'
)
# The signs are numbers, not bytes, because at each `b'"' in row` Python would internally raise an
# exception and drop it.
_QUOTE, RETURN = b'"\r'
# One cell with the comma before it; the literal comma makes the search fast. A quote that is not
# closed takes the rest of the text.
_QUOTED_CELLS = re.compile(rb'(?s),(?:"([^"]*+(?:""[^"]*+)*+)"([^,]*+)|(".*+|[^,]*+))')
_QUOTED = re.compile(rb'"[^"]*+"')
# Bytes that text files do not have and binary files do: NUL to BS, vertical feeds, SO to US, DEL.
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_JSON_NUMBER = re.compile(
    rb"[ \t\r]*+-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?[ \t\r]*+"
)


def check_text(header: bytes) -> None:
    """Raises `Poison` for binary data, which could pass for a header without rows."""
    if _BINARY.search(header):
        unknown = f'binary data begins with "{shown(header)}": is this CSV?'
        raise Poison("bad_format", named_by_magic(header) or unknown)


def is_old_mac(row: bytes) -> bool:
    """Does the row hold line ends of old Macs, outside quotes?"""
    return b"\r" in _QUOTED.sub(b"", row).rstrip(b"\r")


class TooManyCells(BadRow):
    """A row has more cells than `limits.columns`. The row is not divided into cells, because then
    it would take fifty times as much memory.
    """


def split_cells(row: bytes, max_cells: int) -> list[bytes]:
    """The cells of one complete row, unquoted."""
    if len(row) >= max_cells and row.count(b",") >= max_cells:
        raise TooManyCells(f"row has more than {max_cells} cells (limits.columns)")
    if _QUOTE not in row:
        return row.split(b",")
    cells: list[bytes] = []
    for quoted, tail, plain in _QUOTED_CELLS.findall(b"," + row):
        if plain.startswith(b'"'):  # only the last row of a file may end inside quotes
            raise BadRow(f"cell {len(cells)} opens a quote that is never closed")
        cells.append(plain or quoted.replace(b'""', b'"') + tail)
    return cells


def json_cell(cell: bytes, text: Callable[[bytes], bytes]) -> bytes:
    """The cell as JSON: a JSON number as it stands, an empty cell as null, all else as a string (so
    `007` keeps its zeros).
    """
    if _JSON_NUMBER.fullmatch(cell):
        if isinf(float(cell)):  # the model would refuse the whole batch, with all its rows
            raise OutOfRange(cell)
        return cell
    return json_string(text(cell).decode()).encode() if cell else b"null"


class OutOfRange(Exception):
    """The cell is a JSON number that is too large for a float."""

    def __init__(self, cell: bytes) -> None:
        super().__init__(cell)
        self.cell = cell


def without(comments: re.Pattern[bytes], block: RawRows) -> RawRows:
    """The rows that are no comments."""
    if isinstance(block, bytes):
        return comments.sub(b"", block)
    return [row for row in block if not comments.match(row + b"\n")]


@dataclass(frozen=True, slots=True)
class CsvKept:
    """A function from good rows to the cells that stay with them (`rows.keep`, `rows.time`). A cell
    that cannot be kept becomes null; its row stays good. `kept`: the names of the kept columns as
    JSON, each with the place of its cells. `time`: the place of the time's cells. `original` gives
    a cell as it stands in the file.
    """

    kept: Sequence[tuple[bytes, int]]
    time: int | None
    max_columns: int
    json_cell: Callable[[bytes], bytes]
    original: Callable[[bytes], bytes]

    def __call__(self, rows: Sequence[bytes]) -> Kept:
        found = [split_cells(row, self.max_columns) for row in rows]
        at = self.time
        times = None if at is None else [moment_ms(self._text(cells[at])) for cells in found]
        return Kept.of([self._object(cells) for cells in found] if self.kept else None, times)

    def _object(self, cells: list[bytes]) -> bytes:
        return b"{%b}" % b",".join(b"%b:%b" % (key, self._cell(cells[at])) for key, at in self.kept)

    def _cell(self, cell: bytes) -> bytes:
        try:
            return self.json_cell(cell)
        except (OutOfRange, UnicodeDecodeError):
            return b"null"

    def _text(self, cell: bytes) -> str:
        return self.original(cell).decode(errors="replace")
