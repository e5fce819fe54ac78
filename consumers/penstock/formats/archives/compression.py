"""gzip, unpacked in bounded pieces; and for all codecs, how much an object may unpack to.

Rule: at most one piece of output is held, and its rows are read before the next piece is made. So a
bomb costs time, not memory, and that time is bounded by the one `Expansion` of its object. Several
gzip members in a row, and zero padding, are read as the program `gzip` reads them. Owner: one
reading of one object.
"""

import zlib
from collections.abc import Iterator

from penstock.errors import Poison
from penstock.formats.base.parser_chain import EXPANDING_STEP_BYTES, Parser
from penstock.formats.base.runs import RowOptions, Run

GZIP_MAGIC = b"\x1f\x8b"

# A piece is as large as a step of plain text, because almost all time goes into the rows: to read
# short rows of numbers takes sixty times as long as to unpack them.
PIECE_BYTES = 256 << 10
# The ratio is not checked below this: 16 MiB are harmless, and short files whose rows are all equal
# reach a ratio of 200.
_RATIO_FREE_BYTES = 16 << 20
# The limit for tables is higher, because columns pack better: DuckDB writes 20,000 rows of one 1 kB
# text to 62 kB of Parquet.
TABLE_FREE_BYTES = 64 << 20
GZIP_WBITS = 31  # zlib: 16 for the gzip wrapper + the largest window, 15


class Expansion:
    """Counts packed and unpacked bytes, of an object or of all packed members of an archive.

    `outer`: for members, the count of their object, to which the members' unpacked bytes are added,
    too. Otherwise an archive of many small bombs, packed again, would pass, because each member
    alone stays below every limit.
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
        """Raises `Poison` if the unpacked bytes are above a limit."""
        made_bytes = self._made_bytes
        if made_bytes >= self._free_bytes and made_bytes > self._ratio * self._taken_bytes:
            raise Poison(
                "too_large",
                f"{self._taken_bytes} packed bytes inflate to {made_bytes} or more, "
                f"above {self._ratio} times (limits.expansion_ratio)",
            )
        if self._limit_bytes is not None and made_bytes > self._limit_bytes:
            raise Poison(
                "too_large",
                f"packed data inflates to more than {self._limit_bytes} bytes "
                "(limits.expanded_bytes)",
            )


class Unpacking(Parser):
    """Base of the parsers that unpack, and feed what they unpack to `inner`, the parser of the
    content. `limit_bytes`: how much a member of an archive may unpack to.
    """

    step_bytes = EXPANDING_STEP_BYTES

    def __init__(self, inner: Parser, expansion: Expansion, limit_bytes: int | None) -> None:
        self._inner = inner
        self._expansion = expansion
        self._limit_bytes = limit_bytes
        self._taken_bytes = 0
        self._made_bytes = 0

    def _broken(self, message: str) -> Poison:
        """The error for damaged packing. It has the error code for damaged content, so a tar.gz
        that breaks off is `bad_archive`.
        """
        return Poison(self._inner.damage, message)

    def _check(self) -> None:
        """Call this when `inner` has read all bytes that were unpacked so far: then packed data
        among these bytes is counted already.
        """
        self._expansion.check()
        if self._limit_bytes is not None and self._made_bytes > self._limit_bytes:
            raise Poison(
                "too_large",
                f"it inflates to more than {self._limit_bytes} bytes (limits.member_bytes)",
            )


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
            # Pieces end at multiples of the piece size, so that the limits are checked at the same
            # places however the data was cut.
            room = PIECE_BYTES - self._made_bytes % PIECE_BYTES
            # The copy takes 1 us. (The library isal inflates 2.4 times as fast, but cannot copy.)
            before = self._member.copy()
            try:
                piece = self._member.decompress(data, room)
            except zlib.error as error:
                if len(data) <= 1:
                    raise self._broken(f"gzip data is damaged: {error}") from error
                # The failed call has also lost the output before the damage. So go back to the
                # copy, and halve the data until the damaged byte is alone.
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
            if piece:
                yield piece
                if not self._made_bytes % PIECE_BYTES:
                    self._check()
            # After a full piece more output may follow, even if all input is taken.
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
            self._member = zlib.decompressobj(GZIP_WBITS)
        return data
