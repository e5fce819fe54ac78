"""The grammar of CSV (RFC 4180): where a row ends, and which cells it has.

Rule: a quote opens only at the start of a cell, and what follows the closing one is a separator or
the end of the row. A row that breaks this, or whose quote is never closed, is bad and ends at its
first newline, so that it does not swallow the rows behind it. `RowEnds` finds the ends, `cells_of`
divides a row and tells why it is bad; both need nothing but the row.

With `rows.escape = "backslash"` a backslash takes away the meaning of the next sign: inside quotes
before a quote, a backslash or a newline (Spark, MariaDB); without quotes before any sign, where
`\\n` is a newline, `\\t` a tab and `\\N` a missing value (Postgres' `COPY`, MariaDB, Hive).
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final, Literal, NamedTuple

from penstock.formats.runs import BadRow
from penstock.formats.text.lines import LineEnds

Quote = Literal['"', "'", "none"]
Cells = Callable[[bytes, int], list[bytes]]

_RETURN, _QUOTE, _BACKSLASH = b'\r"\\'
# Text inside quotes. All repeats are possessive, so a pattern can match a text in only one way.
# Therefore, if a quote is open at the end of a text, the row is certainly not complete.
DOUBLED: Final = rb'[^"]*+(?:""[^"]*+)*+'
ESCAPED: Final = rb'[^"\\]*+(?:(?:""|(?s:\\.))[^"\\]*+)*+'
MISSING: Final = rb"\N"


class Patterns(NamedTuple):
    """The first four patterns match the rest of a row, up to its newline: from the start of a cell,
    from a place inside quotes, from the place behind a closing quote, and from a place inside a
    cell without quotes.
    """

    start: re.Pattern[bytes]
    quoted: re.Pattern[bytes]
    closed: re.Pattern[bytes]
    within: re.Pattern[bytes]
    inside: re.Pattern[bytes]  # text inside quotes
    to_next: re.Pattern[bytes]  # from a place inside a cell to the start of the next cell
    cells: re.Pattern[bytes]  # complete cells


@cache
def patterns(inside: bytes) -> Patterns:
    """`inside`: the pattern of text inside quotes."""
    plain = rb"[^,\n]*+"
    cell = rb'(?:"%b"(?:\r(?=\n))?+|(?!")%b)' % (inside, plain)
    rest = rb"(?:,%b)*+\n" % cell
    return Patterns(
        start=re.compile(cell + rest),
        quoted=re.compile(rb'%b"(?:\r(?=\n))?+%b' % (inside, rest)),
        closed=re.compile(rb"(?:\r(?=\n))?+%b" % rest),
        within=re.compile(plain + rest),
        inside=re.compile(inside),
        to_next=re.compile(rb"%b," % plain),
        cells=re.compile(rb"(?:%b,)*+" % cell),
    )


class RowEnds(LineEnds):
    """Finds the ends of rows whose cells may be quoted. A line that begins with `comment` is a row,
    whatever quotes it has.
    """

    def __init__(self, inside: bytes = DOUBLED, comment: bytes = b"") -> None:
        super().__init__()
        self._of = patterns(inside)
        self._rest = self._of.start
        self._comment = comment

    def find(self, text: bytes | bytearray, start: int) -> int:
        if self._comment and text.startswith(self._comment, start):
            self._lines_until = max(self._lines_until, start + 1)
        self.is_doubtful = start < self._lines_until
        if self.is_doubtful:
            return super().find(text, start)
        at = self._at
        found = self._rest.match(text, at or start)
        if found is not None:
            if at:
                self.forget()
            return found.end() - 1
        broken = self._look(text, at or start)
        if not broken:
            return -1
        # A row that begins before the line of `broken`, and leaves a quote open at the end of its
        # own line, would break at the same place. So each of these lines is a row.
        self._lines_until = max(text.rfind(b"\n", start, broken), start) + 1
        self.is_doubtful = True
        self.forget()
        return super().find(text, start)

    def forget(self) -> None:
        self._rest, self._at = self._of.start, 0

    def _look(self, text: bytes | bytearray, at: int) -> int:
        """Go on through the unfinished row. So far, all of its newlines are inside quotes. Returns
        the place where the row breaks the grammar; 0: it does not.
        """
        of, rest = self._of, self._rest
        while at < len(text):
            if rest is of.quoted:
                at = _end(of.inside, text, at)
                if at >= len(text) - 1:
                    break  # the last quote may be the first of two, or have a backslash before it
                at, rest = at + 1, of.closed
            elif rest is of.closed:
                if text[at] == _RETURN and at + 1 == len(text):
                    break  # a newline may follow
                found = of.to_next.match(text, at)
                if found is None or found.end() > at + 1:
                    return at
                at, rest = at + 1, of.start
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
        return 0


def _end(pattern: re.Pattern[bytes], text: bytes | bytearray, at: int) -> int:
    found = pattern.match(text, at)
    return -1 if found is None else found.end()


class EscapedLineEnds(LineEnds):
    """Finds the ends of lines in which a backslash before a newline makes it a part of the text."""

    _line: Final = re.compile(rb"[^\\\n]*+(?:(?s:\\.)[^\\\n]*+)*+")

    def find(self, text: bytes | bytearray, start: int) -> int:
        if start < self._lines_until:
            return super().find(text, start)
        end = _end(self._line, text, self._at or start)
        is_end = text[end : end + 1] == b"\n"
        self._at = 0 if is_end else end
        return end if is_end else -1


class TooManyCells(BadRow):
    """Raised if a row has more cells than `limits.columns`. The row is not divided, because its
    cells would take fifty times as much memory as the row.
    """


# One cell with the comma before it; the literal comma makes the search fast. A quote that is not
# closed takes the rest of the text.
_CELLS: Final = rb'(?s),(?:"(%b)"([^,]*+)|(".*+|[^,]*+))'
_QUOTED_CELLS: Final = re.compile(_CELLS % DOUBLED)
_QUOTED_AND_ESCAPED_CELLS: Final = re.compile(_CELLS % ESCAPED)
_ESCAPED_CELLS: Final = re.compile(rb"(?s),((?:[^\\,]|\\.|\\\Z)*+)")
_ESCAPE: Final = re.compile(rb"(?s)\\(.)")
_ESCAPE_OR_DOUBLED: Final = re.compile(rb'\\(["\\\r\n0])|""')
# Outside quotes Spark escapes nothing, but Python's writer does.
_TWO_MEANINGS: Final = re.compile(rb'\\[\\"]')
# As MariaDB and Postgres write them. Any other escaped sign means itself.
ESCAPES: Final[Mapping[bytes, bytes]] = {
    b"0": b"\0", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"
}  # fmt: skip


def check_count(row: bytes, max_cells: int) -> None:
    if row.count(b",") >= max_cells:
        raise TooManyCells(f"row has more than {max_cells} cells (limits.columns)")


def plain_cells(row: bytes, max_cells: int) -> list[bytes]:
    """The cells of one complete row in which a quote is an ordinary sign."""
    if len(row) >= max_cells:
        check_count(row, max_cells)
    return row.split(b",")


def quoted_cells(row: bytes, max_cells: int) -> list[bytes]:
    """The cells of one complete row, unquoted."""
    if len(row) >= max_cells:
        check_count(row, max_cells)
    if _QUOTE not in row:
        return row.split(b",")
    cells: list[bytes] = []
    for quoted, tail, plain in _QUOTED_CELLS.findall(b"," + row):
        if tail or plain[:1] == b'"':
            raise _broken(len(cells), tail)
        cells.append(plain or quoted.replace(b'""', b'"'))
    return cells


def quoted_and_escaped_cells(row: bytes, max_cells: int) -> list[bytes]:
    """The same, where a backslash escapes quotes. A cell without quotes is as Spark writes it."""
    if len(row) >= max_cells:
        check_count(row, max_cells)
    if _BACKSLASH not in row:
        return quoted_cells(row, max_cells)
    cells: list[bytes] = []
    for quoted, tail, plain in _QUOTED_AND_ESCAPED_CELLS.findall(b"," + row):
        if tail or plain.startswith(b'"'):
            raise _broken(len(cells), tail)
        if _TWO_MEANINGS.search(plain):
            raise BadRow(
                f"cell {len(cells)} has a backslash before a backslash or a quote, but no quotes "
                "around it: some writers mean both signs, some the second; quote all cells"
            )
        text = _ESCAPE_OR_DOUBLED.sub(_unescaped, quoted)
        cells.append(b"" if plain == MISSING else plain or text)
    return cells


def _unescaped(found: re.Match[bytes]) -> bytes:
    sign: bytes | None = found[1]
    return b'"' if sign is None else b"\0" if sign == b"0" else sign


def _broken(number: int, tail: bytes) -> BadRow:
    why = "has text behind its closing quote" if tail else "opens a quote that is never closed"
    return BadRow(f"cell {number} {why} (see rows.quote and rows.escape)")


def escaped_cells(escapes: Mapping[bytes, bytes]) -> Cells:
    """Returns a function that divides a row without quotes in which a backslash escapes any sign.
    `escapes`: for each letter, what it means behind a backslash.
    """

    def unescaped(found: re.Match[bytes]) -> bytes:
        return escapes.get(found[1], found[1])

    def cells(row: bytes, max_cells: int) -> list[bytes]:
        if len(row) >= max_cells:
            check_count(row, max_cells)
        if _BACKSLASH not in row:
            return row.split(b",")
        return [
            b"" if cell == MISSING else _ESCAPE.sub(unescaped, cell)
            for cell in _ESCAPED_CELLS.findall(b"," + row)
        ]

    return cells
