"""gzip: inflates in bounded pieces, each read to its end before the next is made.

Rule: never more than one piece of output is held, so a bomb costs time, not memory; and time is
bounded by `expansion_ratio`. Many members and zero padding are read as `gzip` reads them.
"""

import zlib
from collections.abc import Iterator

from consumers.errors import ErrorCode, Poison
from consumers.formats.base import RowOptions, Run
from consumers.formats.push import EXPANDING_STEP_BYTES, Parser

GZIP_MAGIC = b"\x1f\x8b"

# Small enough that the rows of a piece stay near the size of a downloaded chunk.
_PIECE_BYTES = 1 << 20
# Below this the ratio says nothing: 16 MiB are harmless, and short files of equal rows pass 200.
_RATIO_FREE_BYTES = 16 << 20
_GZIP_WBITS = 31  # zlib: 16 for the gzip wrapper + the largest window, 15


class GzipParser:
    """Hands the inflated bytes to the parser of what is inside."""

    step_bytes = EXPANDING_STEP_BYTES
    damage: ErrorCode = "bad_format"

    def __init__(self, inner: Parser, options: RowOptions) -> None:
        self._inner = inner
        self._ratio = options.expansion_ratio
        self._member: zlib._Decompress | None = None
        self._members = 0
        self._taken_bytes = 0
        self._made_bytes = 0

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
            # Pieces end at multiples of the piece size, so that the ratio is judged at the same
            # places however the data was cut.
            room = _PIECE_BYTES - self._made_bytes % _PIECE_BYTES
            before = self._member.copy()  # 1 us
            try:
                piece = self._member.decompress(data, room)
            except zlib.error as error:
                if len(data) <= 1:
                    raise self._broken(f"gzip data is damaged: {error}") from error
                # What came before the damage is lost with the call: try again in halves.
                self._member = before
                yield from self._inflate(data[: len(data) // 2])
                yield from self._inflate(data[len(data) // 2 :])
                return
            ended = self._member.eof
            rest = self._member.unused_data if ended else self._member.unconsumed_tail
            self._taken_bytes += len(data) - len(rest)
            self._made_bytes += len(piece)
            data = rest
            self._check_ratio()
            if ended:
                self._member = None
            if piece:
                yield piece
            # A full piece may have more behind it even if all input is taken.
            if not ended and not data and len(piece) < room:
                return

    def _next_member(self, data: bytes) -> bytes:
        if self._members:
            self._taken_bytes += len(data)
            data = data.lstrip(b"\0")
            self._taken_bytes -= len(data)
            if data and data[0] != GZIP_MAGIC[0]:
                raise self._broken("gzip data is followed by something that is not gzip")
        if data:
            self._members += 1
            self._member = zlib.decompressobj(_GZIP_WBITS)
        return data

    def _broken(self, message: str) -> Poison:
        """The wrapper's damage is what is inside's: a cut tar.gz is a bad archive."""
        return Poison(self._inner.damage, message)

    def _check_ratio(self) -> None:
        if self._made_bytes % _PIECE_BYTES or self._made_bytes < _RATIO_FREE_BYTES:
            return
        if self._made_bytes > self._ratio * self._taken_bytes:
            raise Poison(
                "too_large",
                f"{self._taken_bytes} bytes of gzip data inflate to more than {self._made_bytes}, "
                f"above {self._ratio} times (limits.expansion_ratio)",
            )
