"""The push parser of CSV: has dialect and header found, then `CsvRows` reads the rows.

Rule: nothing is read before the first row is complete, because it tells the dialect; the second may
be needed to tell a header. The header, else the first row, fixes the number of cells.

Many rows are read at a time if this gives exactly the same as one by one; else one by one, so that
an error names the wrong cell.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring as json_string
from math import isfinite, isinf, isnan
from typing import Final

import numpy as np

from penstock.core.rows.payload import JsonRows, Kept, Matrix
from penstock.errors import Poison
from penstock.formats.first_bytes import named_by_magic
from penstock.formats.kept_columns import moments, with_kept
from penstock.formats.parser_chain import Parser
from penstock.formats.runs import (
    MOST_EXACT_ROWS,
    BadRow,
    RowOptions,
    Run,
    bad_row,
    read_rows,
    shown,
    too_long,
)
from penstock.formats.text.csv_dialect import (
    COMMON,
    CsvOptions,
    Dialect,
    TooManyCells,
    index_of,
    is_common,
    is_decimal_comma,
    is_header,
)
from penstock.formats.text.csv_finder import Finder
from penstock.formats.text.lines import (
    EXACT_ROWS,
    UNDERSCORE,
    RawRows,
    count_rows,
    is_number,
    join_blocks,
    join_floats,
    parse_columns,
    parse_halving,
    parse_table,
    portions,
    rows_of,
    split_first,
)

# The ways to write a missing value: an empty cell, and the texts that spreadsheets, R and databases
# write.
MISSING = ("", "NA", "N/A", "null", "NULL")
MISSING_CELLS = frozenset(text.encode() for text in MISSING)
_JSON_NUMBER = re.compile(
    rb"[ \t\r]*+-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?[ \t\r]*+"
)
# The signs are integers and not bytes, because at each `b"\r" in text` Python would internally
# raise an exception and drop it.
_RETURN, _NUL = b"\r\0"
# At most this many cells are read one by one in a turn; a cell takes up to 1 us.
_MOST_EXACT_CELLS = 2_048


class CsvRows:
    """`header`: the cells of the header; empty if the CSV has none. `columns`: how many cells a row
    has. Raises `Poison` for a chosen or kept column that the CSV does not have.
    """

    def __init__(
        self, options: RowOptions, dialect: Dialect, header: list[bytes], columns: int
    ) -> None:
        self._options = options
        self.dialect = dialect
        self._header = header
        self._columns = columns
        self._most_rows = max(1, min(MOST_EXACT_ROWS, _MOST_EXACT_CELLS // columns))
        self._chosen: list[int] | None = None  # None: all cells
        self._may_have_nul = True
        self._keep: CsvKept | None = None  # None: no cells stay with their row
        missing = options.missing
        self._missing_json = (
            None if missing is None else b"%r" % missing if isfinite(missing) else b"null"
        )
        if options.columns is not None or options.stays:
            self._choose([self._name(cell) for cell in header])

    def read(self, block: RawRows) -> Iterable[Run]:
        self._may_have_nul = isinstance(block, list) or _NUL in block
        return self._runs(block) if self._keep is None else self._read_kept(block, self._keep)

    def _choose(self, names: list[str]) -> None:
        """Look up the columns that the model gets, and those that stay with the row."""
        options, columns = self._options, self._columns
        places = {name: at for at, name in enumerate(names)}
        if options.columns is not None:
            self._chosen = [index_of(column, places, columns) for column in options.columns]
        if not options.stays:
            return
        kept = [
            (json_string(name).encode(), index_of(name, places, columns))
            for name in dict.fromkeys(options.keep)
        ]
        time = None if options.time is None else index_of(options.time, places, columns)
        self._keep = CsvKept(kept, time, self, options)
        if self._chosen is None:
            self._chosen = [at for at, name in enumerate(names) if name not in options.stays]
            if not self._chosen:
                raise Poison("bad_format", "rows.keep and rows.time leave no column of the CSV")

    def _read_kept(self, block: RawRows, keep: "CsvKept") -> Iterator[Run]:
        """Read the block in small portions of rows, because kept cells are looked at row by row."""
        for some in portions(block, self._most_rows):
            yield from with_kept(self._runs(some), rows_of(some), keep)

    def _runs(self, block: RawRows) -> Iterable[Run]:
        if self._options.as_numbers:
            return parse_halving(block, self._bulk_matrix, self._exact_matrix)
        return self._read_json(block)

    def _bulk_matrix(self, block: RawRows) -> Run | None:
        missing = self._options.missing
        values = None
        if isinstance(block, bytes) and self._chosen is None and self.dialect.is_plain:
            values = parse_table(block, self._columns)
        if values is None and count_rows(block) > EXACT_ROWS and self._is_for_columns(block):
            text = block if isinstance(block, bytes) else b"\n".join(block) + b"\n"
            chosen = range(self._columns) if self._chosen is None else self._chosen
            nulls = () if missing is None else MISSING
            if self.dialect.is_for_arrow(text):
                values = parse_columns(text, self._columns, chosen, nulls)
            if values is not None and missing is not None:
                values[np.isnan(values)] = missing
        return None if values is None else Run(len(values), Matrix(values))

    def _is_for_columns(self, block: RawRows) -> bool:
        """True if `parse_columns` may be able to read a block that `parse_table` could not read. It
        is False if the block is plain lines, all cells are wanted, and `rows.missing` allows no
        empty cells: in this case, `parse_table` has refused the block because of a bad row.
        """
        plain = isinstance(block, bytes) and self._chosen is None
        return not plain or self._options.missing is not None

    def _read_json(self, block: RawRows) -> Iterator[Run]:
        # Unlike a block of numbers, this block is not halved: if one row has texts, most likely all
        # rows have texts.
        run = self._bulk_json(block)
        if run is not None:
            yield run
        else:
            yield from read_rows(rows_of(block), self._element, JsonRows.of, self._most_rows)

    def _bulk_json(self, block: RawRows) -> Run | None:
        if isinstance(block, list) or self._chosen is not None or not self.dialect.is_plain:
            return None
        if parse_table(block, self._columns) is None:
            return None
        # All cells are JSON numbers: `1,2\n3,4\n` becomes `[1,2],[3,4]`, and no number is read.
        newlines = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
        ends = newlines + 2 * np.arange(1, len(newlines) + 1)
        body = b"[" + block[:-1].replace(b"\n", b"],[") + b"]"
        return Run(len(ends), JsonRows(body, ends))

    def _exact_matrix(self, rows: list[bytes]) -> Iterator[Run]:
        return read_rows(rows, self._numbers, join_floats, self._most_rows)

    def _numbers(self, row: bytes) -> list[float]:
        cells = self._cells(row)
        if UNDERSCORE not in row:
            try:
                values = list(map(float, cells))
                if self._options.missing is None or not any(map(isnan, values)):
                    return values
            except ValueError:
                pass  # the call of `_number` below says which cell is wrong
        return [self._number(index, cell) for index, cell in self._numbered(cells)]

    def _number(self, index: int, cell: bytes) -> float:
        missing = self._options.missing
        if is_number(cell):
            value = float(cell)
            return missing if missing is not None and isnan(value) else value
        mend = ""
        if cell.strip() in MISSING_CELLS:
            if missing is not None:
                return missing
            mend = " (see rows.missing)"
        elif self._options.of(CsvOptions).decimal == "." and is_decimal_comma(self.original(cell)):
            mend = " (see rows.decimal)"
        text = shown(self.original(cell))
        raise BadRow(f'{self._where(index)} "{text}" is not a number{mend}')

    def _element(self, row: bytes) -> bytes:
        cells = self._cells(row)
        try:
            back, missing = self.dialect.back, self._missing_json
            return b"[%b]" % b",".join([json_cell(cell, back, missing) for cell in cells])
        except UnicodeDecodeError:
            raise BadRow("row is not UTF-8 text; write the file as UTF-8") from None
        except OutOfRange as bad:
            index = next(index for index, cell in self._numbered(cells) if cell == bad.cell)
            text = shown(self.original(bad.cell))
            raise BadRow(f'{self._where(index)} "{text}" is beyond the range of a number') from None

    def json_cell(self, cell: bytes) -> bytes:
        return json_cell(cell, self.dialect.back, self._missing_json)

    def _cells(self, row: bytes) -> list[bytes]:
        """The chosen cells of a row. Raises `BadRow` if the number of cells is wrong."""
        cells = self.all_cells(row)
        if self._may_have_nul and _NUL in row:
            raise BadRow("row has a NUL byte, so it is no text")
        if len(cells) != self._columns:
            raise BadRow(f"row has {len(cells)} cells, expected {self._columns}")
        return cells if self._chosen is None else [cells[index] for index in self._chosen]

    def all_cells(self, row: bytes) -> list[bytes]:
        return self.dialect.cells(row, self._options.max_columns)

    def original(self, text: bytes) -> bytes:
        """The text as it stands in the file."""
        return self.dialect.back(text)

    def _numbered(self, cells: list[bytes]) -> Iterator[tuple[int, bytes]]:
        """The chosen cells of a row, each with its number in the whole row."""
        return zip(self._chosen or range(len(cells)), cells, strict=True)

    def _where(self, index: int) -> str:
        """The name of a cell in an error text: its number, and the name of its column if there is a
        header.
        """
        name = f' of column "{self._name(self._header[index])}"' if self._header else ""
        return f"cell {index}{name}"

    def _name(self, cell: bytes) -> str:
        return self.original(cell).strip().decode(errors="replace")


def json_cell(cell: bytes, text: Callable[[bytes], bytes], missing: bytes | None) -> bytes:
    """The cell as JSON. A JSON number stays as it is, an empty cell becomes null, and every other
    cell becomes a string (so `007` keeps its zeros). `missing`: what stands for a missing value, if
    anything does.
    """
    if missing is not None and cell.strip() in MISSING_CELLS:
        return missing
    if _JSON_NUMBER.fullmatch(cell):
        if isinf(float(cell)):  # with an infinite number, the model would refuse the whole batch
            raise OutOfRange(cell)
        return cell
    return json_string(text(cell).decode()).encode() if cell else b"null"


class OutOfRange(Exception):
    """Raised if a cell is a JSON number that is too large for a float."""

    def __init__(self, cell: bytes) -> None:
        super().__init__(cell)
        self.cell = cell


@dataclass(frozen=True, slots=True)
class CsvKept:
    """A function that takes good rows and returns the cells that stay with them (`rows.keep`,
    `rows.time`). If a cell cannot be kept, it becomes null, and its row stays good. `kept`: for
    each kept column, its name as JSON and the place of its cells. `time`: the place of the cells
    with the time.
    """

    kept: Sequence[tuple[bytes, int]]
    time: int | None
    of: CsvRows
    options: RowOptions

    def __call__(self, rows: Sequence[bytes]) -> Kept:
        parted = list(map(self.of.all_cells, rows))
        at = self.time
        texts = None if at is None else [self._text(cells[at]) for cells in parted]
        times = None if texts is None else moments(texts, self.options)
        return Kept.of([self._object(cells) for cells in parted] if self.kept else None, times)

    def _object(self, cells: list[bytes]) -> bytes:
        text = b"{%b}" % b",".join(b"%b:%b" % (key, self._cell(cells[at])) for key, at in self.kept)
        # A record is one line, and for some readers a carriage return ends a line.
        return text.replace(b"\r", b" ") if _RETURN in text else text

    def _cell(self, cell: bytes) -> bytes:
        try:
            return self.of.json_cell(cell)
        except (OutOfRange, UnicodeDecodeError):
            return b"null"

    def _text(self, cell: bytes) -> str:
        return self.of.original(cell).decode(errors="replace")


LONE_LINE: Final = (
    "the only line of a CSV is taken for a header, since it has no number; if it is a row, set "
    'rows.header = "no"'
)
OLD_MAC: Final = (
    "the lines of the CSV end with carriage returns alone; write it with newlines (a spreadsheet's "
    '"CSV", not its "CSV (Macintosh)")'
)
# The sign is an integer and not bytes, because at each `b"\r" in row` Python would internally raise
# an exception and drop it.
_QUOTED: Final = re.compile(rb'"[^"]*+"')
# Bytes that binary files have and text files do not have: NUL to BS, vertical feeds, SO to US, DEL.
_BINARY: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class CsvParser(Parser):
    def __init__(self, options: RowOptions) -> None:
        self._options = options
        self._own = options.of(CsvOptions)
        self._dialect = COMMON
        self._splitter = COMMON.splitter(options.row_bytes)
        self._finder: Finder | None = None
        self._is_settled = False  # the dialect will not change any more
        self._waiting: RawRows = b""  # a first row that may be a header or not
        self._rows: CsvRows | None = None  # made when the columns are known

    def feed(self, data: bytes) -> Iterator[Run]:
        data = self._translated(data, is_all=False)
        return self._read(self._splitter.feed(data))

    def whole(self, data: bytes) -> Iterator[Run]:
        data = self._translated(data, is_all=True)
        return self._read(self._splitter.whole(data))

    def close(self) -> Iterator[Run]:
        if not self._is_settled:
            data = self._translated(b"", is_all=True)
            yield from self._read(self._splitter.feed(data))
        yield from self._read(self._splitter.close())
        if self._waiting and self._rows is None:
            first, _ = split_first(self._waiting)
            check_text(self._dialect, self._dialect.cells(first, self._options.max_columns))
            self._options.notices.once(LONE_LINE)

    def _translated(self, data: bytes, *, is_all: bool) -> bytes:
        """The text with commas, points and double quotes; empty as long as the file's dialect is
        unknown.
        """
        if not self._is_settled:
            if self._finder is None and is_common(self._own, data, is_all=is_all):
                self._is_settled = True
                return data
            finder = self._finder = self._finder or Finder(self._own)
            data = finder.take(data, is_all=is_all)
            self._is_settled = finder.is_done
            if finder.dialect not in (None, self._dialect):
                self._set(finder.dialect)
        return self._dialect.read(data)

    def _set(self, dialect: Dialect) -> None:
        """Read on in this dialect. So far, only complete lines were read, which are the same in all
        dialects with this separator.
        """
        self._dialect = dialect
        self._splitter = dialect.splitter(self._options.row_bytes)
        if self._rows is not None:
            self._rows.dialect = dialect

    def _read(self, blocks: Iterable[RawRows | None]) -> Iterator[Run]:
        for block in blocks:
            if block is None:
                yield self._too_long()
                continue
            rows = block
            if self._dialect.comments is not None:
                rows = without(self._dialect.comments, block)
            if rows and self._rows is None:
                rows = self._begin(join_blocks(self._waiting, rows))
            if rows and self._rows is not None:
                yield from self._rows.read(rows)

    def _too_long(self) -> Run:
        message = too_long(self._options.row_bytes)
        if self._rows is None:
            raise Poison("too_large", f"the first {message}: is this CSV?")
        return bad_row(message)

    def _begin(self, block: RawRows) -> RawRows:
        """Find the header and the columns by the first rows. Returns the rows that are data. If the
        second row is needed to decide but has not come yet, there are none.
        """
        first, rest = split_first(block)
        if _RETURN in first and is_old_mac(first):
            raise Poison("bad_format", OLD_MAC)
        try:
            cells = self._dialect.cells(first, self._options.max_columns)
            header = is_header(cells, rest, self._options, self._dialect)
        except TooManyCells as bad:
            raise Poison("too_large", f"the first {bad}") from None
        except BadRow as bad:
            raise Poison("bad_format", f"the CSV has no first row: {bad}") from None
        if header is None:
            self._waiting = block
            return b""
        if header:
            check_text(self._dialect, cells)
        self._rows = CsvRows(self._options, self._dialect, cells if header else [], len(cells))
        return rest if header else block


def check_text(dialect: Dialect, names: Sequence[bytes]) -> None:
    """Raises `Poison` if the header is binary data, or has two equal names. Without this check,
    binary data could pass for a header without rows.
    """
    header = dialect.back(b" ".join(names))
    if _BINARY.search(header):
        unknown = f'binary data begins with "{shown(header)}": is this CSV?'
        raise Poison("bad_format", named_by_magic(header) or unknown)
    stripped = list(map(bytes.strip, names))
    if len(set(stripped)) < len(stripped):
        for name, times in Counter(stripped).items():
            if times > 1 and name:  # columns without names may be many
                text = shown(dialect.back(name))
                raise Poison("bad_format", f'two columns of the CSV have the name "{text}"')


def is_old_mac(row: bytes) -> bool:
    """True if the row has line ends of old Macs (lone carriage returns) outside quotes."""
    return b"\r" in _QUOTED.sub(b"", row).rstrip(b"\r")


def without(comments: re.Pattern[bytes], block: RawRows) -> RawRows:
    """The rows of the block without the comments."""
    if isinstance(block, bytes):
        return comments.sub(b"", block)
    return [row for row in block if not comments.match(row + b"\n")]
