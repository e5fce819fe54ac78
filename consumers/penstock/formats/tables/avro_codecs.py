"""How the blocks of an Avro container are unpacked.

Rule: whatever a block claims, it becomes at most one byte more than `MOST_UNPACKED_BYTES`, by which
the parser sees that it is too large. Owner: the Avro parser.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Final

import cramjam
from backports import zstd

from penstock.formats.archives.codecs import WINDOW_BYTES

MOST_UNPACKED_BYTES: Final = 64 << 20
_CRC_BYTES: Final = 4


def _snappy(data: bytes) -> bytes:
    body, check = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
    if cramjam.snappy.decompress_raw_len(body) > MOST_UNPACKED_BYTES:
        return bytes(MOST_UNPACKED_BYTES + 1)
    unpacked = bytes(cramjam.snappy.decompress_raw(body))
    if zlib.crc32(unpacked).to_bytes(_CRC_BYTES, "big") != check:
        raise ValueError("its checksum is wrong")
    return unpacked


_MOST: Final = MOST_UNPACKED_BYTES + 1
UNPACKING: Final = (
    zlib.error,
    lzma.LZMAError,
    zstd.ZstdError,
    cramjam.DecompressionError,
    OSError,
    EOFError,
    ValueError,
)
CODECS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "null": bytes,
    "deflate": lambda data: zlib.decompressobj(-15).decompress(data, _MOST),
    "bzip2": lambda data: bz2.BZ2Decompressor().decompress(data, _MOST),
    "xz": lambda data: lzma.LZMADecompressor(memlimit=WINDOW_BYTES).decompress(data, _MOST),
    "zstandard": lambda data: zstd.ZstdDecompressor().decompress(data, _MOST),
    "snappy": _snappy,
}
