"""Checks the schemas of Avro files and limits the size of their blocks.

Rule: a schema that contains itself, or that has arrays of values without bytes, is refused, because
with such a schema a few bytes could be decoded without end. The library first parses the schema to
a form with full names, and that form is checked. Whatever a block claims, it is unpacked to at most
one byte more than `MOST_UNPACKED_BYTES`; that byte shows that the block is too large.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Any, Final

import cramjam
from backports import zstd

from penstock.errors import Poison
from penstock.formats.archives.compression import WINDOW_BYTES

MOST_UNPACKED_BYTES: Final = 64 << 20
_MOST: Final = MOST_UNPACKED_BYTES + 1
_CRC_BYTES: Final = 4
# For the name of each type: True if its values take no bytes; None while the type is being checked.
Seen = dict[str, bool | None]


def check_schema(parsed: Any) -> None:
    """Raises `Poison` if, with this schema, bytes could be decoded without end."""
    _is_empty(parsed, {})


def _is_empty(schema: Any, seen: Seen) -> bool:
    """True if values of this type take no bytes."""
    if isinstance(schema, str):
        if schema in seen and seen[schema] is None:
            said = f"the Avro schema holds itself ({schema}), which is not read"
            raise Poison("bad_format", said)
        return bool(seen.get(schema, schema == "null"))
    if isinstance(schema, list):
        for branch in schema:
            _is_empty(branch, seen)
        return False
    kind = schema["type"]
    if kind == "array":
        if _is_empty(schema["items"], seen):
            raise Poison("bad_format", "the Avro schema has arrays of nothing")
        return False
    if kind == "map":
        _is_empty(schema["values"], seen)
        return False
    if kind in ("record", "error"):
        seen[schema["name"]] = None
        full = [field for field in schema["fields"] if not _is_empty(field["type"], seen)]
        found = not full
        seen[schema["name"]] = found
        return found
    if kind in ("fixed", "enum"):
        seen[schema["name"]] = kind == "fixed" and not schema["size"]
        return bool(seen[schema["name"]])
    return _is_empty(kind, seen)


def _snappy(data: bytes) -> bytes:
    body, check = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
    if cramjam.snappy.decompress_raw_len(body) > MOST_UNPACKED_BYTES:
        return bytes(_MOST)
    unpacked = bytes(cramjam.snappy.decompress_raw(body))
    if zlib.crc32(unpacked).to_bytes(_CRC_BYTES, "big") != check:
        raise ValueError("its checksum is wrong")
    return unpacked


def _by(new: Callable[[], Any], rest_bytes: int = 0) -> Callable[[bytes], bytes]:
    """A function that unpacks a block. `rest_bytes`: at most so many bytes may follow the packed
    data.
    """

    def unpack(data: bytes) -> bytes:
        unpacker = new()
        unpacked: bytes = unpacker.decompress(data, _MOST)
        if len(unpacked) < _MOST and not unpacker.eof:
            raise ValueError("it breaks off")
        if len(unpacker.unused_data or b"") > rest_bytes:
            raise ValueError("something follows the packed data")
        return unpacked

    return unpack


# For the name of each codec: the function that unpacks a block. Avro's library for Python, and old
# versions of fastavro, leave three bytes of zlib's checksum behind a deflated block.
UNPACK: Final[dict[str, Callable[[bytes], bytes]]] = {
    "null": bytes,
    "deflate": _by(lambda: zlib.decompressobj(-15), rest_bytes=4),
    "bzip2": _by(bz2.BZ2Decompressor),
    "xz": _by(lambda: lzma.LZMADecompressor(memlimit=WINDOW_BYTES)),
    "zstandard": _by(zstd.ZstdDecompressor),
    "snappy": _snappy,
}
# The errors that these functions raise for damaged blocks.
NOT_UNPACKED: Final = (
    zlib.error,
    lzma.LZMAError,
    zstd.ZstdError,
    cramjam.DecompressionError,
    OSError,
    EOFError,
    ValueError,
)
