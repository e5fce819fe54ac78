"""Decides how an object is read: as a stream or by ranges, in the worker or by a decoder.

Rule: small objects of plain text, or opaque, are decoded in the worker, by linear code. All others,
and all that may be others, are decoded by a separate process that may crash. Gzip data counts by
its unpacked size. Owner: the stage that expands objects.
"""

import zlib
from typing import Final, Literal

from penstock.formats.archives.codecs import codec_of
from penstock.formats.archives.compression import GZIP_MAGIC
from penstock.formats.base.runs import Decoder, RowOptions
from penstock.formats.pictures.pixels import PictureOptions
from penstock.formats.registry import open_decoder, ranged_format, told_format

# The first bytes of an object, by which a format may recognise it.
_HEAD_BYTES: Final = 512
# A line of these formats is taken apart as a whole: a line of JSON, or a first line of CSV, of the
# largest width takes up to 4 ms. Embeddings are mostly half as wide.
_TAKEN_APART: Final = ("csv", "ndjson", "json")
_LINE_BYTES: Final = 64 << 10
_LINE_CELLS: Final = 2_048
_SEPARATORS: Final = (b",", b";", b"\t", b"|")
_GZIP_WBITS: Final = 31  # zlib: 16 for the gzip wrapper + the largest window, 15


def way_in(
    options: RowOptions, *, key: str, format: str | None = None, compression: str | None = None
) -> Literal["stream", "ranges"]:
    """How an object's bytes are asked for first, by its name; its first bytes may correct that.
    Raises `Poison` if its rows do not fit the request.
    """
    found = ranged_format(options, key=key, format=format, compression=compression)
    return "stream" if found is None or found.is_streamed else "ranges"


def open_inline(
    options: RowOptions,
    data: bytes,
    most_bytes: int,
    *,
    key: str,
    format: str | None = None,
    compression: str | None = None,
) -> tuple[Decoder, bytes] | None:
    """The decoder of a whole object, and the bytes to feed it. None: a separate process must decode
    it. Raises `Poison` if its name or first bytes show that it cannot be read.
    """
    if len(data) > most_bytes or options.of(PictureOptions).image is not None:
        return None
    is_packed = compression != "none" and data.startswith(GZIP_MAGIC)
    if is_packed:
        limit_bytes = min(most_bytes, options.expanded_bytes or most_bytes)
        unfolded = _unfolded(data, limit_bytes)
        if unfolded is None or unfolded.startswith(GZIP_MAGIC):
            return None
        data = unfolded
    if compression != "none" and codec_of(data) is not None:
        return None
    found = told_format(options, data[:_HEAD_BYTES], key=key, format=format)
    if found is None or not found.is_plain or _is_wide(data, found.name):
        return None
    # Unpacked data is plain now. For all other data the reader compares the name with the first
    # bytes.
    left = "none" if is_packed else compression
    return open_decoder(options, key=key, format=format, compression=left), data


def _is_wide(data: bytes, format: str) -> bool:
    """Is any line so long that reading it takes more than a few milliseconds?"""
    start = 0
    while format in _TAKEN_APART and start + _LINE_CELLS < len(data):
        end = data.rfind(b"\n", start, start + _LINE_CELLS)
        if end < start:
            end = data.find(b"\n", start)
            line = data[start : end if end > 0 else None]
            cells = max(map(line.count, _SEPARATORS)) if format == "csv" else 0
            if len(line) > _LINE_BYTES or cells >= _LINE_CELLS:
                return True
            end = start + len(line)
        start = end + 1
    return False


def _unfolded(data: bytes, most_bytes: int) -> bytes | None:
    """The unpacked bytes; None: they are more than `most_bytes`, or damaged."""
    unpacker = zlib.decompressobj(_GZIP_WBITS)
    try:
        found = unpacker.decompress(data, most_bytes + 1)
    except zlib.error:
        return None
    if len(found) > most_bytes or not unpacker.eof or unpacker.unused_data:
        return None
    return found
