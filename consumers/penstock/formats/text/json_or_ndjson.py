"""JSON of an unknown kind: are its rows the elements of one array, or its lines (NDJSON)?

Rule: if the first line is a complete array and more text follows, the lines are the rows. The
elements of any other array are the rows, even if the array is a single line. But if nothing names
the object as JSON, a single line with an array of scalars is one row. Until the kind is known the
first line is held, up to the limit of a row.
"""

from collections.abc import Callable, Iterator

from penstock.formats.base.parser_chain import Parser
from penstock.formats.base.runs import RowOptions, Run
from penstock.formats.text.json_array import JsonArrayParser, is_array
from penstock.formats.text.json_rows import open_ndjson

_SPACE = b" \t\r\n"
_OPEN = ord("[")


class JsonParser(Parser):
    def __init__(self, options: RowOptions, *, is_named: bool) -> None:
        self._options = options
        self._is_named = is_named
        self._parser: Parser | None = None
        self._line = bytearray()
        self._is_complete = False  # the first line is there, with its newline

    def feed(self, data: bytes) -> Iterator[Run]:
        if self._parser is None:
            self._take(data)
            if self._parser is None:
                return
            data = bytes(self._line)
            self._line.clear()
        yield from self._parser.feed(data)

    def close(self) -> Iterator[Run]:
        if self._parser is None:
            if not self._line:
                return
            line = bytes(self._line)
            is_row = not (self._is_named or line[1:].lstrip(_SPACE).startswith((b"[", b"{", b"]")))
            self._parser = (open_ndjson if is_row else JsonArrayParser)(self._options)
            yield from self._parser.feed(line)
        yield from self._parser.close()

    def _take(self, data: bytes) -> None:
        """Add the bytes to the first line; choose the parser as soon as the kind is known."""
        line = self._line
        if not line or self._is_complete:
            data = data.lstrip(_SPACE)
        if not data:
            return
        if not line and data[0] != _OPEN:
            self._settle(open_ndjson if data.startswith(b"{") else JsonArrayParser, data)
        elif self._is_complete:
            self._settle(open_ndjson if is_array(line) else JsonArrayParser, data)
        else:
            self._take_line(data)

    def _take_line(self, data: bytes) -> None:
        line, limit = self._line, self._options.row_bytes
        end = data.find(b"\n") + 1
        if len(line) + (end or len(data)) > limit:
            self._settle(JsonArrayParser, data)  # the line is too long for a row of NDJSON
            return
        self._is_complete = bool(end)
        line += data[: end or None]
        if end:
            self._take(data[end:])

    def _settle(self, parser: Callable[[RowOptions], Parser], data: bytes) -> None:
        """Choose the parser; it is fed the held line, to which `data` is added here."""
        self._parser = parser(self._options)
        self._line += data
