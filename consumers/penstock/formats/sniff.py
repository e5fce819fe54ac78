"""Recognises an object by its first bytes, then hands all bytes to the right parser.

Rule: for compression the content counts, not the name (some clients inflate on the way). The format
comes from the caller, else from the content. Until it is known at most one tar block is held.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from penstock.errors import ErrorCode, Poison
from penstock.formats.archives.codecs import LONGEST_MAGIC_BYTES
from penstock.formats.archives.codecs import MAGICS as PACKED_MAGICS
from penstock.formats.archives.compression import GZIP_MAGIC
from penstock.formats.base.format import WantsRanges
from penstock.formats.base.parser_chain import Parser, feed_whole
from penstock.formats.base.runs import Run
from penstock.formats.magic import CERTAIN, NO_TEXT, named_by_magic, no_such

BOM = b"\xef\xbb\xbf"
# UTF-16, and UTF-32 with its low byte first. No UTF-8 text has these bytes.
_OTHER_BOMS = (b"\xff\xfe", b"\xfe\xff")


# Data that begins so is not UTF-8 text.
_NO_UTF8 = (*_OTHER_BOMS, GZIP_MAGIC, *NO_TEXT)
_MAGICS = (GZIP_MAGIC, BOM, *_NO_UTF8, *PACKED_MAGICS)


class Chosen(NamedTuple):
    """The chosen parser. `is_text`: a byte order mark is removed."""

    parser: Parser
    is_text: bool = False


# Looks at the first bytes of data. If it is packed, returns a function that puts the parser of
# packed data around the parser of the content; else None.
Unpack = Callable[[bytes], Callable[[Parser], Parser] | None]


@dataclass
class SniffingParser:
    """Waits for the first bytes; `choose` names the parser for them.

    `step_bytes` and `damage` hold until the content is known. `unpack` recognises packed data; None
    leaves such data as it is. The choice waits for `head_bytes`, in unpacked data for
    `inside_bytes`; if 0, only for as many as tell whether the data is packed. `empty_is_settled`: a
    parser is chosen even if there are no bytes at all.
    """

    choose: Callable[[bytes], Chosen]
    head_bytes: int
    inside_bytes: int
    unpack: Unpack | None
    step_bytes: int
    damage: ErrorCode
    empty_is_settled: bool = False
    inside_packed: bool = False
    _head: bytes = field(default=b"", init=False)
    _parser: Parser | None = field(default=None, init=False)

    def feed(self, data: bytes) -> Iterator[Run]:
        parser = self._parser
        if parser is None:
            data = self._head + data
            most_bytes = self.head_bytes or LONGEST_MAGIC_BYTES
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
            if not (self._head or self.empty_is_settled):
                return
            parser, data = self._settle(self._head)
            yield from parser.feed(data)
        yield from parser.close()

    def _settle(self, head: bytes) -> tuple[Parser, bytes]:
        """The parser, and the bytes to feed it."""
        wrap = self.unpack(head) if self.unpack is not None else None
        if wrap is not None:
            if self.inside_packed:
                raise Poison(self.damage, "packed data in packed data is not read; pack it once")
            inside = replace(self, head_bytes=self.inside_bytes, inside_packed=True)
            parser = wrap(inside)
        else:
            # Only these first bytes are shown, so that chunks of any size give the same choice.
            try:
                shown = head[: self.head_bytes or LONGEST_MAGIC_BYTES]
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
    """Could more bytes still show that the data is packed, or begins with a byte order mark? If
    not, the bytes go on at once, as they may be all that comes before the data breaks off.
    """
    is_bz2 = head.startswith(b"BZh") and len(head) < LONGEST_MAGIC_BYTES
    text = head.removeprefix(BOM)
    return is_bz2 or any(magic.startswith((head, text)) for magic in _MAGICS)


def not_as_stream(format: str) -> Poison:
    return Poison(
        "bad_format",
        f"{format} is read by its parts, so it cannot be inside gzip data or an archive; store it "
        "as an object of its own (it has its own compression)",
    )


def check_text(format: str, head: bytes) -> None:
    """Raises `Poison` if the first bytes cannot be UTF-8."""
    magic = next(filter(head.startswith, _NO_UTF8), None)
    if magic in _OTHER_BOMS:
        raise Poison("bad_format", "the text is UTF-16 or UTF-32; write it as UTF-8")
    if magic is not None:  # alone, as behind a byte order mark fewer bytes may be known
        raise no_such(f"text, as {format} is", magic)


def sniff_text(head: bytes) -> str:
    if b"\0" in head or head.startswith(CERTAIN):
        unknown = "binary data of an unknown format; known: csv, ndjson, json, tar"
        raise Poison("bad_format", named_by_magic(head) or unknown)
    return "json" if head.lstrip()[:1] in (b"[", b"{") else "csv"
