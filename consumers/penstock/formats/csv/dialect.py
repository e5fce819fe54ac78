"""Finds out how a CSV separates its cells and writes its numbers, and whether its first row is a
header.

Rule: the first row tells all this. Before text of another dialect is read, single bytes are
exchanged, so that the text has commas and points. If a piece of text is kept or shown, its bytes
are exchanged back. So one reader reads all dialects, and the usual text passes unchanged. The
dialect is found in the text outside quotes. `split_cells` divides a row after the exchange.

If `rows.header` is "auto", a first line without any number is a header. If the rows become JSON,
the second line must have a number, too, because in a file of texts nothing tells a header from a
row. If a first line of texts is the only line, it is a header. If columns are named in the
configuration, there is a header. Cells are numbered from 0. Owner: the CSV parser.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Final, Literal

from penstock.errors import Poison
from penstock.formats.base.runs import BadRow, RowOptions
from penstock.formats.text.lines import LineEnds, RawRows, RowEnds, split_first
from penstock.formats.text.numbers_in_bulk import is_number

Delimiter = Literal["auto", "comma", "semicolon", "tab", "pipe"]
Decimal = Literal[".", ","]

Header = Literal["auto", "yes", "no"]


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """`comment`: lines that begin with this text are not rows."""

    header: Header = "auto"
    delimiter: Delimiter = "auto"
    decimal: Decimal = "."
    comment: str | None = None


DELIMITERS: Final[dict[str, bytes]] = {
    "comma": b",",
    "semicolon": b";",
    "tab": b"\t",
    "pipe": b"|",
}
_OTHERS: Final = (b";", b"\t", b"|")
# The signs are integers and not bytes, because at each `b"," in line` Python would internally raise
# an exception and drop it.
_COMMA, _SEMICOLON, _TAB, _PIPE, _QUOTE = b',;\t|"'
# At most this many bytes of the first row are looked at.
LOOK_BYTES: Final = 64 << 10
# A line that has only characters that `bytes.strip` removes.
_BLANK_LINE: Final = rb"[ \t\r\x0b\x0c]*+\n"
# This byte takes the place of a comma or point that neither separates cells nor belongs to a
# number. Text files do not have this byte. For our readers it is neither a blank nor a part of a
# number.
_ASIDE: Final = b"\x1f"
# One cell with the comma before it; the literal comma makes the search fast. A quote that is not
# closed takes the rest of the text.
_QUOTED_CELLS: Final = re.compile(rb'(?s),(?:"([^"]*+(?:""[^"]*+)*+)"([^,]*+)|(".*+|[^,]*+))')
TEXTS_ONLY: Final = (
    "the first line of a CSV is taken for a row, since the second has no number either; "
    'if it is a header, set rows.header = "yes"'
)
_QUOTED: Final = re.compile(rb'(\A|[,;\t|])"[^"]*+(?:""[^"]*+)*+"')


class Dialect:
    """Exchanges the bytes of a dialect for commas and points. `read` does so with a chunk; `back`
    undoes the exchange in a piece of text.
    """

    def __init__(self, delimiter: bytes, decimal: bytes, comment: bytes) -> None:
        self._table: bytes | None = None
        self._back: bytes | None = None
        # The pattern of a comment line with its newline, after the exchange.
        self.comments: re.Pattern[bytes] | None = None
        if delimiter != b"," or decimal != b".":
            ours = delimiter + decimal
            # The signs are exchanged in a circle, so that the exchange can be undone. In a CSV of
            # `;` and points, `;` becomes `,`, a comma becomes `_ASIDE`, and `_ASIDE` becomes `;`.
            left_out = bytes(sign for sign in b",." if sign not in ours)
            freed = bytes(sign for sign in ours if sign not in b",.")
            before, after = ours + left_out + _ASIDE, b",." + _ASIDE + freed
            self._table = bytes.maketrans(before, after)
            self._back = bytes.maketrans(after, before)
        if comment:
            self.comments = re.compile(rb"(?m)^%b[^\n]*+\n" % re.escape(self.read(comment)))

    def read(self, data: bytes) -> bytes:
        """The text with commas and points."""
        return data if self._table is None else data.translate(self._table)

    def back(self, text: bytes) -> bytes:
        return text if self._back is None else text.translate(self._back)


# The dialect of nearly all files. All parsers can share this object, because it has no state.
COMMON: Final = Dialect(b",", b".", b"")


@cache
def passed_over(comment: bytes) -> re.Pattern[bytes]:
    """The pattern of the blank lines and comments before the first row."""
    lines = rb"|%b[^\n]*+\n" % re.escape(comment) if comment else b""
    return re.compile(rb"(?:%b%b)*+" % (_BLANK_LINE, lines))


class Finder:
    """Finds the dialect in the first bytes of a file."""

    def __init__(self, options: CsvOptions) -> None:
        self._held = bytearray()
        self._delimiter = options.delimiter
        self._decimal = options.decimal.encode()
        self._comment = options.comment.encode() if options.comment else b""
        self._rows = RowEnds(b"".join(_OTHERS) + (b"," if options.decimal == "." else b""))
        self._comments = LineEnds()
        # The blank lines and comments at the beginning end here, as far as they are known.
        self._start = 0

    def find(self, data: bytes, *, is_all: bool) -> Dialect | None:
        """Take the next bytes of the file, and return its dialect. None: more bytes are needed.
        `is_all`: True if no more bytes will come.
        """
        self._held += data
        if self._delimiter != "auto":
            return Dialect(DELIMITERS[self._delimiter], self._decimal, self._comment)
        row = self._first_row(is_all=is_all)
        return None if row is None else Dialect(self._separator(row), self._decimal, self._comment)

    @property
    def rest(self) -> bytes:
        """All bytes that have come so far, without the blank lines and comments at the
        beginning.
        """
        return bytes(memoryview(self._held)[self._start :])

    def _first_row(self, *, is_all: bool) -> bytes | None:
        """The first row, or its beginning. At most `LOOK_BYTES` are searched for the row, so that
        chunks of any size lead to the same dialect. None: more bytes are needed.
        """
        held = self._held
        text = held if len(held) <= LOOK_BYTES else held[:LOOK_BYTES]
        while True:
            start = self._start
            is_comment = bool(self._comment) and text.startswith(self._comment, start)
            end = (self._comments if is_comment else self._rows).find(text, start)
            if end < 0:
                return bytes(text[start:]) if is_all or len(text) == LOOK_BYTES else None
            if not is_comment and text[start:end].strip():
                return bytes(text[start:end])
            self._rows.forget()
            # A single step passes over all the comments that follow. One by one, 64 KiB of them
            # would take 50 ms.
            found = passed_over(self._comment).match(text, end + 1)
            assert found is not None
            self._start = found.end()

    def _separator(self, row: bytes) -> bytes:
        """The sign that separates the cells of the first row. If the row has commas that are not
        decimal signs, it is the comma; if not, it is the most frequent of the other signs. The
        commas are decimal signs if the configuration says so, or if the most frequent other sign
        divides the row into numbers, as in `1,5;2,5`.
        """
        bare = _QUOTED.sub(rb"\1", row) if b'"' in row else row
        others = [sign for sign in _OTHERS if sign in bare]
        if not others:
            return b"," if self._decimal == b"." else b";"
        best = max(others, key=bare.count)
        if self._decimal == b"." and b"," in bare and not all(map(_is_number, bare.split(best))):
            return b","
        return best


def _is_number(cell: bytes) -> bool:
    """True if the cell is a number, with a decimal point or a decimal comma."""
    return is_number(cell.replace(b",", b"."))


def is_decimal_comma(cell: bytes) -> bool:
    """True if the cell is a number in which a comma is the decimal sign."""
    return b"," in cell and _is_number(cell)


def is_common(options: CsvOptions, head: bytes) -> bool:
    """True if the options or the first line prove that the dialect is the common one. If not, the
    caller must ask a `Finder`, which takes some 5 us.
    """
    if options.decimal != "." or options.comment is not None:
        return False
    if options.delimiter == "comma":
        return True
    line = head[: head.find(b"\n") + 1]
    return (
        options.delimiter == "auto"
        and _COMMA in line
        and not (_SEMICOLON in line or _TAB in line or _PIPE in line or _QUOTE in line)
    )


def is_header(
    cells: Sequence[bytes], rest: RawRows, options: RowOptions, dialect: Dialect
) -> bool | None:
    """True if the first row is a header. None: the second row is needed to decide."""
    header = options.of(CsvOptions).header
    if header != "auto":
        return header == "yes"
    if options.stays:
        return True
    if options.columns and any(isinstance(column, str) for column in options.columns):
        return True
    if any(map(is_number, cells)):
        return False
    # If a line has a number with a decimal comma, it is not a header. It will be a bad row, whose
    # error names rows.decimal.
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


class TooManyCells(BadRow):
    """Raised if a row has more cells than `limits.columns`. The row is not divided, because its
    cells would take fifty times as much memory as the row.
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


def index_of(column: str | int, places: Mapping[str, int], columns: int) -> int:
    """The place of a column. `column`: its name or number in the configuration. `places`: for each
    name in the header, its place. `columns`: how many cells a row has. Raises `Poison` if there is
    no such column.
    """
    if isinstance(column, str):
        if column in places:
            return places[column]
        names = ", ".join(islice(places, 20))
        found = f"its header has {names}" if names else "it has no header"
        raise Poison("bad_format", f'no column "{column}" in the CSV: {found}')
    if not 0 <= column < columns:
        raise Poison("bad_format", f"no column {column} in the CSV: it has {columns}")
    return column
