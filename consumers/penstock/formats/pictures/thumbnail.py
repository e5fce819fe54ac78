"""The picture of a row, small enough for a page that shows it beside its prediction.

Rule: no picture is decoded here. The file of a picture stays as it is, if browsers can show it: the
browser decodes it, in its own sandbox. A row of pixels becomes a PNG of every nth pixel. Pure.
"""

import struct
import zlib
from typing import Final, NamedTuple

import numpy as np

from penstock.core.rows.payload import BytesRows, Matrix, Payload
from penstock.formats.pictures.headers import kind_of
from penstock.formats.pictures.pixels import PixelOptions, Rgb

# The longer side of a PNG that is made here has at most this many pixels.
MOST_PIXELS: Final = 128
# Kinds of pictures that every browser shows.
_TYPES: Final = {"JPEG": "image/jpeg", "PNG": "image/png", "GIF": "image/gif"}
_HEAD_BYTES: Final = 12


class Encoded(NamedTuple):
    """The file of a picture, with its media type."""

    type: str
    body: bytes


def thumbnail(row: Payload, pixels: PixelOptions | None, most_bytes: int) -> Encoded | Rgb | None:
    """The picture of one row: its file, or the pixels of which `png` makes a file. None: the row is
    no picture, or its file has more than `most_bytes`.
    """
    if isinstance(row, BytesRows):
        data = row.row(0)
        type = _TYPES.get(kind_of(bytes(data[:_HEAD_BYTES])) or "")
        if type is not None:
            return Encoded(type, bytes(data)) if len(data) <= most_bytes else None
    if pixels is None:
        return None
    size = pixels.width * pixels.height * 3
    step = -(-max(pixels.width, pixels.height) // MOST_PIXELS)
    if isinstance(row, Matrix) and row.values.shape[1] == size:
        return pixels.rgb(row.values[0], step)
    if isinstance(row, BytesRows) and len(row.row(0)) == size:
        return pixels.rgb(np.frombuffer(row.row(0), np.uint8), step)
    return None


def png(rgb: Rgb) -> Encoded:
    height, width, _ = rgb.shape
    # In a PNG each line begins with the number of its filter; 0: none.
    lines = np.zeros((height, 1 + 3 * width), np.uint8)
    lines[:, 1:] = rgb.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 1)), (b"IEND", b""))
    body = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*one) for one in chunks)
    return Encoded("image/png", body)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
