"""CSV (RFC 4180, comma) to rows: float32 matrices, or JSON arrays.

Rule: the header, or else the first row, fixes how many cells a row has; `columns` chooses among
them. header = "auto" takes a first line without any number for a header; for JSON rows only if the
second line has a number, since in a file of texts nothing tells a header from a row (a lone line of
texts is a header). Naming a column means there is a header. Cells count from 0.
"""

import re
from collections.abc import Iterator
from json.encoder import encode_basestring as json_string
from math import isinf

import numpy as np

from consumers.core.payload import JsonRows, Matrix
from consumers.errors import ErrorCode, Poison
from consumers.formats.base import RowOptions, Run
from consumers.formats.numbers import parse_columns, parse_table
from consumers.formats.push import PLAIN_STEP_BYTES
from consumers.formats.rows import (
    EXACT_ROWS,
    BadRow,
    Block,
    RowSplitter,
    bad_row,
    count_rows,
    join_blocks,
    join_floats,
    parse_halving,
    read_rows,
    rows_of,
    shown,
    split_first,
    too_long,
)

_QUOTED_CELLS = re.compile(rb'(?:"([^"]*+(?:""[^"]*+)*+)"([^,]*+)|([^,]*+)),')
# In no text file, and in every binary one: NUL to BS, vertical feeds, SO to US, DEL.
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_JSON_NUMBER = re.compile(rb"[ \t\r]*-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?[ \t\r]*")


class CsvParser:
    """Push parser of one file."""

    step_bytes = PLAIN_STEP_BYTES
    damage: ErrorCode = "bad_format"

    def __init__(self, options: RowOptions) -> None:
        self._options = options
        self._splitter = RowSplitter(options.row_bytes, quotes=True)
        self._waiting: Block = b""  # a first line of texts: the second tells whether it is a header
        self._columns = 0  # cells in a row; 0 until the first row came
        self._chosen: list[int] | None = None

    def feed(self, data: bytes) -> Iterator[Run]:
        return self._read(self._splitter.feed(data))

    def close(self) -> Iterator[Run]:
        yield from self._read(self._splitter.close())
        if self._waiting and not self._columns:
            _check_text(split_first(self._waiting)[0])

    def _read(self, blocks: Iterator[Block | None]) -> Iterator[Run]:
        for block in blocks:
            if block is None:
                yield self._too_long()
                continue
            rows = block if self._columns else self._begin(join_blocks(self._waiting, block))
            if rows and self._options.form == "matrix":
                yield from parse_halving(rows, self._bulk_matrix, self._exact_matrix)
            elif rows:
                yield from self._read_json(rows)

    def _too_long(self) -> Run:
        message = too_long(self._options.row_bytes)
        if not self._columns:
            raise Poison("too_large", f"the first {message}: is this CSV?")
        return bad_row(message)

    def _begin(self, block: Block) -> Block:
        """Settle header and columns by the first rows; returns the rows that are data."""
        first, rest = split_first(block)
        try:
            cells = split_cells(first, self._options.max_columns)
            header = self._is_header(cells, rest)
        except TooManyCells as bad:
            raise Poison("too_large", f"the first {bad}") from None
        except BadRow as bad:
            raise Poison("bad_format", f"the CSV has no first row: {bad}") from None
        if header is None:
            self._waiting = block
            return b""
        if header:
            _check_text(first)
        self._columns = len(cells)
        if self._options.columns is not None:
            names = [cell.strip().decode(errors="replace") for cell in cells] if header else []
            self._chosen = [self._index(column, names) for column in self._options.columns]
        return rest if header else block

    def _is_header(self, cells: list[bytes], rest: Block) -> bool | None:
        """Is the first row a header? None: the second row must be seen first."""
        options = self._options
        if options.header != "auto":
            return options.header == "yes"
        if any(isinstance(column, str) for column in options.columns or ()):
            return True
        if any(map(_is_number, cells)):
            return False
        if options.form == "matrix":
            return True
        if not rest:
            return None
        second = split_cells(split_first(rest)[0], options.max_columns)
        return any(map(_is_number, second))

    def _index(self, column: str | int, names: list[str]) -> int:
        if isinstance(column, str):
            if column in names:
                return names.index(column)
            found = f"its header has {', '.join(names[:20])}" if names else "it has no header"
            raise Poison("bad_format", f'no column "{column}" in the CSV: {found}')
        if not 0 <= column < self._columns:
            raise Poison("bad_format", f"no column {column} in the CSV: it has {self._columns}")
        return column

    def _bulk_matrix(self, block: Block) -> Run | None:
        if isinstance(block, bytes) and self._chosen is None:
            values = parse_table(block, self._columns)
        elif count_rows(block) > EXACT_ROWS:
            text = block if isinstance(block, bytes) else b"\n".join(block) + b"\n"
            chosen = range(self._columns) if self._chosen is None else self._chosen
            values = parse_columns(text, self._columns, chosen)
        else:
            return None
        return None if values is None else Run(len(values), Matrix(values))

    def _read_json(self, block: Block) -> Iterator[Run]:
        # Not by halves: where one row has texts, all have.
        run = self._bulk_json(block)
        if run is not None:
            yield run
        else:
            yield from read_rows(rows_of(block), self._element, JsonRows.of)

    def _bulk_json(self, block: Block) -> Run | None:
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
        return read_rows(rows, self._numbers, join_floats)

    def _numbers(self, row: bytes) -> list[float]:
        cells = self._cells(row)
        if b"_" not in row:  # float() takes "1_000"
            try:
                return list(map(float, cells))
            except ValueError:
                pass  # said below, with the cell
        for index, cell in zip(self._chosen or range(len(cells)), cells, strict=True):
            if not _is_number(cell):
                raise BadRow(f'cell {index} "{shown(cell)}" is not a number')
        return list(map(float, cells))

    def _element(self, row: bytes) -> bytes:
        try:
            return b"[%b]" % b",".join(map(_json_cell, self._cells(row)))
        except UnicodeDecodeError:
            raise BadRow("row is not UTF-8 text") from None

    def _cells(self, row: bytes) -> list[bytes]:
        cells = split_cells(row, self._options.max_columns)
        if len(cells) != self._columns:
            raise BadRow(f"row has {len(cells)} cells, expected {self._columns}")
        return cells if self._chosen is None else [cells[index] for index in self._chosen]


def _check_text(header: bytes) -> None:
    """Binary data may begin with what looks like a header, and hold no row: not to be accepted."""
    if _BINARY.search(header):
        raise Poison("bad_format", f'binary data begins with "{shown(header)}": is this CSV?')


class TooManyCells(BadRow):
    """More than `limits.columns`: taking such a row apart costs fifty times its own size."""


def split_cells(row: bytes, max_cells: int) -> list[bytes]:
    """The cells of one complete row, unquoted."""
    if len(row) >= max_cells and row.count(b",") >= max_cells:
        raise TooManyCells(f"row has more than {max_cells} cells (limits.columns)")
    if b'"' not in row:
        return row.split(b",")
    cells: list[bytes] = []
    for quoted, tail, plain in _QUOTED_CELLS.findall(row + b","):
        if plain.startswith(b'"'):  # possible in the last row only
            raise BadRow(f"cell {len(cells)} opens a quote that is never closed")
        cells.append(plain or quoted.replace(b'""', b'"') + tail)
    return cells


def _is_number(cell: bytes) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return b"_" not in cell


def _json_cell(cell: bytes) -> bytes:
    """A JSON number as it stands, empty as null, all else as a string: `007` keeps its zeros."""
    if _JSON_NUMBER.fullmatch(cell):
        if isinf(float(cell)):  # a reader of the batch would refuse all its rows
            raise BadRow(f'"{shown(cell)}" is beyond the range of a number')
        return cell
    return json_string(cell.decode()).encode() if cell else b"null"
