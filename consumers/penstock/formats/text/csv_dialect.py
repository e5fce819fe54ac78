"""What differs between CSV files: separators, quotes, escapes, decimal signs, comments; and
whether the first row is a header.

Rule: before text of another dialect is read, single bytes are exchanged, so that it has commas,
points and double quotes; what is kept or shown is exchanged back. So one reader reads all dialects.

If `rows.header` is "auto", a first line without any number is a header; if rows become JSON only if
the second line has one, because in a file of texts nothing tells a header from a row. A lone line
of texts is a header, and so is any if columns are named in the configuration.

With `rows.escape = "backslash"` a backslash takes away the meaning of the next sign: inside quotes
before a quote, a backslash or a newline (Spark, MariaDB); without quotes before any sign, where
`\\n` is a newline, `\\t` a tab and `\\N` a missing value (Postgres' `COPY`, MariaDB, Hive).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, Literal, NamedTuple

from penstock.errors import Poison
from penstock.formats.runs import BadRow, RowOptions
from penstock.formats.text.csv_row_ends import DOUBLED, ESCAPED, EscapedLineEnds, RowEnds
from penstock.formats.text.lines import LineEnds, RawRows, RowSplitter, is_number, split_first

Delimiter = Literal["auto", "comma", "semicolon", "tab", "pipe"]
Decimal = Literal[".", ","]
Quote = Literal["auto", '"', "'", "none"]
Escape = Literal["auto", "none", "backslash"]
Header = Literal["auto", "yes", "no"]
Cells = Callable[[bytes, int], list[bytes]]


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """`comment`: lines that begin with this text are not rows."""

    header: Header = "auto"
    delimiter: Delimiter = "auto"
    decimal: Decimal = "."
    comment: str | None = None
    quote: Quote = "auto"
    escape: Escape = "auto"


# The signs are integers and not bytes, because at each `b'"' in text` Python would internally raise
# an exception and drop it.
_QUOTE, _BACKSLASH, _COMMA, _SEMICOLON, _TAB, _PIPE = b'"\\,;\t|'
# This byte takes the place of a comma or point that neither separates cells nor belongs to a
# number. Text files do not have this byte. For our readers it is neither a blank nor a part of a
# number.
_ASIDE: Final = b"\x1f"
TEXTS_ONLY: Final = (
    "the first line of a CSV is taken for a row, since the second has no number either; "
    'if it is a header, set rows.header = "yes"'
)

TWO_WAYS: Final = (
    "the quotes of this TSV may be around cells with line breaks, or part of texts without; set "
    'rows.quote to "none" or to the quote'
)

COUNTED: Final = (
    "the first line of a CSV counts 0, 1, 2 and so on, or years, and is taken for a row; if these "
    'are names, as of a pandas frame, set rows.header = "yes"'
)
COMMENT: Final = (
    "the first line of the CSV is a comment, with # and other cells than the rows; set "
    'rows.comment = "#"'
)
# A text may begin with `#`, but hardly two with these.
_REMARKS: Final = (b"# ", b"##")
_NO_CELL: Final = re.compile(rb"# |##|.*[;\t|]")
_YEARS: Final = range(1900, 2101)
_YEAR_DIGITS: Final = 4


class TooManyCells(BadRow):
    """Raised if a row has more cells than `limits.columns`. The row is not divided, because its
    cells would take fifty times as much memory as the row.
    """


_MISSING: Final = rb"\N"
# One cell with the comma before it; the literal comma makes the search fast. A quote that is not
# closed takes the rest of the text.
_CELLS: Final = rb'(?s),(?:"(%b)"([^,]*+)|(".*+|[^,]*+))'
_QUOTED_CELLS: Final = re.compile(_CELLS % DOUBLED)
_QUOTED_AND_ESCAPED_CELLS: Final = re.compile(_CELLS % ESCAPED)
_ESCAPED_CELLS: Final = re.compile(rb"(?s),((?:[^\\,]|\\.|\\\Z)*+)")
_ESCAPE: Final = re.compile(rb"(?s)\\(.)")
_ESCAPE_OR_DOUBLED: Final = re.compile(rb'\\(["\\\r\n0])|""')
# Outside quotes Spark escapes nothing, but Python's writer does.
_TWO_MEANINGS: Final = re.compile(rb'\\[\\"]')
# As MariaDB and Postgres write them. Any other escaped sign means itself.
ESCAPES: Final[Mapping[bytes, bytes]] = {
    b"0": b"\0", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"
}  # fmt: skip


def _check_count(row: bytes, max_cells: int) -> None:
    if row.count(b",") >= max_cells:
        raise TooManyCells(f"row has more than {max_cells} cells (limits.columns)")


def plain_cells(row: bytes, max_cells: int) -> list[bytes]:
    """The cells of one complete row in which a quote is an ordinary sign."""
    if len(row) >= max_cells:
        _check_count(row, max_cells)
    return row.split(b",")


def quoted_cells(row: bytes, max_cells: int) -> list[bytes]:
    """The cells of one complete row, unquoted."""
    if len(row) >= max_cells:
        _check_count(row, max_cells)
    if _QUOTE not in row:
        return row.split(b",")
    cells: list[bytes] = []
    for quoted, tail, plain in _QUOTED_CELLS.findall(b"," + row):
        if tail or plain[:1] == b'"':
            raise _broken(len(cells), tail)
        cells.append(plain or quoted.replace(b'""', b'"'))
    return cells


def quoted_and_escaped_cells(row: bytes, max_cells: int) -> list[bytes]:
    """The same, where a backslash escapes quotes. A cell without quotes is as Spark writes it."""
    if len(row) >= max_cells:
        _check_count(row, max_cells)
    if _BACKSLASH not in row:
        return quoted_cells(row, max_cells)
    cells: list[bytes] = []
    for quoted, tail, plain in _QUOTED_AND_ESCAPED_CELLS.findall(b"," + row):
        if tail or plain.startswith(b'"'):
            raise _broken(len(cells), tail)
        if _TWO_MEANINGS.search(plain):
            raise BadRow(
                f"cell {len(cells)} has a backslash before a backslash or a quote, but no quotes "
                "around it: some writers mean both signs, some the second; quote all cells"
            )
        text = _ESCAPE_OR_DOUBLED.sub(_unescaped, quoted)
        cells.append(b"" if plain == _MISSING else plain or text)
    return cells


def _unescaped(match: re.Match[bytes]) -> bytes:
    sign: bytes | None = match[1]
    return b'"' if sign is None else b"\0" if sign == b"0" else sign


def _broken(number: int, tail: bytes) -> BadRow:
    why = "has text behind its closing quote" if tail else "opens a quote that is never closed"
    return BadRow(f"cell {number} {why} (see rows.quote and rows.escape)")


def escaped_cells(escapes: Mapping[bytes, bytes]) -> Cells:
    """Returns a function that divides a row without quotes in which a backslash escapes any sign.
    `escapes`: for each letter, what it means behind a backslash.
    """

    def unescaped(match: re.Match[bytes]) -> bytes:
        return escapes.get(match[1], match[1])

    def cells(row: bytes, max_cells: int) -> list[bytes]:
        if len(row) >= max_cells:
            _check_count(row, max_cells)
        if _BACKSLASH not in row:
            return row.split(b",")
        return [
            b"" if cell == _MISSING else _ESCAPE.sub(unescaped, cell)
            for cell in _ESCAPED_CELLS.findall(b"," + row)
        ]

    return cells


class Quoting(NamedTuple):
    """`quote`: the sign around cells; empty: no cell is quoted. `escapes`: True if a backslash
    takes away the meaning of the next sign.
    """

    quote: bytes = b'"'
    escapes: bool = False


RFC: Final = Quoting()


class Dialect:
    """Exchanges the bytes of a dialect for commas, points and double quotes. `read` does so with a
    chunk; `back` undoes the exchange in the text of a cell.
    """

    def __init__(
        self,
        delimiter: bytes = b",",
        decimal: bytes = b".",
        comment: bytes = b"",
        quoting: Quoting = RFC,
        *,
        has_proof: bool = True,
    ) -> None:
        """`has_proof`: False if quotes may as well be parts of texts: a row that would be two rows
        of the same width without them is bad then.
        """
        quote, escapes = quoting
        self._has_proof = has_proof
        self._escapes = escapes
        self._has_quotes = bool(quote)
        before, after = (b"'\"", b"\"'") if quote == b"'" else (b"", b"")
        # If commas separate cells and are decimal signs, too, numbers are quoted, and the signs in
        # a cell are exchanged when the row is divided.
        swapped: bytes | None = None
        self._table = bytes.maketrans(before, after) if before else None
        if delimiter != b"," or decimal != b".":
            is_both = delimiter == decimal
            ours = decimal if is_both else delimiter + decimal
            usual = b"." if is_both else b",."
            # The signs are exchanged in a circle, so that the exchange can be undone. In a CSV of
            # `;` and points, `;` becomes `,`, a comma becomes `_ASIDE`, and `_ASIDE` becomes `;`.
            left_out = bytes(sign for sign in b",." if sign not in ours)
            freed = bytes(sign for sign in ours if sign not in usual)
            signs, theirs = ours + left_out + _ASIDE, usual + _ASIDE + freed
            if is_both:
                swapped = bytes.maketrans(signs, theirs)
            else:
                self._table = bytes.maketrans(signs + before, theirs + after)
            before, after = before + signs, after + theirs
        self._back = bytes.maketrans(after, before) if before else None
        # The pattern of a comment line with its newline, after the exchange.
        self.comments: re.Pattern[bytes] | None = None
        if comment:
            comment = self.read(comment)
            self.comments = re.compile(rb"(?m)^%b[^\n]*+\n" % re.escape(comment))
        cells: Cells = plain_cells
        self._sign: int | None = None  # a text without this byte has a row in each line
        self._ends: type[LineEnds] | partial[RowEnds] = LineEnds
        if quote:
            cells = quoted_and_escaped_cells if escapes else quoted_cells
            self._sign = _QUOTE
            self._ends = partial(RowEnds, ESCAPED if escapes else DOUBLED, comment)
        elif escapes:
            cells = escaped_cells({letter: self.read(sign) for letter, sign in ESCAPES.items()})
            self._sign, self._ends = _BACKSLASH, EscapedLineEnds
        if not has_proof:
            cells = _of_one_row(cells)
        # The cells of one complete row. Raises `BadRow` if the row breaks the grammar.
        self.cells = cells if swapped is None else _swapping(cells, swapped)
        # True if rows without quotes and escapes are numbers with commas between them.
        self.is_plain = swapped is None

    def read(self, data: bytes) -> bytes:
        """The text with commas, points and double quotes."""
        return data if self._table is None else data.translate(self._table)

    def back(self, text: bytes) -> bytes:
        return text if self._back is None else text.translate(self._back)

    def splitter(self, limit_bytes: int) -> RowSplitter:
        return RowSplitter(limit_bytes, sign=self._sign, ends=self._ends)

    def is_for_arrow(self, text: bytes) -> bool:
        """True if pyarrow divides rows that keep the grammar as `cells` does, and refuses none."""
        if not self.is_plain or 0 in text or (self._escapes and _BACKSLASH in text):
            return False
        return (self._has_quotes and self._has_proof) or _QUOTE not in text


def _swapping(cells: Cells, table: bytes) -> Cells:
    return lambda row, most: [cell.translate(table) for cell in cells(row, most)]


def _of_one_row(divide: Cells) -> Cells:
    def cells(row: bytes, most: int) -> list[bytes]:
        cells = divide(row, most)
        lines = row.split(b"\n")
        if len(lines) > 1 and {line.count(b",") for line in lines} == {len(cells) - 1}:
            raise BadRow(TWO_WAYS)
        return cells

    return cells


# The dialect of nearly all files. All parsers can share this object, because it has no state.
COMMON: Final = Dialect()
# Of a file, so much decides on its dialect: as much as a turn of the worker reads.
HEAD_BYTES: Final = 32 << 10
SEP_LINE: Final = re.compile(rb'(?i)"?sep=([^\r\n])"?\r?\n')


def is_common(options: CsvOptions, data: bytes, *, is_all: bool) -> bool:
    """True if the options and the head prove that the dialect is the common one. If not, the caller
    must ask a `Finder`, which takes some 10 us.
    """
    if options.decimal != "." or options.comment is not None or options.quote not in ("auto", '"'):
        return False
    if options.delimiter not in ("auto", "comma") or not (is_all or len(data) >= HEAD_BYTES):
        return False
    find = data.find
    if find(b'"', 0, HEAD_BYTES) >= 0 or find(b"'", 0, HEAD_BYTES) >= 0:
        return False
    if find(b"\\", 0, HEAD_BYTES) >= 0:
        return False
    line = data[: find(b"\n") + 1]
    if line[3:4] == b"=" and SEP_LINE.match(line):
        return False
    if options.delimiter == "comma":
        return bool(line)
    return _COMMA in line and not (_SEMICOLON in line or _TAB in line or _PIPE in line)


def is_any_number(cell: bytes) -> bool:
    """True if the cell is a number, with a decimal point or a decimal comma."""
    return is_number(cell.replace(b",", b"."))


def is_decimal_comma(cell: bytes) -> bool:
    """True if the cell is a number in which a comma is the decimal sign."""
    return b"," in cell and is_any_number(cell)


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
    if len(cells) == 1 and cells[0].startswith(b"#"):
        if not rest:
            return None
        second, _ = split_first(rest)
        is_remark = cells[0].startswith(_REMARKS) and _NO_CELL.match(second)
        if is_remark or b"," in second:
            raise Poison("bad_format", COMMENT)
    if any(map(is_number, cells)):
        if _counts(cells):
            options.notices.once(COUNTED)
        return False
    # If a line has a number with a decimal comma, it is not a header. It will be a bad row, whose
    # error names rows.decimal.
    if any(is_decimal_comma(dialect.back(cell)) for cell in cells):
        return False
    if options.as_numbers:
        return True
    if not rest:
        return None
    second, _ = split_first(rest)
    try:
        parted = dialect.cells(second, options.max_columns)
    except TooManyCells:
        raise
    except BadRow:  # it will be answered as such
        parted = second.split(b",")
    has_number = any(is_number(cell) or is_decimal_comma(dialect.back(cell)) for cell in parted)
    if not has_number:
        options.notices.once(TEXTS_ONLY)
    return has_number


def _counts(cells: Sequence[bytes]) -> bool:
    """True for `0,1,2`, which pandas writes for columns without names, and for years one after the
    other, also behind names such as `country`.
    """
    begin = next(filter(is_number, cells))
    # Of a long number Python makes none (`sys.set_int_max_str_digits`).
    first = int(begin) if begin.isdigit() and len(begin) <= _YEAR_DIGITS else -1
    if first != 0 and first not in _YEARS:
        return False
    numbers = list(filter(is_number, cells))
    if len(numbers) < 2 or (first == 0 and len(numbers) < len(cells)):
        return False
    return numbers == [b"%d" % number for number in range(first, first + len(numbers))]


def index_of(column: str | int, places: Mapping[str, int], columns: int) -> int:
    """The place of a column. `column`: its name or number in the configuration. `places`: for each
    name in the header, its place. `columns`: how many cells a row has. Raises `Poison` if there is
    no such column.
    """
    if isinstance(column, str):
        if column in places:
            return places[column]
        names = ", ".join(islice(places, 20))
        message = f"its header has {names}" if names else "it has no header"
        raise Poison("bad_format", f'no column "{column}" in the CSV: {message}')
    if not 0 <= column < columns:
        raise Poison("bad_format", f"no column {column} in the CSV: it has {columns}")
    return column
