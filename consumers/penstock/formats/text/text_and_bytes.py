"""The formats `text` and `bytes`: a row is a line, or a whole object or member.

Rule: empty lines are passed over. A row of `text` with NUL bytes is bad, and so is one that becomes
JSON but is not UTF-8. A whole object above `limits.row_bytes` is one bad row, not held. An empty
member of an archive is a bad row, because it stands for a missing frame; an empty object has no
row.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import orjson

from penstock.core.rows.payload import ROW_COST_BYTES, BytesRows, JsonRows, Payload
from penstock.formats.parser_chain import Parser
from penstock.formats.runs import BadRow, RowOptions, Run, bad_row, read_rows, too_long
from penstock.formats.text.lines import RawRows, RowSplitter, rows_of

# A function that makes the row from all bytes of an object, or raises `BadRow`.
MakeRow = Callable[[bytes], Payload]
# The sign is an integer and not bytes, because at each `b"\0" in line` Python would internally
# raise an exception and drop it.
_NUL = 0


class OneRowParser(Parser):
    """The push parser of an object that is one row. `make`: a function that makes this row from all
    bytes of the object. `weight`: of this row.
    """

    def __init__(self, options: RowOptions, make: MakeRow, weight: int = ROW_COST_BYTES) -> None:
        self._limit_bytes = options.row_bytes
        self._make = make
        self._weight = weight
        self._parts: list[bytes] = []
        self._nbytes = 0

    def feed(self, data: bytes) -> Iterator[Run]:
        self._nbytes += len(data)
        if self._nbytes > self._limit_bytes:
            self._parts.clear()
        else:
            self._parts.append(data)
        return iter(())

    def close(self) -> Iterator[Run]:
        if self._nbytes > self._limit_bytes:
            yield bad_row(too_long(self._limit_bytes))
            return
        if not self._nbytes:
            yield bad_row("the file is empty")
            return
        try:
            row = self._make(b"".join(self._parts))
        except BadRow as bad:
            yield bad_row(str(bad))
            return
        self._parts.clear()
        yield Run(1, row, weight=self._weight)


def opaque(data: bytes) -> BytesRows:
    return BytesRows.of([data])


class UnreadParser(Parser):
    """The parser of a member that cannot be read, although the other members of its archive can. It
    passes over the member's bytes, and gives one bad row that says why.
    """

    def __init__(self, why: str) -> None:
        self._why = why

    def feed(self, data: bytes) -> Iterator[Run]:
        return iter(())

    def close(self) -> Iterator[Run]:
        yield bad_row(self._why)


def open_bytes(options: RowOptions) -> OneRowParser:
    return OneRowParser(options, opaque)


@dataclass(frozen=True, slots=True)
class TextOptions:
    """`text`: which part of the file is a row."""

    text: Literal["line", "file"] = "line"


class LinesParser(Parser):
    """The push parser of a file whose rows are lines. `read`: a function that makes the runs of a
    block of rows.
    """

    def __init__(
        self,
        options: RowOptions,
        read: Callable[[RawRows], Iterable[Run]],
        *,
        blanks: bool = False,
    ) -> None:
        """`blanks`: True if a line that holds nothing but blanks is a row."""
        self._limit_bytes = options.row_bytes
        self._splitter = RowSplitter(options.row_bytes, blanks=blanks)
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
    return OneRowParser(options, _json_row if as_json else _opaque_text)


def _json_lines(block: RawRows) -> Iterator[Run]:
    return read_rows(rows_of(block), _json_text, JsonRows.of)


def _opaque_lines(block: RawRows) -> Iterator[Run]:
    lines = rows_of(block)
    if any(_NUL in line for line in lines):
        yield from read_rows(lines, _text, BytesRows.of)
    else:
        yield Run(len(lines), BytesRows.of(lines))


def _text(data: bytes) -> bytes:
    if _NUL in data:
        raise BadRow("row has a NUL byte, so it is no text in UTF-8")
    return data


def _json_text(line: bytes) -> bytes:
    try:
        return orjson.dumps(_text(line).decode())
    except UnicodeDecodeError:
        raise BadRow("row is not UTF-8 text; write the file as UTF-8") from None


def _json_row(data: bytes) -> Payload:
    return JsonRows.of([_json_text(data)])


def _opaque_text(data: bytes) -> Payload:
    return opaque(_text(data))
