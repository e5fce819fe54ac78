"""Finds out whether data is packed and by which codec, and limits the bytes to which an object may
unpack.

Rule: the first bytes tell the codec: gzip, bzip2, xz, zstd or lz4. One `Expansion` counts the
unpacked bytes of an object, or of all packed members of its archive, so a bomb costs bounded time.
A frame that wants more memory than `WINDOW_BYTES` is refused.
"""

import bz2
import lzma
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

import lz4.frame
from backports import zstd

from penstock.formats.base.parser_chain import ArchiveLimit
from penstock.formats.base.runs import RowOptions

GZIP_MAGIC = b"\x1f\x8b"
GZIP_WBITS = 31  # zlib: 16 for the gzip wrapper + the largest window, 15

# The ratio is not checked below this many unpacked bytes, because 16 MiB are harmless, and short
# files whose rows are all equal reach a ratio of 200.
_RATIO_FREE_BYTES = 16 << 20
# For tables this limit is higher, because columns pack better: if the same text of 1 kB is in all
# of 20,000 rows, DuckDB writes these rows as 62 kB of Parquet.
TABLE_FREE_BYTES = 64 << 20

# A frame may want this much memory, 128 MiB. The programs `zstd` and `xz` have the same limit by
# default.
WINDOW_BYTES: Final = 128 << 20
_WINDOW_LOG: Final = 27


class Unpacker(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """At most `max_length` bytes. A codec that gives more switches off the limits against
        bombs, which are checked when the pieces fill `PIECE_BYTES` exactly.
        """
        ...


class Codec(NamedTuple):
    name: str
    magic: bytes
    suffixes: tuple[str, ...]
    new: Callable[[], Unpacker]


def _zstd() -> Unpacker:
    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}
    unpacker: Unpacker = zstd.ZstdDecompressor(options=options)
    return unpacker


CODECS: Final = (
    Codec("bz2", b"BZh", (".bz2",), bz2.BZ2Decompressor),
    Codec(
        "xz",
        b"\xfd7zXZ\0",
        (".xz",),
        partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, memlimit=WINDOW_BYTES),
    ),
    Codec("zstd", b"\x28\xb5\x2f\xfd", (".zst", ".zstd"), _zstd),
    Codec("lz4", b"\x04\x22\x4d\x18", (".lz4",), lz4.frame.LZ4FrameDecompressor),
)
# The first bytes of a skippable frame, which are the same for zstd and for lz4. The frame after it
# tells whether the data is zstd or lz4.
SKIPPABLE: Final = tuple(bytes([first]) + b"\x2a\x4d\x18" for first in range(0x50, 0x60))
SKIPPED: Final = Codec("zstd or lz4", b"", (), _zstd)
AFTER_SKIPPED: Final = CODECS[2:]
MAGICS: Final = (*(codec.magic for codec in CODECS), *SKIPPABLE)
# The magic of bzip2 has three letters and could be a word, so the bytes behind it are checked, too.
# First comes the level, which is one digit. Then come the digits of pi, or the digits of pi's
# square root if the file is empty.
_BZ2_BLOCK: Final = b"1AY&SY"
_BZ2_EMPTY: Final = b"\x17rE8P\x90"
BZ2_BYTES: Final = 10


def codec_of(head: bytes) -> Codec | None:
    """The codec that the first bytes show. None: the data is not packed, or it is packed by
    gzip.
    """
    if not head.startswith(MAGICS):
        return None
    for codec in CODECS:
        if head.startswith(codec.magic):
            is_bz2 = codec.name != "bz2" or head[4:10] in (_BZ2_BLOCK, _BZ2_EMPTY)
            return codec if is_bz2 else None
    return SKIPPED


def is_begun(data: bytes) -> bool:
    """True if these few bytes may be the beginning of a codec's magic."""
    return bool(data) and any(magic.startswith(data) for magic in (GZIP_MAGIC, *MAGICS))


class Expansion:
    """Counts the packed and the unpacked bytes of an object, or of all packed members of an
    archive.

    `outer`: for the members of an archive, the count of the whole object; the members' unpacked
    bytes are added to it, too. Without it, an archive of many small bombs that is itself packed
    would pass, because each member alone stays below every limit.
    """

    def __init__(
        self,
        options: RowOptions,
        *,
        outer: "Expansion | None" = None,
        free_bytes: int = _RATIO_FREE_BYTES,
    ) -> None:
        """`free_bytes`: below this many unpacked bytes the ratio is not checked."""
        self._ratio = options.expansion_ratio
        self._free_bytes = free_bytes
        self._limit_bytes = options.expanded_bytes
        self._outer = outer
        self._taken_bytes = 0
        self._made_bytes = 0

    def add(self, taken_bytes: int, made_bytes: int) -> None:
        self._taken_bytes += taken_bytes
        self._made_bytes += made_bytes
        if self._outer is not None:
            self._outer.add(0, made_bytes)

    def check(self) -> None:
        """Raises `ArchiveLimit` if the unpacked bytes are above a limit."""
        made_bytes = self._made_bytes
        if made_bytes >= self._free_bytes and made_bytes > self._ratio * self._taken_bytes:
            raise ArchiveLimit(
                "too_large",
                f"{self._taken_bytes} packed bytes inflate to {made_bytes} or more, "
                f"above {self._ratio} times (limits.expansion_ratio)",
            )
        if self._limit_bytes is not None and made_bytes > self._limit_bytes:
            raise ArchiveLimit(
                "too_large",
                f"packed data inflates to more than {self._limit_bytes} bytes "
                "(limits.expanded_bytes)",
            )
