"""What the first bytes of an object tell: how it is packed, whether it is a text of rows, and, for
error texts, what it is if it is not what it should be.

Rule: the names of foreign data do not decide which reader is chosen; the brands of ISO media files
do. `named_by_magic` is asked only about binary data, because `ORC` may be the first cell of a CSV;
`named_text` tells what is certainly neither CSV nor JSON.
"""

import re
from codecs import utf_8_decode
from typing import Final, Literal

from penstock.errors import ErrorCode, Poison

# How packed data begins, and by what it is packed. A skippable frame is the same for zstd and lz4;
# the frame behind it tells which of the two it is.
SKIPPABLE: Final = "zstd or lz4"
_GZIP: Final = b"\x1f\x8b"
_PACKED: Final[dict[bytes, str]] = {
    _GZIP: "gzip",
    b"BZh": "bz2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    **{bytes([first]) + b"\x2a\x4d\x18": SKIPPABLE for first in range(0x50, 0x60)},
}
_PACKED_MAGICS: Final = tuple(_PACKED)
# The magic of bzip2 has three letters and could be a word, so the bytes behind it are checked, too.
# First comes the level, which is one digit. Then come the digits of pi, or the digits of pi's
# square root if the file is empty.
_BZ2_BLOCKS: Final = (b"1AY&SY", b"\x17rE8P\x90")
_BZ2_BYTES: Final = 10


def packed_by(head: bytes) -> str | None:
    """By what the data is packed; None: it is not packed."""
    if not head.startswith(_PACKED_MAGICS):
        return None
    name = next(name for magic, name in _PACKED.items() if head.startswith(magic))
    return None if name == "bz2" and head[4:10] not in _BZ2_BLOCKS else name


def may_be_packed(begin: bytes) -> bool:
    """True if these few bytes may be the beginning of packed data."""
    return bool(begin) and any(magic.startswith(begin) for magic in _PACKED)


# Archives and packed data. Even a model that takes any bytes does not want them: other archives are
# opened, and other packed data is unpacked.
_CONTAINERS: Final[dict[bytes, str]] = {
    b"7z\xbc\xaf\x27\x1c": "7-Zip",
    b"Rar!\x1a\x07": "RAR",
    b"!<arch>\n": "an archive of ar (as .deb and .a)",
    b"\xc7\x71": "cpio",
    b"PK\x07\x08": "a part of a zip that was split",
    b"MSCF\0\0": "a cabinet file (CAB)",
    b"xar!\0": "xar (as .pkg)",
    b"\x1f\x9d": "packed by compress (.Z)",
    b"\x1f\xa0": "packed by compress (.Z)",
    b"LZIP\x01": "packed by lzip",
    b"\x89LZO\0\r\n": "packed by lzop",
    b"\x5d\0\0": "packed by lzma (.lzma), not xz",
    b"\xff\x06\0\0sNaPpY": "packed by snappy",
    b"\x02\x21\x4c\x18": "packed by an old lz4",
    **{bytes([old]) + b"\xb5\x2f\xfd": "packed by an old zstd" for old in range(0x22, 0x28)},
    b"Salted__": "encrypted by OpenSSL",
    b"age-encryption.org/": "encrypted by age",
}
# Any data may begin with two or three bytes by chance.
_CERTAIN_CONTAINERS: Final = tuple(magic for magic in _CONTAINERS if len(magic) > 3)
_FOREIGN: Final[dict[bytes, str]] = {
    **_CONTAINERS,
    b"ORC": "ORC",
    b"PARE": "Parquet with an encrypted footer",
    b"FEA1": "Feather of version 1",
    b"\x89HDF\r\n": "HDF5",
    **{b"CDF" + bytes([kind]): "NetCDF" for kind in (1, 2, 5)},
    b"\x0e\x03\x13\x01": "HDF4",
    b"GRIB": "GRIB",
    b"MATLAB 5.0 MAT": "a file of MATLAB",
    **{b"RDX%d\n" % kind: "a file of R" for kind in (2, 3)},
    b"$FL2": "a file of SPSS",
    b"RIFF": "RIFF (as AVI)",
    b"%PDF": "PDF",
    b"SQLite format 3\x00": "SQLite",
    b"\xd0\xcf\x11\xe0": "an old Office document (xls)",
    **{b"\x80" + bytes([kind]): "a Python pickle" for kind in (2, 3, 4, 5)},
    b"GGUF": "a model (GGUF)",
    b"LASF": "LAS (points of a laser scanner)",
    b"\0\0\x27\x0a": "a shapefile",
    b"\x7fELF": "a program (ELF)",
    b"MZ": "a program (of Windows)",
    b"\xca\xfe\xba\xbe": "a class of Java",
    b"\0asm": "WebAssembly",
}
# Texts in lower case that stand where an object should be. None of them begins a CSV or JSON.
_PLACEHOLDERS: Final[dict[bytes, str]] = {
    b"version https://git-lfs": "a pointer of Git LFS, and not the file; upload the file itself, "
    "after git lfs pull",
    b"/annex/objects/": "a pointer of git-annex, and not the file; upload the file itself",
}
_TEXTS: Final[dict[bytes, str]] = {
    **_PLACEHOLDERS,
    b"<!doctype html": "an HTML page, perhaps of an error or a login; store the data itself",
    b"<html": "an HTML page, perhaps of an error or a login; store the data itself",
    b"<table": "a table in HTML, as of an export for spreadsheets; store its cells as csv",
    b"<error>": "the XML of an error, perhaps of a store; store the data itself",
    b"<?xml": "XML, perhaps the error of a store; store the data itself, as csv or json",
    b"{\\rtf": "RTF; store its text as csv or json",
    b"-----begin ": "PEM or PGP, which is not read here; store the data itself",
}
TEXT_BYTES: Final = 32
# The portable formats of cpio begin with numbers of a fixed length in octal or hexadecimal digits.
_CPIO: Final = re.compile(rb"0707(?:07[0-7]{69}|0[12][0-9A-Fa-f]{104})[^\0]+\0")
# A quick look, because each text is looked at.
_NO_ROWS: Final = re.compile(rb"\s*+(?:<|version |/annex|\{\\|-----|0707)", re.IGNORECASE)
# Confluent's registry numbers its schemas from 1 on. This many are more than any registry has.
_MOST_SCHEMAS: Final = 1 << 24
RAW: Final = "a raw picture of a camera"
_FOREIGN_PICTURES: Final[dict[bytes, str]] = {
    b"\xff\x0a": "JPEG XL",
    b"\0\0\0\x0cJXL \r\n\x87\n": "JPEG XL",
    b"\0\0\0\x0cjP  \r\n\x87\n": "JPEG 2000",
    b"\xff\x4f\xff\x51": "JPEG 2000",
    b"II\xbc\x01": "JPEG XR",
    b"8BPS\0": "a PSD of Photoshop",
    b"gimp xcf": "an XCF of GIMP",
    b"\0\0\x01\0": "an icon (ICO)",
    b"icns": "an icon (ICNS)",
    b"v/1\x01": "OpenEXR",
    b"#?RADIANCE": "Radiance HDR",
    b"DDS |": "DDS",
    b"qoif": "QOI",
    b"SIMPLE  =": "FITS",
    **{b"P%d\n" % kind: "a Netpbm picture" for kind in range(1, 8)},
    b"<svg": "SVG",
    b"<?xml": "XML (as SVG)",
    **dict.fromkeys((b"IIU\0", b"IIRO\x08", b"IIRS\x08", b"FUJIFILMCCD-RAW", b"\0MRM"), RAW),
}
# DICOM begins with 128 bytes that mean nothing (DICOM PS3.10, 7.1).
_DICOM: Final = slice(128, 132)
# For each beginning of data: the name that people use for such data, and the format that reads it.
_OURS: Final[dict[bytes, tuple[str, str]]] = {
    b"\x89PNG\r\n\x1a\n": ("a PNG", "image"),
    b"\xff\xd8\xff": ("a JPEG", "image"),
    b"II*\0": ("a TIFF", "image"),
    b"MM\0*": ("a TIFF", "image"),
    b"PAR1\x15": ("Parquet", "parquet"),
    b"ARROW1\0\0": ("an Arrow file", "arrow"),
    b"\xff\xff\xff\xff": ("an Arrow stream", "arrow"),
    b"Obj\x01": ("Avro", "avro"),
    b"\x93NUMPY": ("npy", "npy"),
    b"PK\x03\x04": ("a zip or an Excel workbook (.xlsx)", "zip"),
    b"\x1a\x45\xdf\xa3": ("a Matroska or WebM video", "video"),
    # The following beginnings are possible in texts, too.
    b"GIF8": ("a GIF", "image"),
    b"fLaC": ("FLAC", "audio"),
    b"OggS": ("Ogg", "audio"),
    b"[": ("JSON", "json"),
    b"{": ("JSON", "ndjson"),
}
# For error texts: the three things that decide an object's format. The first of them that is set
# counts.
_MEND: Final = '"format" of its reference, rows.format, or its name'
_SHOWN_BYTES: Final = 16


def _is_binary(magic: bytes) -> bool:
    """True if these bytes are not UTF-8, or if there are control characters among them."""
    return not magic.isascii() or any(byte < 9 for byte in magic)


# Data that begins like this is certainly not text.
_CERTAIN: Final = (
    *filter(_is_binary, _FOREIGN),
    b"%PDF-1.",
    b"!<arch>\n",
    b"Salted__",
    b"age-encryption.org/",
)
# A text in UTF-8 never begins with one of these. They come from the tables of what is read and of
# what is not.
_NO_TEXT: Final = (*filter(_is_binary, _OURS), *filter(_is_binary, _FOREIGN))

# An ISO base media file (ISO/IEC 14496-12) is a picture, a film or a sound; its brands tell which.
# Pictures: HEIF (ISO/IEC 23008-12) with HEIC and its other codecs, and AVIF. Sounds: those of
# iTunes and Flash.
_HEIF: Final = (
    b"mif1 mif2 mif3 msf1 miaf heic heix heim heis hevc hevx hevm hevs "
    b"avci avcs vvic vvis evbi evbs jpeg jpgs j2ki j2is"
)
_AVIF: Final = b"avif avis avio"
# Canon's raw pictures (CR3). The films in them are small copies of the picture.
_CANON_RAW: Final = b"crx "
_PICTURES: Final = frozenset((*_HEIF.split(), *_AVIF.split(), _CANON_RAW))
_SOUNDS: Final = (b"M4A ", b"M4B ", b"M4P ", b"F4A ", b"F4B ")
_ISO_MEDIA: Final = {"image": "a HEIC or AVIF", "audio": "an M4A", "video": "an MP4 or MOV"}


def iso_media(head: bytes) -> Literal["image", "audio", "video"] | None:
    """What an ISO base media file holds, by its brands. None: this is no such file, or it names no
    brands. Films never name the brand of a picture, so a picture may have it at any place.
    """
    brands = _brands(head)
    if not brands:
        return None
    if brands[0] in _SOUNDS:
        return "audio"
    return "video" if _PICTURES.isdisjoint(brands) else "image"


def iso_picture(head: bytes) -> Literal["HEIC", "AVIF"] | None:
    """The kind of picture that an ISO base media file holds; None: none that is read."""
    brands = _brands(head)
    if not brands or iso_media(head) != "image" or brands[0] == _CANON_RAW:
        return None
    return "HEIC" if set(_AVIF.split()).isdisjoint(brands) else "AVIF"


def _brands(head: bytes) -> tuple[bytes, ...]:
    """The file's own brand, then those of readers that can read it, too."""
    if head[4:8] != b"ftyp":
        return ()
    box = head[: int.from_bytes(head[:4], "big")]
    return (box[8:12], *(box[at : at + 4] for at in range(16, len(box), 4)))


def named_by_magic(head: bytes) -> str | None:
    """The name of binary data, for people; None if its first bytes do not tell."""
    for magic, name in _FOREIGN.items():
        if head.startswith(magic):
            return f"this is {name}, which is not read here; write csv, ndjson, json or tar"
    names = [name for magic, name in _FOREIGN_PICTURES.items() if head.startswith(magic)]
    if head[_DICOM] == b"DICM":
        names = ["DICOM"]
    elif _brands(head)[:1] == (_CANON_RAW,):
        names = [RAW]
    if names:
        return f"this is {names[0]}, which is not read here; write JPEG or PNG"
    if head[4:10] == b'\0\0\0\0{"':
        return "this is safetensors, which is not read here; write npy or Parquet"
    schema = int.from_bytes(head[1:5], "big")
    if head[:1] == b"\0" and 0 < schema < _MOST_SCHEMAS and not _brands(head):
        return (
            f"this is the message of a topic with a schema registry (schema {schema}), and no "
            "file; write what the message holds as Avro, Parquet or JSON"
        )
    return None


def named_text(head: bytes) -> str | None:
    """What a text is that is neither CSV nor JSON; None: it may be one of them. cpio is a text by
    its first bytes, too.
    """
    if _NO_ROWS.match(head) is None:
        return None
    begin = head[:TEXT_BYTES].lstrip().lower()
    for beginning, name in _TEXTS.items():
        if begin.startswith(beginning):
            return f"this is {name}"
    return "this is cpio, which is not read here; write tar" if _CPIO.match(head) else None


def named_container(head: bytes) -> str | None:
    """What archive or packed data this is that is not read, or which pointer to the real object;
    None: the data may be an object of any kind.
    """
    begin = head[:TEXT_BYTES].lower()
    if head.startswith(_CERTAIN_CONTAINERS):
        return named_by_magic(head)
    if begin.startswith(tuple(_PLACEHOLDERS)) or _CPIO.match(head):
        return named_text(head)
    return None


def no_such(what: str, head: bytes | None, code: ErrorCode = "bad_format") -> Poison:
    """The error, with advice, for an object that should be `what`, such as "tar archive", but does
    not begin like one. `head`: the object's first bytes, which the error shows. It is None if their
    number depends on how the bytes arrived, because an object must get the same text each time.
    """
    seen = f"correct its format ({_MEND})" if head is None else _seen(head)
    return Poison(code, f"this is no {what}: {seen}")


def _seen(head: bytes) -> str:
    start = head.lstrip()
    text = named_text(head)
    if text is not None:
        return text
    for magic, (name, ours) in _OURS.items():
        if start.startswith(magic):
            return f'it begins as {name} does; read it as "{ours}" ({_MEND})'
    if not start:
        return "there is nothing in it"
    known = named_by_magic(head)
    if known is not None:
        return known
    format = iso_media(head)
    if format is not None:
        return f'it begins as {_ISO_MEDIA[format]} does; read it as "{format}" ({_MEND})'
    begun = _decoded(start[:_SHOWN_BYTES])
    shown = None if begun is None else " ".join(begun.split())
    if shown is not None and shown.isprintable():
        return f'it is text and begins with "{shown}"; read it as "csv" or "text" ({_MEND})'
    begin = start[:_SHOWN_BYTES].hex(" ")
    return f"it begins with {begin}; write it again, or correct its format ({_MEND})"


def is_text(head: bytes) -> bool:
    """True if these bytes are UTF-8. The last character may be cut."""
    return b"\0" not in head and _decoded(head) is not None


def _decoded(begin: bytes) -> str | None:
    """The text of these bytes; a last character that is cut is left out. None: the bytes are
    binary.
    """
    try:
        return utf_8_decode(begin, "strict", False)[0]
    except UnicodeDecodeError:
        return None


BOM = b"\xef\xbb\xbf"
# The byte order marks of UTF-16, and of UTF-32 with its low byte first. A text in UTF-8 never has
# these bytes.
_OTHER_BOMS = (b"\xff\xfe", b"\xfe\xff")
# Where NUL bytes (1) are at the beginning of text in UTF-16 or UTF-32 without a byte order mark.
_WIDE = (b"\0\1", b"\1\0", b"\1\1\1\0")
_ZEROS = b"\1" + bytes(255)
# A text in UTF-8 never begins like this.
_NO_UTF8 = (*_OTHER_BOMS, _GZIP, *_NO_TEXT)
_MAGICS = (BOM, *_NO_UTF8, *_PACKED)


def is_open(head: bytes) -> bool:
    """True if further bytes may still show that the data is packed, begins with a byte order mark,
    is UTF-16, or is no text of rows. If it is False, the parser is chosen at once, so that these
    bytes are read even if no more bytes come.
    """
    if head.startswith(b"\0"):
        return True
    if head.startswith(b"BZh"):
        return len(head) < _BZ2_BYTES
    text = head.removeprefix(BOM)
    begin = text.lstrip().lower()
    zeros = text[:4].translate(_ZEROS)
    is_wide = any(wide.startswith(zeros) for wide in _WIDE)
    is_magic = any(magic.startswith((head, text)) for magic in _MAGICS)
    return is_wide or is_magic or any(foreign.startswith(begin) for foreign in _TEXTS)


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
        message = "is UTF-16 or UTF-32 without a byte order mark, or no text at all"
        raise Poison("bad_format", f"the text has NUL bytes: it {message}; write it as UTF-8")


def sniff_text(head: bytes) -> str:
    """The format of a text, if no format has recognised its first bytes. Raises `Poison` for binary
    data.
    """
    named = named_text(head)
    if named is not None:
        raise Poison("bad_format", named)
    if b"\0" in head or head.startswith(_CERTAIN):
        unknown = (
            "binary data of an unknown format, or text in UTF-16; known: csv, ndjson, json, tar"
        )
        raise Poison("bad_format", named_by_magic(head) or unknown)
    # A JSON text sequence (RFC 7464) begins with the sign 1e.
    return "json" if head.lstrip(b" \t\r\n\x1e")[:1] in (b"[", b"{") else "csv"
