"""Unpacks data in bounded pieces: gzip, bzip2, xz, zstd, lz4, as the first bytes tell.

Rule: the rows of each piece are read before the next is made, so a bomb costs time, not memory; and
one `Expansion` counts the unpacked bytes of an object with all its packed members, so the time is
bounded, too. A frame that wants more than `WINDOW_BYTES` is refused. Damage and limits are found at
the same row, however the packed bytes arrive. Members or frames that follow each other are one
file; zero padding at the end is passed over, and skippable frames of zstd and lz4, with one of
which a file of pzstd begins.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple, Protocol

import lz4.frame
from backports import zstd

from penstock.errors import Poison
from penstock.formats.first_bytes import SKIPPABLE, packed_by
from penstock.formats.parser_chain import EXPANDING_STEP_BYTES, ArchiveLimit, Parser
from penstock.formats.runs import RowOptions, Run

_GZIP_BEGIN: Final = 0x1F
GZIP_WBITS = 31  # zlib: 16 for the gzip wrapper + the largest window, 15

# The ratio is not checked below this many unpacked bytes, because 16 MiB are harmless, and short
# files whose rows are all equal reach a ratio of 200.
_RATIO_FREE_BYTES = 16 << 20
# For tables this limit is higher, because columns pack better: if the same text of 1 kB is in all
# of 20,000 rows, DuckDB writes these rows as 62 kB of Parquet.
TABLE_FREE_BYTES = 64 << 20
_EMPTY_PER_BYTES: Final = 1 << 10

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
        """Some `max_length` bytes: more is allowed, but it is in memory at once."""
        ...


class Codec(NamedTuple):
    name: str
    suffixes: tuple[str, ...]
    new: Callable[[], Unpacker]


def _zstd() -> Unpacker:
    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}
    unpacker: Unpacker = zstd.ZstdDecompressor(options=options)
    return unpacker


# All but gzip; `packed_by` gives them the same names.
CODECS: Final = (
    Codec("bz2", (".bz2",), bz2.BZ2Decompressor),
    Codec("xz", (".xz",), partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, memlimit=WINDOW_BYTES)),
    Codec("zstd", (".zst", ".zstd"), _zstd),
    Codec("lz4", (".lz4",), lz4.frame.LZ4FrameDecompressor),
)
_SKIPPED: Final = Codec(SKIPPABLE, (), _zstd)
_BY_NAME: Final = {codec.name: codec for codec in (*CODECS, _SKIPPED)}


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
        self._most_empty = options.members
        self._outer = outer
        self._taken_bytes = 0
        self._made_bytes = 0
        self._empty_frames = 0

    def add(self, taken_bytes: int, made_bytes: int) -> None:
        self._taken_bytes += taken_bytes
        self._made_bytes += made_bytes
        if self._outer is not None:
            self._outer.add(0, made_bytes)

    def add_empty(self) -> None:
        """Count a frame that made nothing. To begin one takes as long as to unpack 10 KiB. Raises
        `ArchiveLimit` if there are too many; each KiB that others made allows one more.
        """
        self._empty_frames += 1
        if self._empty_frames > self._most_empty + self._made_bytes // _EMPTY_PER_BYTES:
            raise ArchiveLimit(
                "too_large",
                f"packed data has more than {self._most_empty} frames of nothing (limits.members)",
            )
        if self._outer is not None:
            self._outer.add_empty()

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


# A piece is as large as a step of plain text. It need not be smaller, because almost all time goes
# into reading the rows: to read short rows of numbers takes sixty times as long as to unpack them.
PIECE_BYTES = 256 << 10
# Packed bytes of all codecs but gzip are unpacked in slices of this size, which are counted from
# the start of the object. This way, damage is found at the same row every time.
SLICE_BYTES: Final = 16 << 10
# The errors that the libraries raise for damaged data; RuntimeError comes from lz4.
_DAMAGE: Final = (OSError, EOFError, lzma.LZMAError, zstd.ZstdError, RuntimeError, ValueError)

_FRAME_MAGIC_BYTES: Final = 4


class Unpacking(Parser):
    """The base class of parsers that unpack data. They feed the unpacked bytes to `inner`, the
    parser of the content. `limit_bytes`: a member of an archive may unpack to at most this many
    bytes.
    """

    step_bytes = EXPANDING_STEP_BYTES

    def __init__(self, inner: Parser, expansion: Expansion, limit_bytes: int | None) -> None:
        self._inner = inner
        self._expansion = expansion
        self._limit_bytes = limit_bytes
        self._taken_bytes = 0
        self._made_bytes = 0
        self._begun_at = 0  # so many bytes were made when the frame, or the gzip member, began

    def _frame_ended(self) -> None:
        if self._made_bytes == self._begun_at:
            self._expansion.add_empty()
        self._begun_at = self._made_bytes

    def _broken(self, message: str) -> Poison:
        """The error for damaged packing. Its code is the one that `inner` has for damaged content,
        so a tar.gz that breaks off is `bad_archive`.
        """
        return Poison(self._inner.damage, message)

    def _check(self) -> None:
        """Check the limits. Call this only when `inner` has read all bytes that were unpacked so
        far. By then, packed data among these bytes is counted, too.
        """
        self._expansion.check()
        if self._limit_bytes is not None and self._made_bytes > self._limit_bytes:
            raise Poison(
                "too_large",
                f"it inflates to more than {self._limit_bytes} bytes (limits.member_bytes)",
            )


def unpacking(name: str, inner: Parser, expansion: Expansion, limit_bytes: int | None) -> Parser:
    """The parser of data that is packed by this; `packed_by` gives the name."""
    if name == "gzip":
        return GzipParser(inner, expansion, limit_bytes=limit_bytes)
    return PackedParser(_BY_NAME[name], inner, expansion, limit_bytes=limit_bytes)


class GzipParser(Unpacking):
    def __init__(self, inner: Parser, expansion: Expansion, *, limit_bytes: int | None) -> None:
        super().__init__(inner, expansion, limit_bytes)
        self._member: zlib._Decompress | None = None
        self._members = 0

    def feed(self, data: bytes) -> Iterator[Run]:
        for piece in self._inflate(data):
            yield from self._inner.feed(piece)

    def close(self) -> Iterator[Run]:
        if self._member is not None:
            raise self._broken(f"gzip data ends early, after {self._taken_bytes} bytes")
        return self._inner.close()

    def _inflate(self, data: bytes) -> Iterator[bytes]:
        while data or self._member is not None:
            if self._member is None:
                data = self._next_member(data)
                if not data:
                    return
            assert self._member is not None
            # Pieces end at multiples of the piece size. So the limits are checked at the same
            # places, however the packed data was cut.
            room = PIECE_BYTES - self._made_bytes % PIECE_BYTES
            # The copy takes 1 us. (The library isal inflates 2.4 times as fast, but cannot copy.)
            before = self._member.copy()
            try:
                piece = self._member.decompress(data, room)
            except zlib.error as error:
                if len(data) <= 1:
                    raise self._broken(f"gzip data is damaged: {error}") from error
                # The failed call has also lost the output before the damage. So go back to the
                # copy, and try again with half of the data, until the damaged byte is alone.
                self._member = before
                yield from self._inflate(data[: len(data) // 2])
                yield from self._inflate(data[len(data) // 2 :])
                return
            ended = self._member.eof
            rest = self._member.unused_data if ended else self._member.unconsumed_tail
            self._expansion.add(len(data) - len(rest), len(piece))
            self._taken_bytes += len(data) - len(rest)
            self._made_bytes += len(piece)
            data = rest
            if ended:
                self._member = None
                self._frame_ended()
            if piece:
                yield piece
                if not self._made_bytes % PIECE_BYTES:
                    self._check()
            # If the piece is full, more output may follow, even if all input is taken.
            if not ended and not data and len(piece) < room:
                return

    def _next_member(self, data: bytes) -> bytes:
        if self._members:
            self._taken_bytes += len(data)
            data = data.lstrip(b"\0")
            self._taken_bytes -= len(data)
            if data and data[0] != _GZIP_BEGIN:
                raise self._broken("gzip data is followed by something that is not gzip")
        if data:
            self._members += 1
            self._member = zlib.decompressobj(GZIP_WBITS)
        return data


class PackedParser(Unpacking):
    def __init__(
        self, codec: Codec, inner: Parser, expansion: Expansion, *, limit_bytes: int | None
    ) -> None:
        super().__init__(inner, expansion, limit_bytes)
        self._codec = codec
        self._slice = bytearray()
        self._frame: Unpacker | None = None
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
                    # These last bytes are too few to tell what kind of frame they begin. So they
                    # are put in front of the next slice.
                    self._slice += data
                    return
                self._frame = self._next_frame(data)
            room = PIECE_BYTES - self._made_bytes % PIECE_BYTES
            try:
                piece = self._frame.decompress(data, room)
            except _DAMAGE as error:
                raise self._broken(f"{self._codec.name} data is damaged: {error}") from error
            data = b""
            checked = self._made_bytes // PIECE_BYTES
            self._made_bytes += len(piece)
            self._expansion.add(0, len(piece))
            if self._frame.eof:
                data = bytes(self._frame.unused_data or b"")
                self._frame = None
                self._frame_ended()
            if piece:
                yield piece
                if self._made_bytes // PIECE_BYTES > checked:
                    self._check()

    def _next_frame(self, head: bytes) -> Unpacker:
        if self._codec is _SKIPPED and (codec := packed_by(head)) != SKIPPABLE:
            if codec not in ("zstd", "lz4"):
                raise self._broken(
                    f"{self._codec.name} frames to be skipped are followed by neither of the two"
                )
            self._codec = _BY_NAME[codec]
        self._frames += 1
        return self._codec.new()
