"""Divides a JSON array into rows at the commas of its top level, without holding the array. Also
decides whether the rows of JSON are the elements of one array or its lines (NDJSON).

Rule: brackets and commas count only outside strings. The text between two top-level commas is one
row. If that text is not JSON, the array is `bad_format`. If the text is JSON but Python cannot hold
its value, it is one bad row, as in NDJSON. At most one unfinished row is held.

`JsonParser` decides by the first line. If this line is a complete array and more text follows, the
lines are the rows. The elements of any other array are the rows, even if the array is a single
line. But if nothing names the object as JSON, a single line with an array of scalars is one row.
Until the kind is known, the first line is held, but not more than `limits.row_bytes` of it.
"""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise, takewhile

import numpy as np

from penstock.errors import Poison
from penstock.formats.base.parser_chain import PLAIN_STEP_BYTES, Parser
from penstock.formats.base.runs import RowOptions, Run
from penstock.formats.magic import no_such
from penstock.formats.text.json_rows import JsonRowReader, open_ndjson
from penstock.formats.text.lines import RawRows

# The array is divided in pieces of this size. To find the cuts in a piece takes forty times the
# memory of the piece, and takes 3 ms if its rows have one byte each.
_PIECE_BYTES = 8 << 10
_SPACE = b" \t\r\n"
_QUOTE, _COMMA, _OPEN, _END = ord('"'), ord(","), ord("["), ord("]")
_ESCAPE = re.compile(rb"\\.", re.DOTALL)

# Two tables for all 256 bytes: how the byte changes the depth of brackets, and whether it matters
# for finding the cuts.
_STEP = np.zeros(256, np.int64)
_STEP[list(b"[{")] = 1
_STEP[list(b"]}")] = -1
_MATTERS = np.zeros(256, np.bool_)
_MATTERS[list(b'[]{},"')] = True


class JsonArrayParser(Parser):
    def __init__(self, options: RowOptions) -> None:
        self._limit_bytes = options.row_bytes
        self._reader = JsonRowReader(options, broken=lambda why: Poison("bad_format", why))
        self._cutter = Cutter()
        self._row = bytearray()
        self._rows = 0
        self._begun = self._ended = False

    def feed(self, data: bytes) -> Iterator[Run]:
        if not self._begun:
            data = data.lstrip(_SPACE)
            if not data:
                return
            if not data.startswith(b"["):
                raise no_such("JSON array, which rows in lines of their own (ndjson) are not", None)
            self._begun = True
            data = data[1:]
        for start in range(0, len(data), _PIECE_BYTES):
            yield from self._feed(data[start : start + _PIECE_BYTES])

    def _feed(self, data: bytes) -> Iterator[Run]:
        if self._ended:
            self._check_tail(data)
            return
        cuts, ended = self._cutter.cut(data)
        rows, rest = self._cut_rows(data, cuts)
        if ended:
            yield from self._finish(rows, data[cuts[-1]], rest)
            return
        self._row += rest
        yield from self._read(rows)
        self._check_length(self._row)

    def close(self) -> Iterator[Run]:
        if self._begun and not self._ended:
            raise Poison("bad_format", f"the JSON array ends early, in row {self._rows}")
        return iter(())

    def _cut_rows(self, data: bytes, cuts: list[int]) -> tuple[list[bytes], bytes]:
        if not cuts:
            return [], data
        self._row += memoryview(data)[: cuts[0]]
        rows = [bytes(self._row)]
        self._row.clear()
        rows += [data[cut + 1 : following] for cut, following in pairwise(cuts)]
        return rows, data[cuts[-1] + 1 :]

    def _finish(self, rows: list[bytes], bracket: int, tail: bytes) -> Iterator[Run]:
        self._ended = True
        if not self._rows and len(rows) == 1 and not rows[0].strip(_SPACE):
            rows.clear()  # the array is `[]`
        yield from self._read(rows)
        if bracket != _END:
            raise Poison("bad_format", "the JSON array ends with a brace")
        self._check_tail(tail)

    def _read(self, rows: list[bytes]) -> Iterator[Run]:
        fitting = list(takewhile(lambda row: len(row) <= self._limit_bytes, rows))
        self._rows += len(fitting)
        if fitting:
            yield from self._reader.read(_block_of(fitting))
        if len(fitting) < len(rows):
            self._check_length(rows[len(fitting)])

    def _check_length(self, row: bytes | bytearray) -> None:
        if len(row) > self._limit_bytes:
            raise Poison(
                "too_large",
                f"row {self._rows} is longer than {self._limit_bytes} bytes (limits.row_bytes)",
            )

    def _check_tail(self, data: bytes) -> None:
        if data.strip(_SPACE):
            raise Poison("bad_format", "something follows the JSON array")


class Cutter:
    """Finds the commas between rows, and the array's end, by counting brackets outside strings."""

    def __init__(self) -> None:
        self._depth = 1  # inside the array
        self._in_string = 0
        self._escaped = False  # the last byte was a backslash that escapes the next byte

    def cut(self, data: bytes) -> tuple[list[int], bool]:
        """Returns the places in `data` where rows end, and True if the last of these places is the
        array's end.
        """
        text = self._without_escapes(data)
        bytes_ = np.frombuffer(text, np.uint8)
        at = np.flatnonzero(_MATTERS[bytes_])
        kinds = bytes_[at]
        quotes = kinds == _QUOTE
        in_string = (np.cumsum(quotes) + self._in_string) & 1
        if len(at):
            self._in_string = int(in_string[-1])
        outside = ~quotes & (in_string == 0)
        at, kinds = at[outside], kinds[outside]
        depths = np.cumsum(_STEP[kinds]) + self._depth
        if len(at):
            self._depth = int(depths[-1])
        cuts = at[(depths == 1) & (kinds == _COMMA)]
        ends = at[depths == 0]
        if len(ends):
            return [*cuts[cuts < ends[0]].tolist(), int(ends[0])], True
        return cuts.tolist(), False

    def _without_escapes(self, data: bytes) -> bytes:
        """`data` with each backslash and the byte that it escapes replaced by two other bytes."""
        if self._escaped and data:
            data = b"_" + data[1:]
            self._escaped = False
        if b"\\" not in data:
            return data
        data = _ESCAPE.sub(b"__", data)
        self._escaped = data.endswith(b"\\")
        return data


def is_array(text: bytes | bytearray) -> bool:
    """True if, by its brackets, the text is one array from its first byte to its last."""
    cutter = Cutter()
    for start in range(1, len(text), PLAIN_STEP_BYTES):
        piece = bytes(text[start : start + PLAIN_STEP_BYTES])
        cuts, ended = cutter.cut(piece)
        if ended:
            return not (piece[cuts[-1] + 1 :] + text[start + len(piece) :]).strip(_SPACE)
    return False


def _block_of(rows: list[bytes]) -> RawRows:
    """The rows as one text of lines if no row has a newline, because lines can be read in bulk. If
    a row has a newline, the list of rows itself.
    """
    text = b"\n".join(rows)
    return rows if text.count(b"\n") != len(rows) - 1 else text + b"\n"


class JsonParser(Parser):
    """Reads JSON of an unknown kind. `is_named`: True if the object's name says that it is JSON."""

    def __init__(self, options: RowOptions, *, is_named: bool) -> None:
        self._options = options
        self._is_named = is_named
        self._parser: Parser | None = None
        self._line = bytearray()
        self._is_complete = False  # the first line has come, with its newline

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
            self._settle(JsonArrayParser, data)  # the line is too long to be a row of NDJSON
            return
        self._is_complete = bool(end)
        line += data[: end or None]
        if end:
            self._take(data[end:])

    def _settle(self, parser: Callable[[RowOptions], Parser], data: bytes) -> None:
        """Choose the parser, and add `data` to the held line, which the parser is fed next."""
        self._parser = parser(self._options)
        self._line += data
