"""What the example model finds on a frame of the demo's cameras: a bright thing and its box.

Rule: only the PNGs that the demo makes are read, which have three colours and no filters; any other
blob is not a frame. Owner: the embedded model server.
"""

import struct
import zlib
from typing import Any, Final

import numpy as np

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_HEAD: Final = struct.Struct(">8s4x4sIIBBBBB4x")
_CHUNK: Final = struct.Struct(">I4s")
# The most pixels of a frame that is read. The demo's frames are not larger.
MOST_PIXELS: Final = 256 * 256
LEAST_BRIGHT: Final = 190


def seen(blob: bytes) -> dict[str, Any] | None:
    """The model's answer to a frame. None: the blob is not a frame."""
    image = _pixels(blob)
    if image is None:
        return None
    rows, columns = np.nonzero((image >= LEAST_BRIGHT).all(axis=2))
    if not len(rows):
        return {"label": "nothing", "score": 1.0}
    top, left, bottom, right = (
        int(each) for each in (rows.min(), columns.min(), rows.max(), columns.max())
    )
    box = [left, top, right - left + 1, bottom - top + 1]
    return {"label": "vehicle", "score": round(len(rows) / (box[2] * box[3]), 3), "box": box}


def _pixels(blob: bytes) -> "np.ndarray[Any, np.dtype[np.uint8]] | None":
    try:
        _, _, width, height, *kind = _HEAD.unpack_from(blob)
        size, name = _CHUNK.unpack_from(blob, _HEAD.size)
        if kind != [8, 2, 0, 0, 0] or name != b"IDAT" or not 0 < width * height <= MOST_PIXELS:
            return None
        body = blob[_HEAD.size + _CHUNK.size :][:size]
        nbytes = height * (1 + 3 * width)
        lines = np.frombuffer(zlib.decompressobj().decompress(body, nbytes), np.uint8)
    except (struct.error, zlib.error):
        return None
    if len(lines) != nbytes:
        return None
    return lines.reshape(height, -1)[:, 1:].reshape(height, width, 3)
