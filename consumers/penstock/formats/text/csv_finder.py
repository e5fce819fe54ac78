"""Finds out how a CSV separates and quotes its cells.

Rule: the separator is found in the first row, outside quotes. RFC 4180 is the grammar, unless every
row of the head (32 KiB) has another one: a backslash escapes quotes, cells are not quoted at all,
or they are quoted by `'`. Lines without quotes and backslashes are read alike by all, so they need
not wait for the rest of the head. Excel's first line `sep=;` names the separator and is no row.
"""

import re
from functools import cache, lru_cache
from typing import Final, NamedTuple

from penstock.errors import Poison
from penstock.formats.text.csv_dialect import (
    HEAD_BYTES,
    RFC,
    SEP_LINE,
    TWO_WAYS,
    CsvOptions,
    Dialect,
    Quoting,
    is_any_number,
)
from penstock.formats.text.csv_row_ends import DOUBLED, ESCAPED

DELIMITERS: Final[dict[str, bytes]] = {
    "comma": b",",
    "semicolon": b";",
    "tab": b"\t",
    "pipe": b"|",
}
_ALL: Final = b"".join(DELIMITERS.values())
_OTHERS: Final = (b";", b"\t", b"|")
# A blank line, as `bytes.strip` sees it.
_BLANK_LINE: Final = rb"[ \t\r\x0b\x0c]*+\n"
# While a head has none of these, it is read alike by every grammar.
_SIGNS: Final = (b'"', b"'", b"\\")
# In this order the grammars are tried, until one fits the head.
_QUOTINGS: Final = (
    RFC,
    Quoting(b'"', True),
    Quoting(b""),
    Quoting(b"", True),
    Quoting(b"'"),
    Quoting(b"'", True),
)
# Only writers that escape by a backslash write such a cell, so they are tried first.
_NULL: Final = re.compile(rb"(?m)(?:^|[,;\t|])\\N(?=[,;\t|\r\n])")
_ESCAPED: Final = re.compile(rb"(?s)\\.")
_COMMA_OR_DECIMAL: Final = (
    'with rows.decimal = "," a comma may separate cells or belong to a number here; set '
    "rows.delimiter"
)


_NUMBER_IN_QUOTES: Final = re.compile(rb"""(?m)(?:^|,)["'][-+ ]?\d*,\d""")


@cache
def passed_over(comment: bytes) -> re.Pattern[bytes]:
    """The pattern of the blank lines and comments before the first row."""
    lines = rb"|%b[^\n]*+\n" % re.escape(comment) if comment else b""
    return re.compile(rb"(?:%b%b)*+" % (_BLANK_LINE, lines))


class FinderPatterns(NamedTuple):
    """The patterns of one grammar, of its separators, and of one number of cells."""

    row: re.Pattern[bytes]
    quoted: re.Pattern[bytes]  # a separator, or the row's beginning, and a quoted cell
    rows: re.Pattern[bytes]  # complete rows, blank lines and comments
    unfinished: re.Pattern[bytes]  # the beginning of a row, up to the end of the text


@lru_cache(maxsize=256)
def patterns(
    quoting: Quoting, separators: bytes, width: int, comment: bytes, *, has_nulls: bool = False
) -> FinderPatterns:
    """`width`: the number of cells of each row; 0: any. `has_nulls`: True if a cell without quotes
    has no backslash, except for `\\N`, as databases write it.
    """
    quote, inside = quoting.quote, ESCAPED if quoting.escapes else DOUBLED
    inside = inside.replace(b'"', quote or b'"')
    if quote:
        plain = rb"(?!%b)[^%b\n]*+" % (quote, separators)
        if has_nulls:
            end = separators + rb"\r\n"
            plain = rb"(?:\\N(?=[%b])|(?!%b)[^\\%b\n]*+)" % (end, quote, separators)
        quoted = rb"%b%b%b" % (quote, inside, quote)
        cell = rb"(?:%b(?:\r(?=\n))?+|%b)" % (quoted, plain)
        begun = rb"(?:%b%b(?:%b\r?+)?+\\?+|%b)\Z" % (quote, inside, quote, plain)
    else:
        # A cell that is quoted as a whole shows that there are quotes. Blanks may follow.
        quoted = rb'"[^"%b\n]*+(?:"(?! *+[%b\r\n])[^"%b\n]*+)*+" *+[%b\r\n]' % ((separators,) * 4)
        cell = rb"(?!%b)[^%b\n]*+" % (quoted, separators)
        if quoting.escapes:
            text = rb"[^\\%b\n]*+" % separators
            cell = rb"(?!%b)%b(?:\\[\\%bbfnrtvN0\n]%b)*+" % (quoted, text, separators, text)
        begun = cell + rb"\\?+\Z"
    more = b"{%d}" % (width - 1) if width else b"*+"
    row = rb"%b(?:[%b]%b)%b\n" % (cell, separators, cell, more)
    other = rb"%b[^\n]*+\n|" % re.escape(comment) if comment else b""
    return FinderPatterns(
        row=re.compile(row),
        quoted=re.compile(rb"(\A|[%b])%b" % (separators, quoted)),
        rows=re.compile(rb"(?:%b%b|%b)*+" % (other, row, _BLANK_LINE)),
        unfinished=re.compile(rb"(?:%b[%b])*+%b" % (cell, separators, begun)),
    )


class Finder:
    """Finds the dialect in the head of a file. `is_done`: True if it will not change any more."""

    def __init__(self, options: CsvOptions) -> None:
        self._options = options
        self._decimal = options.decimal.encode()
        self._comment = options.comment.encode() if options.comment else b""
        self._held = bytearray()
        self._given = 0  # so many of the held bytes were given to the reader
        self._plain = 0  # in this many of the held bytes there are no signs
        self._has_signs = False
        self.dialect: Dialect | None = None
        self.is_done = False

    def take(self, data: bytes, *, is_all: bool) -> bytes:
        """Take the next bytes of the file, and return those that can be read in `dialect` now.
        `is_all`: True if no more bytes will come.
        """
        held = self._held
        if not self._has_signs:
            places = [at for at in map(data.find, _SIGNS) if at >= 0]
            self._has_signs = bool(places)
            self._plain = len(held) + min(places, default=len(data))
        held += data
        self.is_done = is_all or len(held) >= HEAD_BYTES
        end = len(held)
        if not self.is_done:
            is_told = self._decimal == b"." or self._options.delimiter != "auto"
            end = held.rfind(b"\n", self._given, self._plain) + 1 if is_told else 0
        if end and (self.dialect is None or (self.is_done and self._has_signs)):
            self._find(bytes(held[: min(end, HEAD_BYTES)]), is_all=is_all and end <= HEAD_BYTES)
        if self.dialect is None:
            return b""
        start, self._given = self._given, max(end, self._given)
        return bytes(memoryview(held)[start:end])

    def _find(self, head: bytes, *, is_all: bool) -> None:
        delimiter = DELIMITERS.get(self._options.delimiter)
        if is_all and not head.endswith(b"\n"):
            head += b"\n"
        match = SEP_LINE.match(head)
        at = 0
        if match is not None:
            if match[1] not in DELIMITERS.values() or delimiter not in (None, match[1]):
                line = match[0].strip().decode(errors="replace")
                known = "rows.delimiter" if delimiter else "comma, semicolon, tab or pipe"
                raise Poison("bad_format", f"the CSV begins with {line}, which is not {known}")
            delimiter, at = match[1], match.end()
            self._given = max(self._given, at)
        first = passed_over(self._comment).match(head, at)
        assert first is not None
        at = first.end()
        if at == len(head) and not (self.is_done or match):
            return  # no row yet
        self.dialect = self._fitting(_CsvHead(head, at, is_all), delimiter)

    def _fitting(self, head: "_CsvHead", delimiter: bytes | None) -> Dialect:
        asked = [quoting for quoting in _QUOTINGS if self._is_asked(quoting)]
        usual = asked[0]
        has_nulls = _NULL.search(head.text, head.start) is not None
        if has_nulls:
            asked.sort(key=lambda quoting: (not quoting.escapes, not quoting.quote))
        if not self._has_signs:
            asked = []
        for quoting in asked:
            separator, width = self._divided(head, quoting, delimiter)
            if self._fits(head, quoting, separator, width, has_nulls=has_nulls):
                break
        else:
            quoting = usual
            separator, _ = self._divided(head, quoting, delimiter)
        has_proof = separator != b"\t" or self._options.quote != "auto" or not quoting.quote
        has_proof = has_proof or head.has_cell_with(quoting.quote, separator)
        return Dialect(separator, self._decimal, self._comment, quoting, has_proof=has_proof)

    def _is_asked(self, quoting: Quoting) -> bool:
        quote, escape = self._options.quote, self._options.escape
        return quote in ("auto", quoting.quote.decode() or "none") and escape in (
            "auto",
            "backslash" if quoting.escapes else "none",
        )

    def _fits(
        self, head: "_CsvHead", quoting: Quoting, separator: bytes, width: int, *, has_nulls: bool
    ) -> bool:
        def has(quoting: Quoting, width: int = width) -> bool:
            return head.has_rows(patterns(quoting, separator, width, self._comment))

        is_database = has_nulls and quoting.escapes and self._options.escape == "auto"
        if not head.has_rows(
            patterns(quoting, separator, width, self._comment, has_nulls=is_database)
        ):
            return False
        begins = head.has_cell_with(quoting.quote or b'"', separator)
        if not quoting.quote:
            # A text in which quotes can be quotes is a table of another width, and has bad rows.
            return self._options.quote == "none" or not begins or not has(RFC, 0)
        if self._options.quote != "auto":
            return True
        if quoting == RFC and separator == b"\t" and begins and has(Quoting(b"")):
            raise Poison("bad_format", TWO_WAYS)
        # If no cell is quoted, the head does not show by which sign.
        return begins or (quoting.quote == b'"' and not has_nulls)

    def _divided(
        self, head: "_CsvHead", quoting: Quoting, delimiter: bytes | None
    ) -> tuple[bytes, int]:
        """The separator, and the number of cells of the first row."""
        of_all = patterns(quoting, _ALL, 0, b"")
        match = of_all.row.match(head.text, head.start)
        row = match[0] if match else head.text[head.start :].partition(b"\n")[0]
        if quoting.quote and quoting.quote in row:
            row = of_all.quoted.sub(rb"\1", row)
        elif quoting.escapes:
            row = _ESCAPED.sub(b"", row)
        separator = delimiter or self._separator(row.strip(b"\r\n"), head)
        return separator, row.count(separator) + 1

    def _separator(self, row: bytes, head: "_CsvHead") -> bytes:
        """The sign that separates the cells of the first row. If the row has commas that are not
        decimal signs, it is the comma; if not, it is the most frequent of the other signs. The
        commas are decimal signs if the configuration says so, or if the most frequent other sign
        divides the row into numbers, as in `1,5;2,5`.
        """
        others = [sign for sign in _OTHERS if sign in row]
        if not others:
            if self._decimal == b".":
                return b","
            if b"," not in row or is_any_number(row):
                return b";"
            if not _NUMBER_IN_QUOTES.search(head.text, head.start):
                raise Poison("bad_format", _COMMA_OR_DECIMAL)
            return b","
        best = max(others, key=row.count)
        if self._decimal == b"." and b"," in row and not all(map(is_any_number, row.split(best))):
            return b","
        return best


class _CsvHead(NamedTuple):
    """`start`: where the first row begins. `is_all`: True if the file ends here."""

    text: bytes
    start: int
    is_all: bool

    def has_rows(self, of: FinderPatterns) -> bool:
        """True if there are only such rows. The last row may be cut."""
        match = of.rows.match(self.text, self.start)
        assert match is not None
        end = match.end()
        if end == len(self.text):
            return True
        return not self.is_all and of.unfinished.match(self.text, end) is not None

    def has_cell_with(self, quote: bytes, separator: bytes) -> bool:
        """True if a cell begins with the quote."""
        text, start = self.text, self.start
        first = text.startswith(quote, start)
        return first or any(text.find(sign + quote, start) >= 0 for sign in (separator, b"\n"))
