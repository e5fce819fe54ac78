"""The parser that waits for the first bytes of an object, and then hands all bytes to another
parser.

Rule: the first bytes decide whether the object is packed. The object's name does not decide this,
because some clients unpack the data on the way. The format is decided by the caller, or by the
first bytes, too. Until the parser is chosen, at most 512 bytes are held, which are a block of a
tar. Owner: one reading of one object.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from penstock.errors import ErrorCode, Poison
from penstock.formats.archives.compression import BZ2_BYTES, GZIP_MAGIC
from penstock.formats.archives.compression import MAGICS as PACKED_MAGICS
from penstock.formats.base.format import WantsRanges
from penstock.formats.base.parser_chain import Parser, feed_whole
from penstock.formats.base.runs import Run
from penstock.formats.magic import (
    CERTAIN,
    NO_TEXT,
    TEXT_BYTES,
    TEXTS,
    named_by_magic,
    named_text,
    no_such,
)

BOM = b"\xef\xbb\xbf"
# The byte order marks of UTF-16, and of UTF-32 with its low byte first. A text in UTF-8 never has
# these bytes.
_OTHER_BOMS = (b"\xff\xfe", b"\xfe\xff")
# Where NUL bytes (1) are at the beginning of text in UTF-16 or UTF-32 without a byte order mark.
_WIDE = (b"\0\1", b"\1\0", b"\1\1\1\0")
_ZEROS = b"\1" + bytes(255)
# A text in UTF-8 never begins like this.
_NO_UTF8 = (*_OTHER_BOMS, GZIP_MAGIC, *NO_TEXT)
_MAGICS = (GZIP_MAGIC, BOM, *_NO_UTF8, *PACKED_MAGICS)


class Chosen(NamedTuple):
    """The chosen parser. `is_text`: True if a byte order mark is taken off first."""

    parser: Parser
    is_text: bool = False


# A function of the first bytes. If they are packed data, it returns another function, which puts
# the parser of packed data around the parser of the content. If they are not packed, it returns
# None.
Unpack = Callable[[bytes], Callable[[Parser], Parser] | None]


@dataclass
class SniffingParser:
    """Waits for the first bytes. `choose`: a function that chooses the parser by these bytes.

    `unpack`: a function that recognises packed data; None: packed data is left as it is. `choose`
    is called when `head_bytes` bytes have come; if the data is packed, it is called when
    `inside_bytes` bytes were unpacked. If this number is 0, `choose` is called as soon as it is
    known whether the bytes are packed. `check_empty`: a function that raises `Poison` if there may
    not be no bytes; it is told whether they were unpacked. `empty_is_settled`: True if a parser is
    chosen even for no bytes. `step_bytes` and `damage` are those of `Parser`; these values are used
    until the parser is chosen.
    """

    choose: Callable[[bytes], Chosen]
    head_bytes: int
    inside_bytes: int
    unpack: Unpack | None
    step_bytes: int
    damage: ErrorCode
    check_empty: Callable[[bool], None]
    empty_is_settled: bool = False
    inside_packed: bool = False
    _head: bytes = field(default=b"", init=False)
    _parser: Parser | None = field(default=None, init=False)

    def feed(self, data: bytes) -> Iterator[Run]:
        parser = self._parser
        if parser is None:
            data = self._head + data
            most_bytes = self.head_bytes or TEXT_BYTES
            if len(data) < most_bytes and (self.head_bytes or is_open(data)):
                self._head = data
                return
            parser, data = self._settle(data)
        yield from parser.feed(data)

    def whole(self, data: bytes) -> Iterator[Run]:
        if data:
            yield from feed_whole(*self._settle(data))

    def close(self) -> Iterator[Run]:
        parser = self._parser
        if parser is None:
            if not self._head:
                self.check_empty(self.inside_packed)
                if not self.empty_is_settled:
                    return
            parser, data = self._settle(self._head)
            yield from parser.feed(data)
        yield from parser.close()

    def _settle(self, head: bytes) -> tuple[Parser, bytes]:
        """Chooses the parser. Returns the parser, and the bytes to feed it."""
        wrap = self.unpack(head) if self.unpack is not None else None
        if wrap is not None:
            if self.inside_packed:
                raise Poison(self.damage, "packed data in packed data is not read; pack it once")
            inside = replace(self, head_bytes=self.inside_bytes, inside_packed=True)
            parser = wrap(inside)
        else:
            # Whatever the size of the chunks, `choose` gets the same first bytes.
            try:
                shown = head[: self.head_bytes or TEXT_BYTES]
                parser, is_text = self.choose(shown.removeprefix(BOM))
            except WantsRanges as wants:
                if self.inside_packed:
                    raise not_as_stream(wants.format.name) from None
                raise
            if is_text:
                head = head.removeprefix(BOM)
        self._parser = parser
        self.step_bytes, self.damage = parser.step_bytes, parser.damage
        return parser, head


def is_open(head: bytes) -> bool:
    """True if further bytes may still show that the data is packed, begins with a byte order mark,
    is UTF-16, or is no text of rows. If it is False, the parser is chosen at once, so that these
    bytes are read even if no more bytes come.
    """
    if head.startswith(b"\0"):
        return True
    if head.startswith(b"BZh"):
        return len(head) < BZ2_BYTES
    text = head.removeprefix(BOM)
    begin = text.lstrip().lower()
    zeros = text[:4].translate(_ZEROS)
    is_wide = any(wide.startswith(zeros) for wide in _WIDE)
    is_magic = any(magic.startswith((head, text)) for magic in _MAGICS)
    return is_wide or is_magic or any(foreign.startswith(begin) for foreign in TEXTS)


def not_as_stream(format: str) -> Poison:
    """The error for data in a format that is read by ranges, if the data is packed or is a member
    of an archive.
    """
    return Poison(
        "bad_format",
        f"{format} is read by its parts, so it cannot be inside gzip data or an archive; store it "
        "as an object of its own (it has its own compression)",
    )


def check_text(format: str, head: bytes) -> None:
    """Raises `Poison` if the first bytes cannot be text in UTF-8, or, unless any text is wanted, if
    they are those of a text that is certainly neither CSV nor JSON.
    """
    if head.startswith(_OTHER_BOMS):
        raise Poison("bad_format", "the text is UTF-16 or UTF-32; write it as UTF-8")
    if head.startswith(_NO_UTF8):
        magic = next(filter(head.startswith, _NO_UTF8))
        # The error shows only the magic, and not all first bytes, because the number of first bytes
        # depends on whether there was a byte order mark.
        raise no_such(f"text, as {format} is", magic)
    named = named_text(head) if format != "text" else None
    if named is None and head.startswith(b"\0"):
        named = named_by_magic(head)
    if named is not None:
        raise Poison("bad_format", named)
    if head[:4].translate(_ZEROS).startswith(_WIDE):
        said = "is UTF-16 or UTF-32 without a byte order mark, or no text at all"
        raise Poison("bad_format", f"the text has NUL bytes: it {said}; write it as UTF-8")


def sniff_text(head: bytes) -> str:
    """The format of a text, if no format has recognised its first bytes. Raises `Poison` for binary
    data.
    """
    named = named_text(head)
    if named is not None:
        raise Poison("bad_format", named)
    if b"\0" in head or head.startswith(CERTAIN):
        unknown = (
            "binary data of an unknown format, or text in UTF-16; known: csv, ndjson, json, tar"
        )
        raise Poison("bad_format", named_by_magic(head) or unknown)
    # A JSON text sequence (RFC 7464) begins with the sign 1e.
    return "json" if head.lstrip(b" \t\r\n\x1e")[:1] in (b"[", b"{") else "csv"
