"""The pages of an Ogg file, proven, as a file for libav.

Rule: each page has a checksum and a number in its stream (RFC 3533, 6). The file ends before the
first page that is damaged, or whose number shows that pages before it are missing; libav would pass
over both. It also ends where another recording begins: an Ogg may hold several, one after the other
(from internet radio, or joined by `cat`).
"""

import zlib
from typing import Final

from penstock.formats.source import ObjectSource

_PAGE: Final = b"OggS"
_HEAD_BYTES: Final = 27
_FIRST, _LAST = 2, 4  # these flags are in byte 5 of a page
_MOST_SIZES: Final = 255
_AHEAD_BYTES: Final = 256 << 10
# Behind the last page some programs write tags and padding, which are not pages. But if a page
# begins within this many bytes behind a page's end, the bytes between them are damage.
_JUNK_BYTES: Final = 64 << 10
_ALL_ONES: Final = 0xFFFFFFFF
# The checksum of Ogg is that of zlib with the bits of each byte, and of the sum, the other way
# round, and begins with 0.
_TURNED: Final = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


class OggFile:
    """The pages of the recording that begins at byte `at`. When all are read: `at` is where they
    end, `broken` says what is wrong there, and `is_followed` is True if another recording begins
    there. `last_granule`: the position in the last page. `pages`: how many pages have samples.
    """

    def __init__(self, source: ObjectSource, at: int) -> None:
        self.at = at
        self.broken: str | None = None
        self.is_followed = False
        self.last_granule = 0
        self.pages = 0
        self._source = source
        self._is_over = False
        self._ahead = (at, b"")  # bytes that were read ahead, and where they begin
        self._held = b""  # bytes of pages that libav has not asked for yet
        self._numbers: dict[bytes, int] = {}
        self._flags = _FIRST  # of the page before

    def read(self, size: int) -> bytes:
        parts, held_bytes = [self._held], len(self._held)
        while held_bytes < size and not self._is_over:
            parts.append(self._page())
            held_bytes += len(parts[-1])
        data = b"".join(parts)
        self._held = data[size:]
        return data[:size]

    @property
    def is_at_end(self) -> bool:
        """True if the recording's last page was read. Then no sample is behind `last_granule`."""
        return bool(self._flags & _LAST)

    def _page(self) -> bytes:
        """The next page; nothing: the recording ends here."""
        head = self._bytes(_HEAD_BYTES + _MOST_SIZES)
        if not head.startswith(_PAGE):
            if _PAGE in self._source.read(self.at, self.at + _JUNK_BYTES):
                return self._end("there is no page")
            return self._end(None if self._flags & _LAST else "its last page is not there")
        sizes = head[_HEAD_BYTES : _HEAD_BYTES + head[26]] if len(head) >= _HEAD_BYTES else b""
        page = self._bytes(_HEAD_BYTES + len(sizes) + sum(sizes))
        flags = head[5] if len(head) > 5 else 0
        if flags & _FIRST and not self._flags & _FIRST:
            self.is_followed = True
            return self._end(None)
        if len(page) < _HEAD_BYTES or len(page) < _HEAD_BYTES + head[26] + sum(sizes):
            return self._end("its last page is not all there")
        if _checksum(page[:22] + bytes(4) + page[26:]) != int.from_bytes(page[22:26], "little"):
            return self._end("a page is damaged")
        stream, number = page[14:18], int.from_bytes(page[18:22], "little")
        if self._numbers.get(stream, number) != number:
            return self._end(f"page {self._numbers[stream]} of a stream is not there")
        self._numbers[stream] = number + 1
        self._flags = flags
        granule = int.from_bytes(page[6:14], "little", signed=True)
        if granule > 0:
            self.last_granule = granule
            self.pages += 1
        self.at += len(page)
        return page

    def _end(self, broken: str | None) -> bytes:
        self._is_over = True
        self.broken = broken and f"at byte {self.at} {broken}"
        return b""

    def _bytes(self, size: int) -> bytes:
        """So many bytes from `at` on; fewer at the end of the file."""
        begin, ahead = self._ahead
        if self.at + size > begin + len(ahead):
            begin, ahead = self.at, self._source.read(self.at, self.at + _AHEAD_BYTES)
            self._ahead = (begin, ahead)
        return ahead[self.at - begin : self.at - begin + size]


def _checksum(page: bytes) -> int:
    turned = zlib.crc32(page.translate(_TURNED), _ALL_ONES) ^ _ALL_ONES
    return int(f"{turned:032b}"[::-1], 2)
