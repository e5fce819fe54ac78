"""Finds the damage of a picture that its container can prove: by checksums, lengths and ends.

Rule: a picture of which something is provably missing or changed is a bad row, even if a decoder
makes a picture of the rest. `check_container` does not decode: it is for pictures that the model
takes undecoded, too. Pure.
"""

import re
import struct
import zlib
from collections.abc import Callable
from typing import Final

from penstock.formats.base.runs import BadRow
from penstock.formats.pictures.headers import jpeg_frame, tiff_tags

_PNG_HEAD_BYTES: Final = 8
_JPEG_END, _JPEG_SCAN, _JPEG_RESTARTS = b"\xff\xd9", b"\xff\xda", b"\xff\xdd"
_JPEG_FIRST_RESTART: Final = 0xD0
# In the data of pixels, 0xff is followed by 0 if it is no marker.
_JPEG_MARKERS: Final = re.compile(rb"\xff[\x01-\xfe]")
# Behind its last box, a HEIC may have bytes that are no box.
_HEIF_BOXES: Final = frozenset((b"ftyp", b"meta", b"mdat", b"moov", b"free", b"skip", b"mpvd"))
_TIFF_COMPRESSION, _TIFF_DEFLATE = 259, (8, 32_946)
_TIFF_STRIPS, _TIFF_STRIP_BYTES, _TIFF_TILES, _TIFF_TILE_BYTES = 273, 279, 324, 325
_STEP_BYTES: Final = 1 << 20
# What libjpeg says of a JPEG in which data is missing or wrong, and goes on. What else it says is
# of writers that are careless, and so is a little padding at the end of the data of the pixels:
# damage leaves more there, some 50 bytes in half of the cases.
_JPEG_DAMAGE: Final = re.compile(r"(?i)premature end|huffman code|instead of RST|resync")
_JPEG_EXTRA: Final = re.compile(r"\b(\d+) extraneous bytes before marker 0x(?:d[0-9a]|c4)")
_JPEG_PADDING_BYTES: Final = 16


def check_container(kind: str, data: bytes) -> None:
    """Raises `BadRow` if this picture is damaged, or is not all there."""
    check = _CHECKS.get(kind)
    if check is None:
        return
    try:
        damage = check(data)
    except (struct.error, OverflowError):
        damage = "it breaks off"
    if damage is not None:
        raise BadRow(f"the {kind} is damaged: {damage}")


def is_damage(said: str) -> bool:
    """True if libjpeg's warning means that data of the picture is missing or wrong."""
    extra = _JPEG_EXTRA.search(said)
    if extra is not None:
        return int(extra[1]) > _JPEG_PADDING_BYTES
    return _JPEG_DAMAGE.search(said) is not None


def check_deflated(data: bytes, pixels: int) -> None:
    """Raises `BadRow` if a checksum in a TIFF of deflate's compression is wrong. libtiff does not
    look at the checksums. `pixels`: how many pixels the TIFF has.
    """
    found = tiff_tags(
        data,
        *(_TIFF_COMPRESSION, _TIFF_STRIPS, _TIFF_STRIP_BYTES, _TIFF_TILES, _TIFF_TILE_BYTES),
    )
    if found[_TIFF_COMPRESSION][0] not in _TIFF_DEFLATE:
        return
    # No pixel has more than four numbers of four bytes. At the edges, tiles hold more than the
    # picture.
    left_bytes = 64 * pixels + _STEP_BYTES
    pieces = [
        *zip(found[_TIFF_STRIPS], found[_TIFF_STRIP_BYTES], strict=False),
        *zip(found[_TIFF_TILES], found[_TIFF_TILE_BYTES], strict=False),
    ]
    for at, nbytes in pieces:
        packed = data[at : at + nbytes]
        unpacking = zlib.decompressobj()
        while packed and not unpacking.eof and left_bytes > 0:
            try:
                left_bytes -= len(unpacking.decompress(packed, _STEP_BYTES))
            except zlib.error as error:
                raise BadRow(f"the TIFF is damaged: {error}") from None
            packed = unpacking.unconsumed_tail


def _png(data: bytes) -> str | None:
    """By the checksum of each chunk, up to the last chunk (PNG, 5.3)."""
    view = memoryview(data)
    at, name = _PNG_HEAD_BYTES, b""
    while name != b"IEND":
        nbytes, name = struct.unpack_from(">I4s", data, at)
        end = at + 8 + nbytes
        (wanted,) = struct.unpack_from(">I", data, end)
        if zlib.crc32(view[at + 4 : end]) != wanted:
            return f"the checksum of a chunk {name.decode('ascii', 'replace')} is wrong"
        at = end + 4
    return None


def _jpeg(data: bytes) -> str | None:
    """By its end, whose two bytes are never in the data of its pixels, and by the numbers of the
    markers between parts of this data, if it has such markers (T.81, B.1.1.5 and F.1.1.5.2).
    """
    frame = jpeg_frame(data)
    if data.rfind(_JPEG_END, frame) < 0:
        return "it breaks off"
    begin = data.find(_JPEG_SCAN, frame)
    if data.find(_JPEG_RESTARTS, 0, begin) < 0:
        return None
    for number, marker in enumerate(_JPEG_MARKERS.finditer(data, begin + 2)):
        found = data[marker.start() + 1] - _JPEG_FIRST_RESTART
        if not 0 <= found < 8:
            break
        if found != number % 8:
            return "a part of its data is missing"
    return None


def _webp(data: bytes) -> str | None:
    return _short(struct.unpack_from("<I", data, 4)[0] + 8, data)


def _heif(data: bytes) -> str | None:
    """By the lengths of its boxes. A box of the length 0 reaches to the end."""
    at = 0
    while at + 8 <= len(data):
        nbytes, name = struct.unpack_from(">I4s", data, at)
        if nbytes == 1:
            (nbytes,) = struct.unpack_from(">Q", data, at + 8)
        if nbytes < 8 or name not in _HEIF_BOXES:
            return None
        at += nbytes
    return _short(at, data)


def _short(wanted: int, data: bytes) -> str | None:
    return f"it should have {wanted} bytes and has {len(data)}" if wanted > len(data) else None


_CHECKS: Final[dict[str, Callable[[bytes], str | None]]] = {
    "PNG": _png,
    "JPEG": _jpeg,
    "WebP": _webp,
    "HEIC": _heif,
    "AVIF": _heif,
}
