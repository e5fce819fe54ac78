"""Cells of a CSV row: taken apart, as JSON or number texts, and kept with their row.

Rule: one row at a time, no state. Owner: the CSV parser.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring as json_string
from math import isinf

from penstock.core.rows.kept import Kept
from penstock.errors import Poison
from penstock.formats.base.kept_columns import moment_ms
from penstock.formats.base.rows import BadRow, shown
from penstock.formats.magic import named_by_magic
from penstock.formats.text.lines import RawRows

# Besides the empty cell: how spreadsheets, R and databases write a missing value.
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
# As numbers: to look for bytes of one byte costs Python an exception each time.
_QUOTE, RETURN = b'"\r'
# Begins with a literal comma, which is found fast, and matches at every comma. An open quote takes
# the rest of the text.
_QUOTED_CELLS = re.compile(rb'(?s),(?:"([^"]*+(?:""[^"]*+)*+)"([^,]*+)|(".*+|[^,]*+))')
_QUOTED = re.compile(rb'"[^"]*+"')
# Bytes that no text file has and every binary one: NUL to BS, vertical feeds, SO to US, DEL.
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_JSON_NUMBER = re.compile(
    rb"[ \t\r]*+-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?[ \t\r]*+"
)


def check_text(header: bytes) -> None:
    """Refuse binary data, which could pass for a header without rows."""
    if _BINARY.search(header):
        unknown = f'binary data begins with "{shown(header)}": is this CSV?'
        raise Poison("bad_format", named_by_magic(header) or unknown)


def is_old_mac(row: bytes) -> bool:
    """Does the row have line ends of an old Mac outside quotes?"""
    return b"\r" in _QUOTED.sub(b"", row).rstrip(b"\r")


class TooManyCells(BadRow):
    """More than `limits.columns`: taking such a row apart costs fifty times its own size."""


def split_cells(row: bytes, max_cells: int) -> list[bytes]:
    """The cells of one complete row, unquoted."""
    if len(row) >= max_cells and row.count(b",") >= max_cells:
        raise TooManyCells(f"row has more than {max_cells} cells (limits.columns)")
    if _QUOTE not in row:
        return row.split(b",")
    cells: list[bytes] = []
    for quoted, tail, plain in _QUOTED_CELLS.findall(b"," + row):
        if plain.startswith(b'"'):  # possible in the last row only
            raise BadRow(f"cell {len(cells)} opens a quote that is never closed")
        cells.append(plain or quoted.replace(b'""', b'"') + tail)
    return cells


def json_cell(cell: bytes, text: Callable[[bytes], bytes]) -> bytes:
    """A JSON number as it stands, empty as null, all else as a string: `007` keeps its zeros."""
    if _JSON_NUMBER.fullmatch(cell):
        if isinf(float(cell)):  # a reader of the batch would refuse all its rows
            raise OutOfRange(cell)
        return cell
    return json_string(text(cell).decode()).encode() if cell else b"null"


class OutOfRange(Exception):
    """A number that JSON can write and no float can hold."""

    def __init__(self, cell: bytes) -> None:
        super().__init__(cell)
        self.cell = cell


def without(comments: re.Pattern[bytes], block: RawRows) -> RawRows:
    if isinstance(block, bytes):
        return comments.sub(b"", block)
    return [row for row in block if not comments.match(row + b"\n")]


@dataclass(frozen=True, slots=True)
class CsvKept:
    """The cells that stay with their row (`rows.keep`, `rows.time`); called with good rows. As in
    `kept_columns`, a cell that cannot be kept is null and makes no row bad. `kept`: the names as
    JSON, each with the place of its cells; `original` gives a cell as it stands in the file.
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
