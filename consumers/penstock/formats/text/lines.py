"""Finds where rows of text end, cuts chunks of text into blocks of complete rows, and reads rows of
numbers in bulk: many at once to a float32 matrix, without a Python object for each number.

Rule: the rows are the same wherever the chunks are cut. A row ends at a newline, with or without a
carriage return before; in CSV it may go on behind it (`formats/text/csv_row_ends.py`). At most one
unfinished row is held, and each byte is looked at once, or twice if a quote leads astray. A line
longer than the limit is not held: it is one bad row.

The functions that read in bulk may refuse (None) what could be read one by one, but never read a
number differently. Then `parse_halving` halves the block, so that a bad row slows down only its
neighbours; the last few rows are read one by one.
"""

import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import Context
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import simdjson
from pyarrow import csv as arrow_csv

from penstock.core.rows.payload import Float32Matrix, Matrix
from penstock.formats.runs import Run

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


# Arrow's signal handlers are switched off. With them, Arrow would handle SIGINT and SIGTERM itself
# while it reads: it would raise `ArrowCancelled` in the middle of an object, and the worker would
# not drain. This is done here because every process that decodes imports this module.
pa.enable_signal_handlers(False)

# A text of several rows is never longer than this, so a longer text is one huge row.
LONG_BYTES = 5 << 18

# This number, here called END, takes the place of every newline, so that all rows are parsed as one
# list. For example, `1,2\n3,4\n` is parsed as `1,2,END,3,4,END`. If END stands behind every
# `columns` numbers and nowhere else, all rows have the same length. Each process draws END by
# chance, so nobody can write an object that contains it.
_ROW_END = b"%d.5e-30" % secrets.randbelow(10**9)
_ROW_END_VALUE = float(_ROW_END)
_BETWEEN_ROWS = b",%b," % _ROW_END
# The signs are integers and not bytes, because at each `b"[" in text` Python would internally raise
# an exception and drop it.
_BRACKET, UNDERSCORE = b"[_"


def is_number(cell: bytes) -> bool:
    """True if the cell counts as a number when its row is read alone."""
    try:
        float(cell)
    except ValueError:
        return False
    return UNDERSCORE not in cell  # unlike us, float() accepts "1_000"


def parse_table(text: bytes, columns: int) -> Float32Matrix | None:
    """Reads lines of exactly `columns` comma-separated numbers; each line ends with a newline."""
    # Texts with brackets are refused, because the parser would read `[1,[2]]` as two numbers.
    if _BRACKET in text:
        return None
    # To parse a number takes 24 times the memory of its text. So one huge row is parsed only if it
    # has the right number of commas.
    if len(text) > LONG_BYTES and text.count(b",") != text.count(b"\n") * (columns - 1):
        return None
    flat = text.replace(b"\n", _BETWEEN_ROWS)
    try:
        array = simdjson.Parser().parse(b"".join((b"[", memoryview(flat)[:-1], b"]")))
        assert isinstance(array, simdjson.Array)
        numbers = array.as_buffer(of_type="d")
    # The text is not JSON, or does not have numbers only, or has integers beyond 64 bits.
    except (ValueError, TypeError, RuntimeError):
        return None
    values = np.frombuffer(numbers, np.float64)
    if len(values) % (columns + 1):
        return None
    rows = values.reshape(-1, columns + 1)
    # There must be as many row ends as rows. Without this check, short rows could pass for fewer,
    # longer rows, in which some row ends count as cells.
    if len(flat) - len(text) != len(rows) * (len(_BETWEEN_ROWS) - 1):
        return None
    # `all()` of the comparisons would take 1 us more, which is as long as reading ten numbers.
    if np.count_nonzero(rows[:, columns] == _ROW_END_VALUE) != len(rows):
        return None
    return to_float32(rows[:, :columns])


def parse_columns(
    text: bytes, columns: int, chosen: Sequence[int], nulls: Sequence[str] = ()
) -> Float32Matrix | None:
    """The `chosen` cells of CSV rows. A row has `columns` cells, and each may be quoted. The cells
    that are not chosen may hold anything. A cell that is one of `nulls` becomes NaN.
    """
    names = [str(index) for index in range(columns)]
    try:
        table = arrow_csv.read_csv(
            # Arrow would end a row at a lone carriage return. So carriage returns are replaced by a
            # character that neither ends a row nor belongs to a number.
            pa.BufferReader(text.replace(b"\r", b"\x1f")),
            read_options=arrow_csv.ReadOptions(
                use_threads=False, column_names=names, block_size=len(text) + 1
            ),
            parse_options=arrow_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=list(dict.fromkeys(str(index) for index in chosen)),
                # The type is not float32 yet. Rows that are read one by one are rounded to float64
                # and then to float32, and both ways must give the same numbers.
                column_types={name: pa.float64() for name in names},
                null_values=list(nulls),
                check_utf8=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    matrix = np.empty((table.num_rows, len(chosen)), np.float64)
    for position, index in enumerate(chosen):
        matrix[:, position] = table.column(str(index)).to_numpy()
    # pyarrow would accept "nan(anything)" as a number.
    if b"(" in text and np.isnan(matrix).any():
        return None
    return to_float32(matrix)


def join_floats(rows: list[list[float]]) -> Matrix:
    return Matrix(to_float32(np.array(rows, np.float64)))


def to_float32(values: npt.NDArray[np.float64]) -> Float32Matrix:
    """Round to float32. As with `np.float32`, a number that is too large becomes infinite."""
    return _quiet.context.run(values.astype, np.float32, order="C")


class _Quiet(threading.local):
    """A context in which numpy does not warn of numbers that are too large. Each thread has its own
    such context, because two threads cannot be in one context at the same time. `np.errstate` would
    take 2 us for each object; to enter this context takes a tenth of that.
    """

    def __init__(self) -> None:
        self.context = Context()
        self.context.run(np.seterr, over="ignore")


_quiet = _Quiet()


def parse_halving(
    block: RawRows,
    bulk: Callable[[RawRows], Run | None],
    exact: Callable[[list[bytes]], Iterator[Run]],
) -> Iterable[Run]:
    """Read all rows at once by the function `bulk`. If `bulk` returns None, halve the block and try
    each half. When only a few rows are left in a part, they are read one by one, by the function
    `exact`.
    """
    run = bulk(block)
    if run is not None:
        return (run,)
    rows = count_rows(block)
    if rows <= EXACT_ROWS:
        return exact(rows_of(block))
    both = halves(block, rows)
    return chain.from_iterable(parse_halving(half, bulk, exact) for half in both)


def halves(block: RawRows, rows: int) -> tuple[RawRows, RawRows]:
    if isinstance(block, list):
        return block[: rows // 2], block[rows // 2 :]
    # The middle of the bytes is found faster than the middle of the lines. If the last line is
    # longer than all lines before it together, it alone is the second half.
    middle = block.find(b"\n", len(block) // 2) + 1
    if middle == len(block):
        middle = block.rfind(b"\n", 0, -1) + 1
    return block[:middle], block[middle:]


def portions(block: RawRows, most_rows: int) -> Iterator[RawRows]:
    """The block in pieces of at most `most_rows` rows."""
    rows = count_rows(block)
    if rows <= most_rows:
        yield block
    else:
        for half in halves(block, rows):
            yield from portions(half, most_rows)
