"""Finds where a row of CSV ends whose cells are quoted or escaped (RFC 4180).

Rule: a quote opens only at the start of a cell, and what follows the closing one is a separator or
the end of the row. A row that breaks this, or whose quote is never closed, is bad and ends at its
first newline, so that it does not swallow the rows behind it.
"""

import re
from functools import cache
from typing import Final, NamedTuple

from penstock.formats.text.lines import LineEnds

_RETURN, _QUOTE = b'\r"'
# Text inside quotes. All repeats are possessive, so a pattern can match a text in only one way.
# Therefore, if a quote is open at the end of a text, the row is certainly not complete.
DOUBLED: Final = rb'[^"]*+(?:""[^"]*+)*+'
ESCAPED: Final = rb'[^"\\]*+(?:(?:""|(?s:\\.))[^"\\]*+)*+'


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
        match = self._rest.match(text, at or start)
        if match is not None:
            if at:
                self.forget()
            return match.end() - 1
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
                match = of.to_next.match(text, at)
                if match is None or match.end() > at + 1:
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
    match = pattern.match(text, at)
    return -1 if match is None else match.end()


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
