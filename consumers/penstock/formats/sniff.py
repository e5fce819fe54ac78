"""What the first bytes of an object tell: whether they may still begin something else, and whether
they are a text of rows.
"""

from penstock.errors import Poison
from penstock.formats.archives.unpacking import BZ2_BYTES, GZIP_MAGIC
from penstock.formats.archives.unpacking import MAGICS as PACKED_MAGICS
from penstock.formats.first_bytes import (
    CERTAIN,
    NO_TEXT,
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
