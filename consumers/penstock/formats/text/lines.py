"""Finds where rows of text end, and cuts chunks of text into blocks of complete rows.

Rule: the rows are the same wherever the chunks are cut. A row ends at a newline, or at a carriage
return and a newline; a carriage return alone is text. In CSV a newline inside quotes does not end a
row, and a quote opens only at the start of a cell (RFC 4180). At most one unfinished row is held,
and each byte is looked at once. A row that is longer than the limit is not held: it is one bad row,
and reading goes on at the first newline after the limit.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple

# Complete rows. They are one text, in which each row is a line that ends with a newline and is not
# blank. If a row itself may contain newlines, they are a list instead.
RawRows = bytes | list[bytes]

# The signs are integers and not bytes, because at each `b'"' in data` Python 3.11 would internally
# raise an exception and drop it, which takes half a microsecond.
_RETURN, _QUOTE, _SPACE, _TAB = b'\r" \t'

# This pattern begins with a literal, so that it is found fast.
_BLANK_LINES: Final = re.compile(rb"\n\n++")
_ONLY_BLANKS: Final = re.compile(rb"(?m)^[ \t]++\n")
# All repeats are possessive, so a pattern can match a text in only one way. Therefore, if a quote
# is open at the end of the text, the row is certainly not complete yet.
_QUOTED_TEXT: Final = rb'[^"]*+(?:""[^"]*+)*+'
_IN_QUOTES: Final = re.compile(_QUOTED_TEXT)
# A block holds at most this many rows that were found one by one. Finding them takes 2 ms; then
# other objects may have a turn.
_MATCHED_ROWS: Final = 1_024


class Patterns(NamedTuple):
    """The patterns for one set of separators. The first three match the rest of a row, up to its
    newline: `quoted` from a place inside quotes, `within` from a place inside a cell, and `start`
    from the start of a cell.
    """

    quoted: re.Pattern[bytes]
    within: re.Pattern[bytes]
    start: re.Pattern[bytes]
    to_next: re.Pattern[bytes]  # from a place inside a cell to the start of the next cell
    cells: re.Pattern[bytes]  # complete cells


@cache
def patterns(separators: bytes) -> Patterns:
    end = rb"[^%b\n]*+" % separators
    cell = rb'(?:"%b"|(?!"))%b' % (_QUOTED_TEXT, end)
    rest = rb"%b(?:[%b]%b)*+\n" % (end, separators, cell)
    return Patterns(
        quoted=re.compile(rb'%b"%b' % (_QUOTED_TEXT, rest)),
        within=re.compile(rest),
        start=re.compile(rb'(?:"%b"|(?!"))%b' % (_QUOTED_TEXT, rest)),
        to_next=re.compile(rb"%b[%b]" % (end, separators)),
        cells=re.compile(rb"(?:%b[%b])*+" % (cell, separators)),
    )


class RowEnds:
    """Finds the ends of CSV rows in a text that grows, and looks at each byte once."""

    def __init__(self, separators: bytes = b",") -> None:
        self._of = patterns(separators)
        self._rest = self._of.start
        self._at = 0

    def find(self, text: bytes | bytearray, start: int) -> int:
        """The place of the newline that ends the row beginning at `start`; -1: more bytes are
        needed. After -1 the next call must be for the same row. If that row has moved in the text
        by then, the caller must have called `moved`.
        """
        at = self._at
        found = self._rest.match(text, at or start)
        if found is None:
            self._look(text, at or start)
            return -1
        if at:
            self.forget()
        return found.end() - 1

    def moved(self, nbytes: int) -> None:
        """Call this when `nbytes` bytes were taken off the front of the text."""
        self._at = max(0, self._at - nbytes)

    def forget(self) -> None:
        """Call this if the next call of `find` is for another row."""
        self._rest, self._at = self._of.start, 0

    def _look(self, text: bytes | bytearray, at: int) -> None:
        """Go on through the unfinished row. So far, all of its newlines are inside quotes."""
        of = self._of
        rest = self._rest
        while at < len(text):
            if rest is of.quoted:
                at = _end(_IN_QUOTES, text, at)
                if at >= len(text) - 1:
                    break  # a quote at the very end may be the first of two quotes
                at, rest = at + 1, of.within
            elif rest is of.within:
                at = _end(of.to_next, text, at)
                if at < 0:
                    at = len(text)
                    break
                rest = of.start
            else:
                at = _end(of.cells, text, at)
                if at == len(text):
                    break
                is_quoted = text[at] == _QUOTE
                at, rest = at + is_quoted, of.quoted if is_quoted else of.within
        self._at, self._rest = at, rest


def _end(pattern: re.Pattern[bytes], text: bytes | bytearray, at: int) -> int:
    found = pattern.match(text, at)
    return -1 if found is None else found.end()


class LineEnds:
    """Finds the ends of lines in which a quote is an ordinary character. Has the same methods as
    `RowEnds`.
    """

    def __init__(self) -> None:
        self._at = 0

    def find(self, text: bytes | bytearray, start: int) -> int:
        end = text.find(b"\n", max(start, self._at))
        self._at = len(text) if end < 0 else 0
        return end

    def moved(self, nbytes: int) -> None:
        self._at = max(0, self._at - nbytes)

    def forget(self) -> None:
        self._at = 0


class RowSplitter:
    """Holds the unfinished row between two chunks."""

    def __init__(self, limit_bytes: int, *, quotes: bool, blanks: bool = False) -> None:
        """`quotes`: True if newlines inside quotes do not end a row. `blanks`: True if a line that
        holds nothing but blanks is a row.
        """
        self._limit_bytes = limit_bytes
        self._blanks = blanks
        self._quotes = quotes
        self._ends: RowEnds | LineEnds | None = None  # made when it is needed
        self._held = bytearray()
        self._is_quoted = False  # the held bytes have a quote
        self._discarding = False  # inside a row that is too long, up to its newline

    def feed(self, data: bytes) -> Iterable[RawRows | None]:
        """Blocks of complete rows. Each row that is longer than the limit is replaced by None."""
        if self._discarding:
            newline = data.find(b"\n")
            if newline < 0:
                return ()
            self._discarding = False
            data = data[newline + 1 :]
        held = self._held
        if self._quotes and not self._is_quoted:
            self._is_quoted = _QUOTE in data
        end = data.rfind(b"\n") + 1
        if len(held) + len(data) > self._limit_bytes or (end and self._is_quoted):
            held += data
            return self._match_rows()
        if not end:
            held += data
            return ()
        # The usual case: there are no quotes, so every newline ends a row.
        text = data[:end]
        if held:
            text = bytes(held) + text
            held.clear()
            if self._ends is not None:
                self._ends.forget()
        held += data[end:]
        return _without_blanks(text, self._blanks)

    def whole(self, data: bytes) -> Iterable[RawRows | None]:
        """Like `feed`, but for all bytes of the text at once. In the usual case the last row is
        given, too, even if no newline ends it.
        """
        if not data or len(data) > self._limit_bytes or (self._quotes and _QUOTE in data):
            return self.feed(data)
        return _without_blanks(data if data.endswith(b"\n") else data + b"\n", self._blanks)

    def close(self) -> Iterable[RawRows | None]:
        """The last row, if no newline ends it. A row whose quote was never closed is such a last
        row, too.
        """
        return self._last() if self._held else ()

    def _last(self) -> Iterator[RawRows | None]:
        yield from self.feed(b"\n")
        if self._held:
            yield [bytes(self._held[:-1])]

    def _match_rows(self) -> Iterator[RawRows | None]:
        """Find the rows one by one and measure each, because some may be quoted or too long."""
        held, limit = self._held, self._limit_bytes
        if self._ends is None:
            self._ends = RowEnds() if self._quotes else LineEnds()
        ends, find = self._ends, self._ends.find
        rows: list[bytes] = []
        start = 0
        while True:
            end = find(held, start)
            if (len(held) if end < 0 else end) - start > limit:
                yield from _block_of(rows, self._blanks)
                rows = []
                yield None
                ends.forget()
                end = held.find(b"\n", start + limit + 1)
                if end < 0:
                    self._discarding, self._is_quoted = True, False
                    held.clear()
                    return
            elif end < 0:
                break
            else:
                rows.append(bytes(held[start:end]))
                if len(rows) == _MATCHED_ROWS:
                    yield from _block_of(rows, self._blanks)
                    rows = []
            start = end + 1
        del held[:start]
        ends.moved(start)
        self._is_quoted = self._quotes and _QUOTE in held
        yield from _block_of(rows, self._blanks)


def _without_blanks(text: bytes, blanks: bool) -> Sequence[RawRows]:
    """The lines that are not blank. Each line ends with a newline."""
    if _RETURN in text:
        text = text.replace(b"\r\n", b"\n")
    # A pattern is used here, because `in` takes 0.12 us a row to find two bytes, which is as long
    # as reading four numbers.
    if _BLANK_LINES.search(text):
        text = _BLANK_LINES.sub(b"\n", text)
    # The pattern is slow, and most texts of numbers have no blanks. So look for a blank first.
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
    return block[:-1].split(b"\n") if isinstance(block, bytes) else block


def count_rows(block: RawRows) -> int:
    return block.count(b"\n") if isinstance(block, bytes) else len(block)


def split_first(block: RawRows) -> tuple[bytes, RawRows]:
    """The first row, and the other rows."""
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
