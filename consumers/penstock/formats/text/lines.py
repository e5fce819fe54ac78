"""Finds where rows of text end, and cuts chunks of text into blocks of complete rows.

Rule: the rows are the same wherever the chunks are cut. A row ends at a newline, with or without a
carriage return before; in CSV it may go on behind it (`formats/text/csv_row_ends.py`). At most one
unfinished row is held, and each byte is looked at once, or twice if a quote leads astray. A line
longer than the limit is not held: it is one bad row.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

# Complete rows. They are one text, in which each row is a line that ends with a newline and is not
# blank. If a row itself may contain newlines, they are a list instead.
RawRows = bytes | list[bytes]

# The signs are integers and not bytes, because at each `b" " in data` Python 3.11 would internally
# raise an exception and drop it, which takes half a microsecond.
_RETURN, _SPACE, _TAB = b"\r \t"

# These patterns begin with a literal, so that they are found fast.
_BLANK_LINES: Final = re.compile(rb"\n\n++")
_ONLY_BLANKS: Final = re.compile(rb"\n[ \t]++(?=\n)")
# A block holds at most this many rows that were found one by one. Finding them takes 2 ms; then
# other objects may have a turn.
_MATCHED_ROWS: Final = 1_024
# If a block of at most this many rows cannot be read in bulk, it is not halved, and its rows are
# read one by one. The reason: a call of pyarrow takes 220 us, and a row that is read alone takes
# 2-4 us.
EXACT_ROWS: Final = 64


class LineEnds:
    """Finds the ends of rows in a text that grows. Here every line is a row."""

    def __init__(self) -> None:
        self._at = 0
        # Every line that begins before this place is a row.
        self._lines_until = 0
        # True if the last row that was found may break the grammar.
        self.is_doubtful = False

    def find(self, text: bytes | bytearray, start: int) -> int:
        """The place of the newline that ends the row beginning at `start`; -1: more bytes are
        needed. After -1 the next call must be for the same row. If that row has moved in the text
        by then, the caller must have called `moved`.
        """
        end = text.find(b"\n", max(start, self._at))
        self._at = len(text) if end < 0 else 0
        return end

    def moved(self, nbytes: int) -> None:
        """Call this when `nbytes` bytes were taken off the front of the text."""
        self._at = max(0, self._at - nbytes)
        self._lines_until = max(0, self._lines_until - nbytes)

    def forget(self) -> None:
        """Call this if the next call of `find` is for another row."""
        self._at = 0

    def end_at_lines(self, text: bytearray, start: int, stop: int) -> bool:
        """Make rows of the lines that begin at `start` and end before `stop`. False: there are
        none.
        """
        self._lines_until = text.rfind(b"\n", start, stop) + 1
        self.forget()
        return self._lines_until > start


class RowSplitter:
    """Holds the unfinished row between two chunks."""

    def __init__(
        self,
        limit_bytes: int,
        *,
        sign: int | None = None,
        ends: Callable[[], LineEnds] = LineEnds,
        blanks: bool = False,
    ) -> None:
        """`sign`: only if a text has this byte, a newline may not end a row; then `ends` makes what
        finds the ends. `blanks`: True if a line that holds nothing but blanks is a row.
        """
        self._limit_bytes = limit_bytes
        self._blanks = blanks
        self._sign = sign
        self._make_ends = ends
        self._ends: LineEnds | None = None  # made when it is needed
        self._held = bytearray()
        self._has_sign = False  # the held bytes have the sign
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
        if self._sign is not None and not self._has_sign:
            self._has_sign = self._sign in data
        end = data.rfind(b"\n") + 1
        if len(held) + len(data) > self._limit_bytes or (end and self._has_sign):
            held += data
            return self._match_rows()
        if not end:
            held += data
            return ()
        # The usual case: there is no such sign, so every newline ends a row.
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
        sign = self._sign
        if not data or len(data) > self._limit_bytes or (sign is not None and sign in data):
            return self.feed(data)
        return _without_blanks(data if data.endswith(b"\n") else data + b"\n", self._blanks)

    def close(self) -> Iterable[RawRows | None]:
        """The last row, if no newline ends it. If its quote is still open, its lines are rows."""
        return self._last() if self._held else ()

    def _last(self) -> Iterator[RawRows | None]:
        yield from self.feed(b"\n")
        if self._ends is not None and self._ends.end_at_lines(self._held, 0, len(self._held)):
            yield from self._match_rows()

    def _match_rows(self) -> Iterator[RawRows | None]:
        """Find the rows one by one and measure each, as some may hold newlines or be too long."""
        held, limit = self._held, self._limit_bytes
        if self._ends is None:
            self._ends = self._make_ends()
        ends, find = self._ends, self._ends.find
        rows: list[bytes] = []
        start, most, is_doubtful = 0, _MATCHED_ROWS, False
        while True:
            end = find(held, start)
            if (len(held) if end < 0 else end) - start > limit:
                # Most likely a quote leads astray, and the row is what is on its line.
                if ends.end_at_lines(held, start, start + limit + 1):
                    continue
                yield from _block_of(rows, self._blanks)
                rows = []
                yield None
                ends.forget()
                end = held.find(b"\n", start + limit + 1)
                if end < 0:
                    self._discarding, self._has_sign = True, False
                    held.clear()
                    return
            elif end < 0:
                break
            else:
                if ends.is_doubtful is not is_doubtful:
                    # Doubtful rows are read one by one: pyarrow has another grammar.
                    is_doubtful = ends.is_doubtful
                    most = EXACT_ROWS if is_doubtful else _MATCHED_ROWS
                    yield from _block_of(rows, self._blanks)
                    rows = []
                rows.append(bytes(held[start:end]))
                if len(rows) == most:
                    yield from _block_of(rows, self._blanks)
                    rows = []
            start = end + 1
        del held[:start]
        ends.moved(start)
        self._has_sign = self._sign is not None and self._sign in held
        yield from _block_of(rows, self._blanks)


def _without_blanks(text: bytes, blanks: bool) -> Sequence[RawRows]:
    """The lines that are not blank. Each line ends with a newline."""
    if _RETURN in text:
        text = text.replace(b"\r\n", b"\n")
    # A pattern is used here, because `in` takes 0.12 us a row to find two bytes, which is as long
    # as reading four numbers.
    if _BLANK_LINES.search(text):
        text = _BLANK_LINES.sub(b"\n", text)
    # Most texts of numbers have no blanks, and to look for one is faster than the pattern.
    if not blanks and (_SPACE in text or _TAB in text):
        text = _ONLY_BLANKS.sub(b"", b"\n" + text if text[0] in (_SPACE, _TAB) else text)
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
