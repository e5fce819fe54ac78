"""bzip2, xz, zstd and lz4: unpacked in bounded pieces. The rows of each piece are read before the
next piece is made.

Rule: at most one piece of output is held, and a frame that wants more memory than `WINDOW_BYTES` is
refused. Packed bytes are cut at the same places however they arrive, so that damage is found at the
same row every time. Several frames in a row are one file. Zero padding at the end is passed over;
so are the skippable frames of zstd and lz4 (a file that pzstd wrote begins with such a frame).
Owner: one reading of one object.
"""

import bz2
import lzma
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple, Protocol

import lz4.frame
from backports import zstd

from penstock.formats.archives.compression import GZIP_MAGIC, PIECE_BYTES, Expansion, Unpacking
from penstock.formats.base.parser_chain import Parser
from penstock.formats.base.runs import Run

# 128 MiB. The programs `zstd` and `xz` have the same limit by default.
WINDOW_BYTES: Final = 128 << 20
_WINDOW_LOG: Final = 27
# Packed bytes are unpacked in slices of this size, counted from the beginning of the object.
SLICE_BYTES: Final = 16 << 10


class _Unpacker(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class Codec(NamedTuple):
    name: str
    magic: bytes
    suffixes: tuple[str, ...]
    new: Callable[[], _Unpacker]


def _zstd() -> _Unpacker:
    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}
    unpacker: _Unpacker = zstd.ZstdDecompressor(options=options)
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
# Skippable frames of zstd and of lz4 begin alike. The frame after them tells whether the data is
# zstd or lz4.
_SKIPPABLE: Final = tuple(bytes([first]) + b"\x2a\x4d\x18" for first in range(0x50, 0x60))
_FRAME_MAGIC_BYTES: Final = 4
_SKIPPED: Final = Codec("zstd or lz4", b"", (), _zstd)
_AFTER_SKIPPED: Final = CODECS[2:]
MAGICS: Final = (*(codec.magic for codec in CODECS), *_SKIPPABLE)
# The magic of bzip2 has three letters and could be a word, so the bytes behind it are checked, too.
# After a level of one digit come the digits of pi, or the digits of pi's square root if the file is
# empty.
_BZ2_BLOCK: Final = b"1AY&SY"
_BZ2_EMPTY: Final = b"\x17rE8P\x90"
LONGEST_MAGIC_BYTES: Final = 10
# What the libraries raise for damaged data. lz4 raises RuntimeError.
_DAMAGE: Final = (OSError, EOFError, lzma.LZMAError, zstd.ZstdError, RuntimeError, ValueError)


def codec_of(head: bytes) -> Codec | None:
    """The codec that the first bytes show; None: the data is not packed, or packed by gzip."""
    if not head.startswith(MAGICS):
        return None
    for codec in CODECS:
        if head.startswith(codec.magic):
            is_bz2 = codec.name != "bz2" or head[4:10] in (_BZ2_BLOCK, _BZ2_EMPTY)
            return codec if is_bz2 else None
    return _SKIPPED


def is_begun(data: bytes) -> bool:
    """True if these few bytes may be the beginning of a codec's magic."""
    return bool(data) and any(magic.startswith(data) for magic in (GZIP_MAGIC, *MAGICS))


class PackedParser(Unpacking):
    def __init__(
        self, codec: Codec, inner: Parser, expansion: Expansion, *, limit_bytes: int | None
    ) -> None:
        super().__init__(inner, expansion, limit_bytes)
        self._codec = codec
        self._slice = bytearray()
        self._frame: _Unpacker | None = None
        self._frames = 0

    def feed(self, data: bytes) -> Iterator[Run]:
        at = 0
        while at < len(data):
            part = data[at : at + SLICE_BYTES - len(self._slice)]
            at += len(part)
            self._slice += part
            if len(self._slice) == SLICE_BYTES:
                yield from self._read_slice()

    def close(self) -> Iterator[Run]:
        yield from self._read_slice()
        if self._frame is not None or self._slice:
            raise self._broken(
                f"{self._codec.name} data ends early, after {self._taken_bytes} bytes"
            )
        yield from self._inner.close()

    def _read_slice(self) -> Iterator[Run]:
        data = bytes(self._slice)
        self._slice.clear()
        self._taken_bytes += len(data)
        self._expansion.add(len(data), 0)
        for piece in self._unpack(data):
            yield from self._inner.feed(piece)

    def _unpack(self, data: bytes) -> Iterator[bytes]:
        while data or (self._frame is not None and not self._frame.needs_input):
            if self._frame is None:
                if self._frames:
                    data = data.lstrip(b"\0")
                if not data:
                    return
                if self._codec is _SKIPPED and len(data) < _FRAME_MAGIC_BYTES:
                    # These bytes are too few to tell what kind of frame begins. So the next slice
                    # begins with them.
                    self._slice += data
                    return
                self._frame = self._next_frame(data)
            room = PIECE_BYTES - self._made_bytes % PIECE_BYTES
            try:
                piece = self._frame.decompress(data, room)
            except _DAMAGE as error:
                raise self._broken(f"{self._codec.name} data is damaged: {error}") from error
            data = b""
            if self._frame.eof:
                data = bytes(self._frame.unused_data or b"")
                self._frame = None
            self._made_bytes += len(piece)
            self._expansion.add(0, len(piece))
            if piece:
                yield piece
                if not self._made_bytes % PIECE_BYTES:
                    self._check()

    def _next_frame(self, head: bytes) -> _Unpacker:
        if self._codec is _SKIPPED and not head.startswith(_SKIPPABLE):
            found = [codec for codec in _AFTER_SKIPPED if head.startswith(codec.magic)]
            if not found:
                raise self._broken(
                    f"{self._codec.name} frames to be skipped are followed by neither of the two"
                )
            self._codec = found[0]
        self._frames += 1
        return self._codec.new()
