"""Where one row ends: cuts chunks into blocks of complete lines, whatever the cut of the chunks.

Rule: a row ends at a newline outside quotes; a quote opens only at the start of a cell (RFC 4180).
At most one unfinished row is held, and of a row above the limit nothing: it is one bad row, and
reading goes on at the next newline after the limit.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

import numpy as np

from consumers.core.payload import Matrix, Payload
from consumers.errors import Poison
from consumers.formats.base import Run
from consumers.formats.numbers import to_float32

T = TypeVar("T")

# Complete rows: as one text of lines, each ended by a newline and none blank; or one by one, where
# a row may hold a newline.
RawRows = bytes | list[bytes]

# Fewer rows than this are read one by one: a call of pyarrow costs 220 us, a row read alone 2-4 us.
EXACT_ROWS = 64

# As numbers: to look for bytes of one byte costs Python 3.11 an exception each time, half a
# microsecond.
_RETURN, _QUOTE, _SPACE, _TAB = b'\r" \t'

_SHOWN_BYTES = 40  # of a bad cell or value in an error message
_BLANK_LINES = re.compile(rb"\n\n+")  # begins with a literal, so that it is found fast
_ONLY_BLANKS = re.compile(rb"(?m)^[ \t]++\n")
_LINE = re.compile(rb"[^\n]*+\n")
# Cells, each quoted from its start or not starting with a quote. Possessive: no second reading, so
# that a quote still open at the end means "not yet a row".
_CELL = rb'(?:"[^"]*+(?:""[^"]*+)*+"|(?!"))[^,\n]*+'
_CSV_ROW = re.compile(rb"(?:%b,)*+%b\n" % (_CELL, _CELL))


class BadRow(ValueError):
    """One row cannot be read; the message says why."""


class RowSplitter:
    """Holds the unfinished row between two chunks."""

    def __init__(self, limit_bytes: int, *, quotes: bool, blanks: bool = False) -> None:
        """`blanks`: is a line of nothing but blanks a row?"""
        self._limit_bytes = limit_bytes
        self._blanks = blanks
        self._quotes = quotes
        self._held = bytearray()
        self._discarding = False

    def feed(self, data: bytes) -> Iterable[RawRows | None]:
        """Blocks of complete rows; None in the place of a row above the limit."""
        if self._discarding:
            newline = data.find(b"\n")
            if newline < 0:
                return ()
            self._discarding = False
            data = data[newline + 1 :]
        held = self._held
        if len(held) + len(data) > self._limit_bytes:
            held += data
            return self._match_rows()
        end = data.rfind(b"\n") + 1
        if end and self._quotes and (_QUOTE in data or _QUOTE in held):
            held += data
            return self._match_rows()
        if not end:
            held += data
            return ()
        # The usual way: no quotes, so every newline ends a row.
        text = data[:end]
        if held:
            text = bytes(held) + text
            held.clear()
        held += data[end:]
        return _without_blanks(text, self._blanks)

    def whole(self, data: bytes) -> Iterable[RawRows | None]:
        """`feed` all there is: so the last row is complete, too."""
        if not data or len(data) > self._limit_bytes or (self._quotes and _QUOTE in data):
            return self.feed(data)
        return _without_blanks(data if data.endswith(b"\n") else data + b"\n", self._blanks)

    def close(self) -> Iterable[RawRows | None]:
        """The last row, if its newline is missing; also one whose quote was never closed."""
        return self._last() if self._held else ()

    def _last(self) -> Iterator[RawRows | None]:
        yield from self.feed(b"\n")
        if self._held:
            yield [bytes(self._held[:-1])]

    def _match_rows(self) -> Iterator[RawRows | None]:
        """The exact way: row by row, each measured."""
        held, limit = self._held, self._limit_bytes
        pattern = _CSV_ROW if self._quotes else _LINE
        rows: list[bytes] = []
        start = 0
        while True:
            match = pattern.match(held, start)
            end = match.end() - 1 if match else len(held)
            if end - start > limit:
                yield from _block_of(rows, self._blanks)
                rows = []
                yield None
                end = held.find(b"\n", start + limit + 1)
                if end < 0:
                    self._discarding = True
                    held.clear()
                    return
            elif match is None:
                break
            else:
                rows.append(bytes(held[start:end]))
            start = end + 1
        del held[:start]
        yield from _block_of(rows, self._blanks)


def _without_blanks(text: bytes, blanks: bool) -> Sequence[RawRows]:
    """Lines that end with a newline each."""
    if _RETURN in text:
        text = text.replace(b"\r\n", b"\n")
    # Not `in`: to find two bytes takes it 0.12 us a row, as long as reading four numbers.
    if _BLANK_LINES.search(text):
        text = _BLANK_LINES.sub(b"\n", text)
    # To look for a blank costs next to nothing, and most numbers have none beside them.
    if not blanks and (_SPACE in text or _TAB in text):
        text = _ONLY_BLANKS.sub(b"", text)
    text = text.removeprefix(b"\n")
    return (text,) if text else ()


def _block_of(rows: list[bytes], blanks: bool) -> Iterator[RawRows]:
    rows = [row for row in (row.removesuffix(b"\r") for row in rows) if row]
    if not blanks:
        rows = [row for row in rows if row.strip(b" \t")]
    if rows:
        yield rows


def rows_of(block: RawRows) -> list[bytes]:
    """Each row of a block."""
    return block[:-1].split(b"\n") if isinstance(block, bytes) else block


def count_rows(block: RawRows) -> int:
    return block.count(b"\n") if isinstance(block, bytes) else len(block)


def split_first(block: RawRows) -> tuple[bytes, RawRows]:
    """The first row and the other rows."""
    if isinstance(block, bytes):
        row, _, rest = block.partition(b"\n")
        return row, rest
    return block[0], block[1:]


def join_blocks(first: RawRows, second: RawRows) -> RawRows:
    if not first:
        return second
    if isinstance(first, bytes) and isinstance(second, bytes):
        return first + second
    return rows_of(first) + rows_of(second)


def parse_halving(
    block: RawRows,
    bulk: Callable[[RawRows], Run | None],
    exact: Callable[[list[bytes]], Iterator[Run]],
) -> Iterable[Run]:
    """Read a block at once. Where that fails, halve it: a bad row costs its neighbours only."""
    run = bulk(block)
    if run is not None:
        return (run,)
    rows = count_rows(block)
    if rows <= EXACT_ROWS:
        return exact(rows_of(block))
    halves = _halves(block, rows)
    return chain.from_iterable(parse_halving(half, bulk, exact) for half in halves)


def _halves(block: RawRows, rows: int) -> tuple[RawRows, RawRows]:
    if isinstance(block, list):
        return block[: rows // 2], block[rows // 2 :]
    # By bytes: cheaper than counting lines. A last line longer than all others stands alone.
    middle = block.find(b"\n", len(block) // 2) + 1
    if middle == len(block):
        middle = block.rfind(b"\n", 0, -1) + 1
    return block[:middle], block[middle:]


def read_rows(
    rows: Sequence[bytes], read: Callable[[bytes], T], join: Callable[[list[T]], Payload]
) -> Iterator[Run]:
    """Row by row; `read` raises `BadRow`, or `Poison`. Consecutive good rows are one run."""
    good: list[T] = []
    for row in rows:
        try:
            good.append(read(row))
            continue
        except BadRow as bad:
            error: BadRow | Poison = bad
        except Poison as poison:
            error = poison
        if good:
            yield Run(len(good), join(good))
            good = []
        if isinstance(error, Poison):
            raise error
        yield bad_row(str(error))
    if good:
        yield Run(len(good), join(good))


def bad_row(error: str) -> Run:
    """One row that cannot be read."""
    return Run(rows=1, payload=None, error=error)


def too_long(limit_bytes: int) -> str:
    return f"row is longer than {limit_bytes} bytes (limits.row_bytes)"


def shown(text: bytes) -> str:
    """A piece of input in an error message."""
    return text[:_SHOWN_BYTES].decode(errors="replace") + ("…" if len(text) > _SHOWN_BYTES else "")


def join_floats(rows: list[list[float]]) -> Matrix:
    return Matrix(to_float32(np.array(rows, np.float64)))
