"""Reads the kind and the size of a picture from its header, without decoding the picture.

Rule: no memory is taken for the size that the header claims. Pure. Layouts: PNG (W3C, 11.2.2), JPEG
(ITU T.81, B.2.2), GIF89a, BMP (Windows DIB, OS/2), WebP (RFC 9649), TIFF 6.0, BigTIFF, HEIC and
AVIF (ISO 23008-12, 6.5.3 and 9.3).
"""

import struct
from collections.abc import Iterator

from penstock.formats.first_bytes import RAW, iso_picture, no_such
from penstock.formats.runs import BadRow

# Markers of a frame (T.81, table B.1): all from C0 to CF, except for C4 (Huffman tables), C8
# (reserved) and CC (arithmetic conditioning).
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# What is not followed by a length: TEM, the restarts, the start of the image, and a 0, which says
# that this is no marker.
_LONE = frozenset({0x00, 0x01, *range(0xD0, 0xD9)})
# TIFF and BigTIFF, in both orders of bytes.
_MM_BIG_TIFF = b"MM\0+"
_TIFFS = (b"II*\0", b"MM\0*", b"II+\0", _MM_BIG_TIFF)
_TIFF_SUBFILE, _TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_DNG = 254, 256, 257, 50706
_TIFF_NUMBERS = {1: "B", 3: "H", 4: "I", 16: "Q"}
_CR2 = b"CR"  # stands behind the head of Canon's older raw pictures
# The sizes of the header of OS/2 1, of Windows, and of OS/2 2, which may be cut to 16 bytes.
_BMP_HEADERS = frozenset(struct.pack("<I", size) for size in (12, 16, 40, 52, 56, 64, 108, 124))
# So much of the data an error may look at, to name what it is.
_HEAD_BYTES = 512


def kind_of(head: bytes) -> str | None:
    """The kind of the picture, by its first bytes: 18, or if they begin an ISO media file, all its
    brands. None: pictures of this kind are not read, or it is not a picture.
    """
    if head.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "WebP"
    if head.startswith(_TIFFS):
        return "TIFF"
    # The two letters alone are not enough to recognise a BMP, so the size of its second header
    # must be one that there is, too.
    if head.startswith(b"BM") and head[14:18] in _BMP_HEADERS:
        return "BMP"
    return iso_picture(head)


def look_at(data: bytes) -> tuple[str, int, int]:
    """The kind, width and height of a picture. Raises `BadRow` if the data is not a picture, or if
    it ends before the picture's size.
    """
    kind = kind_of(data)
    if kind is None:
        raise BadRow(
            str(no_such("JPEG, PNG, WebP, TIFF, BMP, GIF, HEIC or AVIF", data[:_HEAD_BYTES]))
        )
    try:
        width, height = _SIZES[kind](data)
    except (struct.error, IndexError, ValueError, OverflowError):
        raise BadRow(f"the {kind} ends before it tells its size") from None
    if width <= 0 or height <= 0:
        raise BadRow(f"the {kind} is {width} x {height} pixels")
    return kind, width, height


def check_shown(kind: str, data: bytes) -> None:
    """Raises `BadRow` if Pillow would give another picture than the one that the file is for."""
    if kind == "AVIF" and next(_properties(data, b"clap"), None) is not None:
        raise BadRow("the AVIF says that it is to be cropped (clap), which is not read; crop it")
    if kind == "HEIC" and next(_properties(data, b"av1C"), None) is not None:
        raise BadRow("this is an AVIF that does not say so; write it with the brand avif")
    if kind == "TIFF":
        if data.startswith(_MM_BIG_TIFF):
            raise BadRow(
                "a BigTIFF with the high byte first is not read; write it with the low byte first"
            )
        tags = tiff_tags(data, _TIFF_SUBFILE, _TIFF_DNG)
        if tags[_TIFF_SUBFILE][0] & 1 or tags[_TIFF_DNG][0] or data[8:10] == _CR2:
            raise BadRow(
                f"the TIFF begins with a small copy of its picture, as {RAW} does; write JPEG or "
                "PNG, or a TIFF that begins with the picture"
            )


def _png(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _gif(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _bmp(data: bytes) -> tuple[int, int]:
    (header_bytes,) = struct.unpack_from("<I", data, 14)
    if header_bytes == 12:  # OS/2
        width, height = struct.unpack_from("<HH", data, 18)
    else:
        width, height = struct.unpack_from("<ii", data, 18)
    return width, abs(height)  # a negative height says that the lines are stored from the top down


def _jpeg(data: bytes) -> tuple[int, int]:
    height, width = struct.unpack_from(">HH", data, jpeg_frame(data) + 5)
    return width, height


def jpeg_frame(data: bytes) -> int:
    """Where the header of the JPEG's frame begins; the data of its pixels is behind it."""
    at = 2
    while True:
        if data[at] != 0xFF:
            at = data.index(b"\xff", at)
        marker = data[at + 1]
        if marker in _FRAMES:
            return at
        if marker == 0xFF:
            at += 1
        elif marker in _LONE:
            at += 2
        else:
            at += 2 + max(2, data[at + 2] << 8 | data[at + 3])


def _webp(data: bytes) -> tuple[int, int]:
    form = data[12:16]
    if form == b"VP8X":
        packed = data[24:30]
        if len(packed) < 6:
            raise IndexError
        return (
            1 + int.from_bytes(packed[:3], "little"),
            1 + int.from_bytes(packed[3:], "little"),
        )
    if form == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF


def _tiff(data: bytes) -> tuple[int, int]:
    """The size of the first page."""
    tags = tiff_tags(data, _TIFF_WIDTH, _TIFF_HEIGHT)
    return tags[_TIFF_WIDTH][0], tags[_TIFF_HEIGHT][0]


def tiff_tags(data: bytes, *wanted: int) -> dict[int, tuple[int, ...]]:
    """The numbers that the first page of a TIFF has under these tags; (0,) if it has none."""
    order = "<" if data.startswith(b"II") else ">"
    if b"+" in data[2:4]:
        first, place, count, entry_bytes = 8, "Q", "Q", 20
    else:
        first, place, count, entry_bytes = 4, "I", "H", 12
    (at,) = struct.unpack_from(order + place, data, first)
    (entries,) = struct.unpack_from(order + count, data, at)
    begin = at + struct.calcsize(order + count)
    tags: dict[int, tuple[int, ...]] = {}
    for start in range(begin, begin + entry_bytes * entries, entry_bytes):
        tag, kind, numbers = struct.unpack_from(f"{order}HH{place}", data, start)
        # Only the first entry of a tag counts; else a small file could ask for much work.
        if tag in wanted and tag not in tags and kind in _TIFF_NUMBERS:
            form = f"{order}{numbers}{_TIFF_NUMBERS[kind]}"
            value = start + 4 + struct.calcsize(order + place)
            if struct.calcsize(form) > struct.calcsize(place):
                (value,) = struct.unpack_from(order + place, data, value)
            tags[tag] = struct.unpack_from(form, data, value) or (0,)
    return dict.fromkeys(wanted, (0,)) | tags


def _heif(data: bytes) -> tuple[int, int]:
    """The size of the largest picture in the file. The others are its tiles, thumbnails and so on,
    or the frames of a sequence.
    """
    sizes = [struct.unpack_from(">II", data, at + 4) for at in _properties(data, b"ispe")]
    if not sizes:
        raise BadRow(
            "there is no picture in it, only a sequence; write its frames as pictures or as an MP4"
        )
    width, height = max(sizes, key=lambda size: size[0] * size[1])
    return width, height


def _properties(data: bytes, name: bytes) -> Iterator[int]:
    """Where each property of this name begins (ISO 23008-12, 9.3)."""
    for meta, end in _boxes(data, b"meta", 0, len(data)):
        for properties, stop in _boxes(data, b"iprp", meta + 4, end):
            for container, last in _boxes(data, b"ipco", properties, stop):
                for at, _ in _boxes(data, name, container, last):
                    yield at


def _boxes(data: bytes, name: bytes, at: int, stop: int) -> Iterator[tuple[int, int]]:
    """Where the content of each box of this name begins and stops, of the boxes from `at` on."""
    while at + 8 <= stop:
        nbytes, kind = struct.unpack_from(">I4s", data, at)
        begin = at + 8
        if nbytes == 1:
            (nbytes,) = struct.unpack_from(">Q", data, begin)
            begin += 8
        end = at + nbytes if nbytes else stop  # a length of 0: the box reaches to the end
        if end < begin:
            raise IndexError
        if kind == name:
            yield begin, min(end, stop)
        at = end


_SIZES = {
    "PNG": _png,
    "GIF": _gif,
    "BMP": _bmp,
    "JPEG": _jpeg,
    "WebP": _webp,
    "TIFF": _tiff,
    "HEIC": _heif,
    "AVIF": _heif,
}
