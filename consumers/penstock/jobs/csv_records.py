"""Cuts the bytes of a CSV list into records, however they arrive.

Rule: a record ends at a line end outside quotes. Memory is bounded by one piece of text and one
record. Gzip is found by its first bytes. Owner: the reading of one list.
"""

import csv
import io
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Iterator

from penstock.messages.errors import SchemaError

GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 31
# Text unpacked at a time: about 10,000 records.
PIECE_BYTES = 1 << 20
# A record of a list has two names of at most 1,024 bytes, and some short fields.
MOST_RECORD_BYTES = 1 << 20


class Records:
    """`feed` it bytes, and `close` it at their end. Raises `SchemaError`."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._encoding = "utf-8-sig"  # only the first text may begin with a byte order mark

    def feed(self, data: bytes) -> list[list[str]]:
        """The records that are complete by now."""
        self._rest += data
        end = _end_of_records(self._rest)
        if not end and len(self._rest) > MOST_RECORD_BYTES:
            raise SchemaError(f"a record has more than {MOST_RECORD_BYTES:,} bytes: no CSV list")
        return self._taken(end)

    def close(self) -> list[list[str]]:
        return self._taken(len(self._rest))

    def _taken(self, end: int) -> list[list[str]]:
        if not end:
            return []
        try:
            text = self._rest[:end].decode(self._encoding)
            found = list(csv.reader(io.StringIO(text, newline=""), strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            raise SchemaError(f"no CSV in UTF-8: {error}") from None
        self._encoding = "utf-8"
        del self._rest[:end]
        return [record for record in found if record]


def _end_of_records(data: bytearray) -> int:
    """Behind the last line end that no quotes enclose. Quotes inside of quotes are doubled, so an
    odd number of them before a place means that it is enclosed. Each byte is looked at twice,
    however many line ends are enclosed.
    """
    end = data.rfind(b"\n") + 1
    quotes = data.count(b'"', 0, end)
    while end and quotes % 2:
        before = data.rfind(b"\n", 0, data.rfind(b'"', 0, end)) + 1
        quotes -= data.count(b'"', before, end)
        end = before
    return end


async def unpacked(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The text of chunks that may be gzipped, in pieces."""
    unpacker: _Gzip | None = None
    is_first = True
    async for chunk in chunks:
        if is_first and chunk.startswith(GZIP):
            unpacker = _Gzip()
        is_first = False
        for piece in unpacker.feed(chunk) if unpacker is not None else [chunk]:
            yield piece
    if unpacker is not None and not unpacker.is_whole:
        raise SchemaError("the gzip file breaks off: its end is missing")


class _Gzip:
    """Several members one after the other are one text."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP_WINDOW)
        self.is_whole = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            while data:
                if self._member.eof:
                    self._member = zlib.decompressobj(_GZIP_WINDOW)
                piece = self._member.decompress(data, PIECE_BYTES)
                data = self._member.unused_data or self._member.unconsumed_tail
                self.is_whole = self._member.eof
                if piece:
                    yield piece
            while not self._member.eof and (piece := self._member.decompress(b"", PIECE_BYTES)):
                yield piece
        except zlib.error as error:
            raise SchemaError(f"no gzip: {error}") from None
