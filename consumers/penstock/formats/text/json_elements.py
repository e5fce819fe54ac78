"""Reads the elements of a JSON array, and JSON values that follow each other: cuts the text by its
brackets, whatever they hold.

Rule: the text comes in pieces, which may be cut anywhere; only the row that is not complete is
held, up to `limits.row_bytes`.
"""

import re
from collections.abc import Iterator
from itertools import pairwise, takewhile
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.errors import Poison
from penstock.formats.parser_chain import Parser
from penstock.formats.runs import RowOptions, Run
from penstock.formats.text.json_rows import JsonRowReader
from penstock.formats.text.lines import RawRows

# The text is divided in pieces of this size. To find the cuts in a piece takes forty times the
# memory of the piece, and takes 3 ms if its rows have one byte each.
_PIECE_BYTES = 8 << 10
# Blanks between values. The last one begins each value of a JSON text sequence (RFC 7464).
BLANK: Final = b" \t\r\n\x1e"
_QUOTE, _COMMA, _END = ord('"'), ord(","), ord("]")
_ESCAPE = re.compile(rb"\\.", re.DOTALL)

# Two tables for all 256 bytes: how the byte changes the depth of brackets, and whether it matters
# for finding the cuts.
_STEP = np.zeros(256, np.int64)
_STEP[list(b"[{")] = 1
_STEP[list(b"]}")] = -1
_MATTERS = np.zeros(256, np.bool_)
_MATTERS[list(b'[]{},"')] = True


class Brackets:
    """Follows the brackets outside of strings in a text that comes in pieces."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._in_string = 0
        self._escaped = False  # the last byte was a backslash that escapes the next byte

    def cut(self, data: bytes) -> tuple[list[int], bool]:
        """Returns the places of the commas at depth 1, and True if the last of these places is not
        a comma, but the array's end.
        """
        at, kinds, depths = self._marks(data)
        cuts = at[(depths == 1) & (kinds == _COMMA)]
        ends = at[depths == 0]
        if len(ends):
            return [*cuts[cuts < ends[0]].tolist(), int(ends[0])], True
        return cuts.tolist(), False

    def ends(self, data: bytes) -> list[int]:
        """The places behind the brackets that end a value. A bracket too many ends one, too."""
        at, kinds, depths = self._marks(data)
        ends: list[int] = (at[(depths <= 0) & (_STEP[kinds] < 0)] + 1).tolist()
        return ends

    def _marks(
        self, data: bytes
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """The places of all brackets and commas outside of strings, what they are, and the depth
        behind each.
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
        depths = np.cumsum(_STEP[kinds]) + self.depth
        if len(at):
            self.depth = int(depths[-1])
        return at, kinds, depths

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


class RowTexts:
    """Reads the texts of rows, and refuses one that is too long to be held. `begun`: the beginning
    of the row that comes next.
    """

    def __init__(self, options: RowOptions) -> None:
        self.begun = bytearray()
        self._limit_bytes = options.row_bytes
        self._reader = JsonRowReader(options, broken=lambda why: Poison("bad_format", why))
        self._rows = 0

    def read(self, rows: list[bytes]) -> Iterator[Run]:
        fitting = rows
        if max(map(len, rows), default=0) > self._limit_bytes:
            fitting = list(takewhile(lambda row: len(row) <= self._limit_bytes, rows))
        self._rows += len(fitting)
        if fitting:
            yield from self._reader.read(_block_of(fitting))
        if len(fitting) < len(rows):
            self.check_length(rows[len(fitting)])

    def check_length(self, row: bytes | bytearray) -> None:
        if len(row) > self._limit_bytes:
            raise Poison(
                "too_large",
                f"row {self._rows} is longer than {self._limit_bytes} bytes (limits.row_bytes)",
            )

    def ends_early(self) -> Poison:
        return Poison("bad_format", f"the JSON ends early, in row {self._rows}")


def _block_of(rows: list[bytes]) -> RawRows:
    """The rows as one text of lines if no row has a newline, because lines can be read in bulk. If
    a row has a newline, the list of rows itself.
    """
    text = b"\n".join(rows)
    return rows if text.count(b"\n") != len(rows) - 1 else text + b"\n"


class ArrayElements:
    """Reads the elements of an array, from behind its opening bracket on."""

    def __init__(self, rows: RowTexts) -> None:
        self._rest: bytes | None = None
        self._rows = rows
        self._brackets = Brackets(1)
        self._is_empty = True

    def rest(self) -> bytes | None:
        """What follows the array; None: the array has not ended."""
        return self._rest

    def feed(self, data: bytes) -> Iterator[Run]:
        for start in range(0, len(data), _PIECE_BYTES):
            piece = data[start : start + _PIECE_BYTES]
            cuts, ended = self._brackets.cut(piece)
            rows, tail = self._cut(piece, cuts)
            if ended:
                yield from self._last(rows, piece[cuts[-1]])
                self._rest = tail + data[start + _PIECE_BYTES :]
                return
            self._rows.begun += tail
            if rows:
                self._is_empty = False
                yield from self._rows.read(rows)
            self._rows.check_length(self._rows.begun)

    def _cut(self, data: bytes, cuts: list[int]) -> tuple[list[bytes], bytes]:
        if not cuts:
            return [], data
        begun = self._rows.begun
        begun += memoryview(data)[: cuts[0]]
        rows = [bytes(begun)]
        begun.clear()
        rows += [data[cut + 1 : following] for cut, following in pairwise(cuts)]
        return rows, data[cuts[-1] + 1 :]

    def _last(self, rows: list[bytes], bracket: int) -> Iterator[Run]:
        if self._is_empty and len(rows) == 1 and not rows[0].strip(BLANK):
            rows.clear()  # the array is `[]`
        yield from self._rows.read(rows)
        if bracket != _END:
            raise Poison("bad_format", "the JSON array ends with a brace")


class JsonArrayParser(Parser):
    """Reads the elements of a lone array."""

    def __init__(self, options: RowOptions) -> None:
        self._rows = RowTexts(options)
        self._elements = ArrayElements(self._rows)
        self._begun = False

    def feed(self, data: bytes) -> Iterator[Run]:
        if not self._begun:
            self._begun, data = True, data[1:]
        if self._elements.rest() is None:
            yield from self._elements.feed(data)
            data = self._elements.rest() or b""
        if data.strip(BLANK):
            raise Poison("bad_format", "something follows the JSON array")

    def close(self) -> Iterator[Run]:
        if self._elements.rest() is None:
            raise self._rows.ends_early()
        return iter(())


class JsonValuesParser(Parser):
    """Reads values that follow each other, with or without blanks between them."""

    def __init__(self, options: RowOptions) -> None:
        self._rows = RowTexts(options)
        self._brackets = Brackets(0)

    def feed(self, data: bytes) -> Iterator[Run]:
        begun = self._rows.begun
        for start in range(0, len(data), _PIECE_BYTES):
            piece = data[start : start + _PIECE_BYTES]
            ends = [0, *self._brackets.ends(piece)]
            rows = [bytes(begun) + piece[: ends[1]]] if len(ends) > 1 else []
            rows += [piece[end:following] for end, following in pairwise(ends[1:])]
            if rows:
                begun.clear()
                yield from self._rows.read([row.strip(BLANK) for row in rows])
            begun += piece[ends[-1] :]
            self._rows.check_length(begun)

    def close(self) -> Iterator[Run]:
        last = bytes(self._rows.begun).strip(BLANK)
        if last and self._brackets.depth > 0:
            raise self._rows.ends_early()
        return self._rows.read([last] if last else [])
