"""Files whose rows are lines; and the format `text`, whose row may also be the whole file.

Rule: a line ends at a newline, together with a carriage return before the newline; empty lines are
passed over. A row of `text` is either a JSON string, and then must be UTF-8, or opaque bytes that
are handed on unchanged.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import orjson

from penstock.core.rows.payload import BytesRows, JsonRows, Payload
from penstock.formats.base.parser_chain import Parser
from penstock.formats.base.runs import BadRow, RowOptions, Run, bad_row, read_rows, too_long
from penstock.formats.text.lines import RawRows, RowSplitter, rows_of
from penstock.formats.text.opaque import OneRowParser, opaque


@dataclass(frozen=True, slots=True)
class TextOptions:
    """`text`: which part of the file is a row."""

    text: Literal["line", "file"] = "line"


class LinesParser(Parser):
    """Push parser of a file whose rows are lines; `read` makes the runs of a block of rows."""

    def __init__(
        self,
        options: RowOptions,
        read: Callable[[RawRows], Iterable[Run]],
        *,
        blanks: bool = False,
    ) -> None:
        """`blanks`: True if a line that holds nothing but blanks is a row."""
        self._limit_bytes = options.row_bytes
        self._splitter = RowSplitter(options.row_bytes, quotes=False, blanks=blanks)
        self._read_block = read

    def feed(self, data: bytes) -> Iterator[Run]:
        return self._read(self._splitter.feed(data))

    def whole(self, data: bytes) -> Iterator[Run]:
        return self._read(self._splitter.whole(data))

    def close(self) -> Iterator[Run]:
        return self._read(self._splitter.close())

    def _read(self, blocks: Iterable[RawRows | None]) -> Iterator[Run]:
        for block in blocks:
            if block is None:
                yield bad_row(too_long(self._limit_bytes))
            else:
                yield from self._read_block(block)


def open_text(options: RowOptions) -> Parser:
    as_json = options.form == "json"
    if options.of(TextOptions).text == "line":
        return LinesParser(options, _json_lines if as_json else _opaque_lines, blanks=True)
    return OneRowParser(options, _json_row if as_json else opaque)


def _json_lines(block: RawRows) -> Iterator[Run]:
    return read_rows(rows_of(block), _json_text, JsonRows.of)


def _opaque_lines(block: RawRows) -> Iterator[Run]:
    lines = rows_of(block)
    yield Run(len(lines), BytesRows.of(lines))


def _json_text(line: bytes) -> bytes:
    try:
        return orjson.dumps(line.decode())
    except UnicodeDecodeError:
        raise BadRow("row is not UTF-8 text") from None


def _json_row(data: bytes) -> Payload:
    return JsonRows.of([_json_text(data)])
