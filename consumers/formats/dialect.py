"""How a CSV separates its cells and writes its numbers: found once, by the first line.

Rule: text of another dialect becomes comma-and-point text by exchanging bytes one for one, before
anything else looks at it, and is exchanged back where it is kept or shown as text. So there is one
reader, and text that has commas and points already passes as it is. Owner: the CSV parser.
"""

import re
from typing import Final, Literal

Delimiter = Literal["auto", "comma", "semicolon", "tab", "pipe"]
Decimal = Literal[".", ","]

DELIMITERS: Final[dict[str, bytes]] = {
    "comma": b",",
    "semicolon": b";",
    "tab": b"\t",
    "pipe": b"|",
}
_OTHERS: Final = (b";", b"\t", b"|")
# As numbers, which are found without the exception that bytes of one byte cost.
_COMMA, _SEMICOLON, _TAB, _PIPE = b",;\t|"
# A first line longer than this is judged by its beginning.
LOOK_BYTES: Final = 64 << 10
# In no text file, and neither blank nor part of a number for any reader of ours: it stands where a
# comma or a point was that means neither.
_ASIDE: Final = b"\x1f"
_QUOTED: Final = re.compile(rb'"[^"]*"')
_NUMBER: Final = re.compile(rb"\s*[+-]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][+-]?\d+)?\s*")


class Dialect:
    """`read` every chunk, then `close`; `back` undoes the exchange for a piece of text."""

    def __init__(self, delimiter: Delimiter, decimal: Decimal, comment: str | None) -> None:
        self._decimal = decimal.encode()
        self._comment = comment.encode() if comment else b""
        self._table: bytes | None = None
        self._back: bytes | None = None
        # What a line of comment is, newline included, once the exchange is done.
        self.comments: re.Pattern[bytes] | None = None
        self._held = b""
        self._settled = False
        if delimiter != "auto":
            self._settle(DELIMITERS[delimiter])

    def read(self, data: bytes) -> bytes:
        """The text for the reader; nothing while the first line is not complete."""
        if not self._settled:
            data = self._held + data
            line = self._first_line(data)
            if line is None:
                self._held = data
                return b""
            self._held = b""
            self._settle(self._find(line))
        return data if self._table is None else data.translate(self._table)

    def close(self) -> bytes:
        """What is held of an object of less than a line."""
        if self._settled or not self._held:
            return b""
        data, self._held = self._held, b""
        self._settle(self._find(data))
        return data if self._table is None else data.translate(self._table)

    def back(self, text: bytes) -> bytes:
        return text if self._back is None else text.translate(self._back)

    def _first_line(self, data: bytes) -> bytes | None:
        """The first line that is neither blank nor a comment; None: more must come first."""
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            line = data[start:end]
            if line.strip() and not (self._comment and line.startswith(self._comment)):
                return line
            start = end + 1
        return data[start:] if len(data) >= LOOK_BYTES else None

    def _find(self, line: bytes) -> bytes:
        """A comma wins where there is one, unless only another one leaves nothing but numbers, as
        in `1,5;2,5`. Of several others the most frequent one.
        """
        bare = _QUOTED.sub(b"", line) if b'"' in line else line
        others = [sign for sign in _OTHERS if sign in bare]
        if not others:
            return b"," if self._decimal == b"." else b";"
        best = max(others, key=bare.count)
        if self._decimal == b"." and b"," in bare and not all(map(_is_number, bare.split(best))):
            return b","
        return best

    def _settle(self, delimiter: bytes) -> None:
        self._settled = True
        if delimiter != b"," or self._decimal != b".":
            ours = delimiter + self._decimal
            # One of the two signs is not ours, and one of ours is none of the two: a circle, as `;`
            # to `,` to aside to `;`, so that it can be undone.
            left_out = bytes(sign for sign in b",." if sign not in ours)
            freed = bytes(sign for sign in ours if sign not in b",.")
            before, after = ours + left_out + _ASIDE, b",." + _ASIDE + freed
            self._table = bytes.maketrans(before, after)
            self._back = bytes.maketrans(after, before)
        if self._comment:
            comment = self._comment if self._table is None else self._comment.translate(self._table)
            self.comments = re.compile(rb"(?m)^%b.*\n" % re.escape(comment))


def _is_number(cell: bytes) -> bool:
    return _NUMBER.fullmatch(cell) is not None


def is_decimal_comma(cell: bytes) -> bool:
    """Would another `rows.decimal` make a number of this cell?"""
    return b"," in cell and _is_number(cell)


# Of nearly all files. It has no state: one for all of them.
COMMON: Final = Dialect("comma", ".", None)


def dialect_of(delimiter: Delimiter, decimal: Decimal, comment: str | None, head: bytes) -> Dialect:
    """`COMMON` where the options or the first line leave no doubt: the others cost some 2 us."""
    if decimal == "." and comment is None:
        if delimiter == "comma":
            return COMMON
        line = head[: head.find(b"\n") + 1]
        if (
            delimiter == "auto"
            and _COMMA in line
            and not (_SEMICOLON in line or _TAB in line or _PIPE in line)
        ):
            return COMMON
    return Dialect(delimiter, decimal, comment)
