"""Text: a row a line, or with `rows.text = "file"` a row a file; as opaque bytes or JSON strings.

Rule: a line ends at a newline, a carriage return before it goes with it, blank lines are passed
over. As JSON a row must be UTF-8; as bytes it is handed on as it is.
"""

from collections.abc import Iterable, Iterator

import orjson

from consumers.core.payload import BytesRows, JsonRows, Payload
from consumers.errors import ErrorCode
from consumers.formats.base import RowOptions, Run
from consumers.formats.lines import RawRows, RowSplitter, rows_of
from consumers.formats.opaque import OneRowParser, opaque
from consumers.formats.push import PLAIN_STEP_BYTES, Parser
from consumers.formats.rows import BadRow, bad_row, read_rows, too_long


def open_text(options: RowOptions) -> Parser:
    if options.text == "line":
        return LineParser(options)
    return OneRowParser(options, _json_row if options.form == "json" else opaque)


class LineParser:
    """Push parser of one file."""

    step_bytes = PLAIN_STEP_BYTES
    damage: ErrorCode = "bad_format"

    def __init__(self, options: RowOptions) -> None:
        self._too_long = too_long(options.row_bytes)
        self._as_json = options.form == "json"
        self._splitter = RowSplitter(options.row_bytes, quotes=False, blanks=True)

    def feed(self, data: bytes) -> Iterator[Run]:
        return self._read(self._splitter.feed(data))

    def whole(self, data: bytes) -> Iterator[Run]:
        return self._read(self._splitter.whole(data))

    def close(self) -> Iterator[Run]:
        return self._read(self._splitter.close())

    def _read(self, blocks: Iterable[RawRows | None]) -> Iterator[Run]:
        for block in blocks:
            if block is None:
                yield bad_row(self._too_long)
                continue
            lines = rows_of(block)
            if self._as_json:
                yield from read_rows(lines, _json_text, JsonRows.of)
            else:
                yield Run(len(lines), BytesRows.of(lines))


def _json_text(line: bytes) -> bytes:
    try:
        return orjson.dumps(line.decode())
    except UnicodeDecodeError:
        raise BadRow("row is not UTF-8 text") from None


def _json_row(data: bytes) -> Payload:
    return JsonRows.of([_json_text(data)])
