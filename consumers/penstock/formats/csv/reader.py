"""CSV (RFC 4180) to rows: float32 matrices, or JSON arrays. Other separators: see `dialect`.

Rule: the header, or without one the first row, fixes how many cells a row has; `columns` chooses
among them. `header` decides whether there is a header. Cells count from 0.
"""

from collections.abc import Iterable, Iterator
from json.encoder import encode_basestring as json_string
from math import isfinite, isnan

import numpy as np

from penstock.core.rows.payload import JsonRows, Matrix
from penstock.errors import Poison
from penstock.formats.base.kept_columns import with_kept
from penstock.formats.base.parser_chain import Parser
from penstock.formats.base.rows import (
    EXACT_ROWS,
    MOST_EXACT_ROWS,
    BadRow,
    bad_row,
    join_floats,
    parse_halving,
    read_rows,
    shown,
    too_long,
)
from penstock.formats.base.runs import RowOptions, Run
from penstock.formats.csv.cells import (
    LONE_LINE,
    MISSING,
    MISSING_CELLS,
    OLD_MAC,
    RETURN,
    CsvKept,
    OutOfRange,
    TooManyCells,
    check_text,
    is_old_mac,
    json_cell,
    split_cells,
    without,
)
from penstock.formats.csv.dialect import (
    COMMON,
    CsvOptions,
    Finder,
    index_of,
    is_common,
    is_decimal_comma,
    is_header,
)
from penstock.formats.csv.numbers import UNDERSCORE, is_number, parse_columns, parse_table
from penstock.formats.text.lines import (
    RawRows,
    RowSplitter,
    count_rows,
    join_blocks,
    portions,
    rows_of,
    split_first,
)

# So many cells are read one by one in a turn; one takes up to 1 us.
_MOST_EXACT_CELLS = 2_048


class CsvParser(Parser):
    def __init__(self, options: RowOptions) -> None:
        self._options = options
        self._own = options.of(CsvOptions)
        self._dialect, self._is_settled = COMMON, False  # the first row tells
        self._finder: Finder | None = None
        self._splitter = RowSplitter(options.row_bytes, quotes=True)
        self._waiting: RawRows = (
            b""  # a first line of texts: the second tells whether it is a header
        )
        self._columns = 0  # cells in a row; 0 until the first row came
        self._most_rows = 1  # that are read one by one before others have a turn
        self._header: list[bytes] = []
        self._chosen: list[int] | None = None
        self._keep: CsvKept | None = None  # made with the columns, where any stay
        missing = options.missing
        self._missing_json = (
            None if missing is None else b"%r" % missing if isfinite(missing) else b"null"
        )

    def feed(self, data: bytes) -> Iterator[Run]:
        return self._read(self._splitter.feed(self._translated(data, is_all=False)))

    def whole(self, data: bytes) -> Iterator[Run]:
        return self._read(self._splitter.whole(self._translated(data, is_all=True)))

    def close(self) -> Iterator[Run]:
        if not self._is_settled:
            yield from self._read(self._splitter.feed(self._translated(b"", is_all=True)))
        yield from self._read(self._splitter.close())
        if self._waiting and not self._columns:
            check_text(self._original(split_first(self._waiting)[0]))
            self._options.notices.once(LONE_LINE)

    def _translated(self, data: bytes, *, is_all: bool) -> bytes:
        """The text in the reader's dialect; nothing, while the dialect of the file is unknown."""
        if not self._is_settled:
            if self._finder is None and is_common(self._own, data):
                self._is_settled = True
                return data
            self._finder = self._finder or Finder(self._own)
            found = self._finder.find(data, is_all=is_all)
            if found is None:
                return b""
            self._dialect, self._is_settled = found, True
            data, self._finder = self._finder.rest, None
        return self._dialect.read(data)

    def _read(self, blocks: Iterable[RawRows | None]) -> Iterator[Run]:
        for block in blocks:
            if block is None:
                yield self._too_long()
                continue
            rows = block
            if self._dialect.comments is not None:
                rows = without(self._dialect.comments, block)
            if rows and not self._columns:
                rows = self._begin(join_blocks(self._waiting, rows))
            keep = self._keep
            if rows:
                yield from self._runs(rows) if keep is None else self._read_kept(rows, keep)

    def _runs(self, rows: RawRows) -> Iterable[Run]:
        if self._options.as_numbers:
            return parse_halving(rows, self._bulk_matrix, self._exact_matrix)
        return self._read_json(rows)

    def _read_kept(self, rows: RawRows, keep: CsvKept) -> Iterator[Run]:
        """Read a few rows at a time, as kept cells are looked at row by row."""
        for some in portions(rows, self._most_rows):
            yield from with_kept(self._runs(some), rows_of(some), keep)

    def _too_long(self) -> Run:
        message = too_long(self._options.row_bytes)
        if not self._columns:
            raise Poison("too_large", f"the first {message}: is this CSV?")
        return bad_row(message)

    def _begin(self, block: RawRows) -> RawRows:
        """Settle header and columns by the first rows; returns the rows that are data."""
        first, rest = split_first(block)
        if RETURN in first and is_old_mac(first):
            raise Poison("bad_format", OLD_MAC)
        try:
            cells = split_cells(first, self._options.max_columns)
            header = is_header(cells, rest, self._options, self._dialect)
        except TooManyCells as bad:
            raise Poison("too_large", f"the first {bad}") from None
        except BadRow as bad:
            raise Poison("bad_format", f"the CSV has no first row: {bad}") from None
        if header is None:
            self._waiting = block
            return b""
        if header:
            check_text(self._original(first))
            self._header = cells
        self._columns = len(cells)
        self._most_rows = max(1, min(MOST_EXACT_ROWS, _MOST_EXACT_CELLS // len(cells)))
        names = [self._name(cell) for cell in self._header]
        places: dict[str, int] = {}
        for at, name in enumerate(names):
            places.setdefault(name, at)
        if self._options.columns is not None:
            self._chosen = [
                index_of(column, places, self._columns) for column in self._options.columns
            ]
        if self._options.stays:
            self._settle_kept(names, places)
        return rest if header else block

    def _settle_kept(self, names: list[str], places: dict[str, int]) -> None:
        options = self._options
        self._keep = CsvKept(
            [
                (json_string(name).encode(), index_of(name, places, self._columns))
                for name in dict.fromkeys(options.keep)
            ],
            None if options.time is None else index_of(options.time, places, self._columns),
            options.max_columns,
            self._json_cell,
            self._original,
        )
        if self._chosen is None:
            self._chosen = [at for at, name in enumerate(names) if name not in options.stays]
            if not self._chosen:
                raise Poison("bad_format", "rows.keep and rows.time leave no column of the CSV")

    def _name(self, cell: bytes) -> str:
        return self._original(cell).strip().decode(errors="replace")

    def _original(self, piece: bytes) -> bytes:
        """The text as it stands in the file."""
        return self._dialect.back(piece)

    def _where(self, index: int) -> str:
        """The name of a cell in errors: its column's number, and its name if there is a header."""
        name = f' of column "{self._name(self._header[index])}"' if self._header else ""
        return f"cell {index}{name}"

    def _bulk_matrix(self, block: RawRows) -> Run | None:
        missing = self._options.missing
        values = None
        if isinstance(block, bytes) and self._chosen is None:
            values = parse_table(block, self._columns)
        if values is None and count_rows(block) > EXACT_ROWS and self._is_for_columns(block):
            text = block if isinstance(block, bytes) else b"\n".join(block) + b"\n"
            chosen = range(self._columns) if self._chosen is None else self._chosen
            nulls = () if missing is None else MISSING
            values = parse_columns(text, self._columns, chosen, nulls)
            if values is not None and len(values) != count_rows(block):
                return None  # it takes something else for the end of a row
            if values is not None and missing is not None:
                values[np.isnan(values)] = missing
        return None if values is None else Run(len(values), Matrix(values))

    def _is_for_columns(self, block: RawRows) -> bool:
        """Could reading by columns succeed? A plain block that the faster way refused has bad rows,
        unless cells may be missing.
        """
        plain = isinstance(block, bytes) and self._chosen is None
        return not plain or self._options.missing is not None

    def _read_json(self, block: RawRows) -> Iterator[Run]:
        # Not by halves: where one row has texts, all have.
        run = self._bulk_json(block)
        if run is not None:
            yield run
        else:
            yield from read_rows(rows_of(block), self._element, JsonRows.of, self._most_rows)

    def _bulk_json(self, block: RawRows) -> Run | None:
        if isinstance(block, list) or self._chosen is not None:
            return None
        if parse_table(block, self._columns) is None:
            return None
        # All cells are JSON numbers: `1,2\n3,4\n` becomes `[1,2],[3,4]` without touching them.
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
                pass  # said below, with the cell
        return [self._number(index, cell) for index, cell in self._numbered(cells)]

    def _numbered(self, cells: list[bytes]) -> Iterator[tuple[int, bytes]]:
        return zip(self._chosen or range(len(cells)), cells, strict=True)

    def _number(self, index: int, cell: bytes) -> float:
        missing = self._options.missing
        if is_number(cell):
            value = float(cell)
            return missing if missing is not None and isnan(value) else value
        if cell.strip() in MISSING_CELLS:
            if missing is not None:
                return missing
            mend = " (see rows.missing)"
        else:
            mend = (
                " (see rows.decimal)"
                if self._own.decimal == "." and is_decimal_comma(self._original(cell))
                else ""
            )
        text = shown(self._original(cell))
        raise BadRow(f'{self._where(index)} "{text}" is not a number{mend}')

    def _element(self, row: bytes) -> bytes:
        cells = self._cells(row)
        try:
            return b"[%b]" % b",".join(map(self._json_cell, cells))
        except UnicodeDecodeError:
            raise BadRow("row is not UTF-8 text") from None
        except OutOfRange as bad:
            index = next(index for index, cell in self._numbered(cells) if cell == bad.cell)
            text = shown(self._original(bad.cell))
            raise BadRow(f'{self._where(index)} "{text}" is beyond the range of a number') from None

    def _json_cell(self, cell: bytes) -> bytes:
        if self._missing_json is not None and cell.strip() in MISSING_CELLS:
            return self._missing_json
        return json_cell(cell, self._original)

    def _cells(self, row: bytes) -> list[bytes]:
        cells = split_cells(row, self._options.max_columns)
        if len(cells) != self._columns:
            raise BadRow(f"row has {len(cells)} cells, expected {self._columns}")
        return cells if self._chosen is None else [cells[index] for index in self._chosen]
