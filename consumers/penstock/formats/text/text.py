"""Text: a row a line, or with `rows.text = "file"` a row a file; as opaque bytes or JSON strings.

Rule: a line ends at a newline, and a carriage return before it belongs to the end; blank lines are
passed over. As JSON a row must be UTF-8; as bytes it is handed on unchanged.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import orjson

from penstock.core.rows.payload import BytesRows, JsonRows, Payload
from penstock.formats.base.parser_chain import Parser
from penstock.formats.base.rows import BadRow, LinesParser, read_rows
from penstock.formats.base.runs import RowOptions, Run
from penstock.formats.text.lines import RawRows, rows_of
from penstock.formats.text.opaque import OneRowParser, opaque


@dataclass(frozen=True, slots=True)
class TextOptions:
    """What a row is."""

    text: Literal["line", "file"] = "line"


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
