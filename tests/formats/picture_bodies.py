"""Small pictures, written by hand: what a header says is what a test wants it to say."""

import struct
import zlib
from typing import Any


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *, said: tuple[int, int] | None = None) -> bytes:
    """A grey PNG; `said` is what its header claims instead."""
    head = struct.pack(">IIBBBBB", *(said or (width, height)), 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x7f" * width) * height)
    parts = (_chunk(b"IHDR", head), _chunk(b"IDAT", rows), _chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def rgb_png(pixels: Any, bits: int) -> bytes:
    """A PNG of these pixels (height, width, 3), of 8 or 16 bits a number."""
    height, width, _ = pixels.shape
    head = struct.pack(">IIBBBBB", width, height, bits, 2, 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(f">u{bits // 8}").tobytes() for row in pixels)
    parts = (_chunk(b"IHDR", head), _chunk(b"IDAT", zlib.compress(rows)), _chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def jpeg(width: int, height: int) -> bytes:
    """The headers of a JPEG, with a comment of what looks like a frame before the true one."""
    comment = b"\xff\xfe\x00\x0b\xff\xc0\x00\x11\x08\x00\x00\x00\x00"
    app0 = b"\xff\xe0\x00\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0"
    frame = b"\xff\xc2" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\x01\x11\0"
    return b"\xff\xd8" + app0 + comment + b"\xff" + frame + b"\xff\xd9"


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0;"


def bmp(width: int, height: int) -> bytes:
    return b"BM" + bytes(12) + struct.pack("<Iii", 40, width, -height) + bytes(28)


def webp(kind: str, width: int, height: int) -> bytes:
    if kind == "VP8X":
        size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
        body = b"VP8X" + struct.pack("<I", 10) + bytes(4) + size
    elif kind == "VP8L":
        bits = (width - 1) | (height - 1) << 14
        body = b"VP8L" + struct.pack("<IBI", 5, 0x2F, bits)
    else:
        body = b"VP8 " + struct.pack("<I", 10) + b"\0\0\0\x9d\x01\x2a"
        body += struct.pack("<HH", width | 0x4000, height)
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def tiff(order: str, width: int, height: int) -> bytes:
    magic = b"II*\0" if order == "<" else b"MM\0*"
    first = struct.pack(f"{order}HHIHH", 256, 3, 1, width, 0)
    second = struct.pack(f"{order}HHII", 257, 4, 1, height)
    return magic + struct.pack(f"{order}IH", 8, 2) + first + second + bytes(4)


def ftyp(brand: bytes, *compatible: bytes) -> bytes:
    """The head of an ISO media file."""
    body = brand + bytes(4) + b"".join(compatible)
    return struct.pack(">I", 8 + len(body)) + b"ftyp" + body


PNG = png(5, 3)
JPEG = jpeg(640, 480)
