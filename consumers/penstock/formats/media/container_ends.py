"""Finds out where a recording or a video ends, and whether its container says that something is
missing.

Rule: the decoding libraries do not report a missing end. A missing end is found here by the lengths
that the container states, if it states any. Only headers are read, each of a few bytes. An Ogg file
may hold several recordings one after the other (from internet radio, or joined by `cat`). The
libraries read only the first of them, so the begin of each recording is found here, too. Layouts:
RIFF (Microsoft), ISO 14496-12, Matroska (RFC 9559), MPEG-TS (ISO 13818-1), Ogg (RFC 3533, 6 and 4).
"""

import struct
from typing import Final, NamedTuple

from penstock.formats.base.source import Source

# At most this many headers are read here, of the boxes of an MP4 or of the chunks of a WAV. Boxes
# whose headers were seen while frames were read do not count.
_MOST_BOXES: Final = 1_000
_BOX_HEAD_BYTES: Final = 16
_TS_PACKET_BYTES: Final = 188
_EBML: Final = b"\x1a\x45\xdf\xa3"
_SEGMENT: Final = b"\x18\x53\x80\x67"
_OGG_PAGE: Final = b"OggS"
_OGG_HEAD_BYTES: Final = 27
_OGG_MOST_SEGMENTS: Final = 255
_OGG_FIRST, _OGG_LAST = 2, 4  # these flags are in byte 5 of a page
# Behind the last page some programs write tags and padding, which are not pages. But if a page
# begins within this many bytes behind a page's end, the bytes between them are damage.
_OGG_JUNK_BYTES: Final = 64 << 10
_BOXES: Final = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"styp", b"moof", b"sidx")


class Boxes:
    """Follows the boxes of an MP4 from one to the next. Call `saw` with the bytes that are read for
    the frames; then even the headers of a thousand fragments need no reads of their own. `at`: the
    begin of the first box that was not seen.
    """

    def __init__(self) -> None:
        self.at = 0
        self.is_open = True
        self.is_broken = False
        self._tail = (0, b"")

    def saw(self, start: int, data: bytes) -> None:
        """Call this with all bytes that were read for the frames."""
        before, tail = self._tail
        if before + len(tail) == start:
            start, data = before, tail + data
        while self.is_open and start <= self.at <= start + len(data) - _BOX_HEAD_BYTES:
            self.step(data[self.at - start : self.at - start + _BOX_HEAD_BYTES])
        self._tail = (start + max(0, len(data) - _BOX_HEAD_BYTES), data[-_BOX_HEAD_BYTES:])

    def step(self, head: bytes) -> None:
        """Move `at` behind the box that begins there. `head`: as much of the header of this box as
        there is.
        """
        nbytes = int.from_bytes(head[:4], "big")
        if nbytes == 1:
            nbytes = int.from_bytes(head[8:16], "big")
        self.is_broken = nbytes != 0 and nbytes < 8
        self.is_open = nbytes >= 8  # a length of 0 says that the box reaches to the end of the file
        self.at += nbytes


def breaks_off(source: Source, boxes: Boxes | None = None) -> str | None:
    """What is missing, as a text for people; None: nothing is missing. `boxes`: the `Boxes` that
    have followed the file while its frames were read, if there are any.
    """
    head, size = source.read(0, 64), source.size
    try:
        if head.startswith((b"RIFF", b"RF64")) and head[8:12] == b"WAVE":
            return _wave(source)
        if head.startswith(_EBML):
            return _matroska(head, size)
        if head[4:8] in _BOXES:
            return _boxes(source, boxes or Boxes())
    except struct.error:
        return "its header is not all there"
    if is_transport_stream(source.read(0, 512)) and size % _TS_PACKET_BYTES:
        return f"{size} bytes are no whole number of packets of {_TS_PACKET_BYTES}"
    return None


def is_transport_stream(head: bytes) -> bool:
    """True if each packet begins with `G`, and if there is a NUL among the bytes. A text may have a
    `G` in all these places, but it has no NUL.
    """
    return bool(head) and set(head[:512:_TS_PACKET_BYTES]) == {ord("G")} and b"\0" in head


def _short(promised: int, size: int) -> str | None:
    return f"it should have {promised} bytes and has {size}" if promised > size else None


def _wave(source: Source) -> str | None:
    """`breaks_off` for a WAV, by the length of its chunk `data`. A writer that cannot seek back
    leaves this length as 0 or as all ones. If it is all ones, libsndfile reads samples up to the
    end of the file. If it is 0, libsndfile reads no samples.
    """
    at, size = 12, source.size
    while at + 8 <= size:
        name, nbytes = struct.unpack("<4sI", source.read(at, at + 8))
        if name == b"data" and not nbytes:
            return _after_nothing(source, at + 8)
        if name == b"data":
            return None if nbytes == 0xFFFFFFFF else _short(at + 8 + nbytes, size)
        at += 8 + nbytes + nbytes % 2
    return "it has no samples"


def _after_nothing(source: Source, begin: int) -> str | None:
    """Checks what follows a chunk `data` of length 0. Whole chunks up to the end of the file are
    allowed. All other bytes are samples, and libsndfile would not read them.
    """
    at, size = begin, source.size
    for _ in range(_MOST_BOXES):
        if at + 8 > size:
            break
        name, nbytes = struct.unpack("<4sI", source.read(at, at + 8))
        if not name.strip().isalnum():
            break
        at += 8 + nbytes + nbytes % 2
    if at in (size, size + 1):
        return None
    return f"its header says 0 bytes of samples, and {size - begin} follow: write it to no pipe"


def _matroska(head: bytes, size: int) -> str | None:
    """`breaks_off` for a Matroska file, by the length of its segment, which reaches from the header
    to the end. Live streams do not state this length.
    """
    header, begin = _vint(head, 4)
    at = begin + header
    if head[at : at + 4] != _SEGMENT:
        return None
    length, begin = _vint(head, at + 4)
    unknown = length == (1 << 7 * (begin - at - 4)) - 1
    return None if unknown else _short(begin + length, size)


def _vint(data: bytes, at: int) -> tuple[int, int]:
    """Returns two things: the number of variable length that begins at `at`, and the place where it
    ends.
    """
    first = data[at] if at < len(data) else 0
    nbytes = 9 - first.bit_length()
    if not first or at + nbytes > len(data):
        raise struct.error("a number that is not all there")
    value = int.from_bytes(data[at : at + nbytes], "big")
    return value & (1 << 7 * nbytes) - 1, at + nbytes


def _boxes(source: Source, boxes: Boxes) -> str | None:
    size = source.size
    for _ in range(_MOST_BOXES):
        if not boxes.is_open or boxes.at + 8 > size:
            break
        boxes.step(source.read(boxes.at, boxes.at + _BOX_HEAD_BYTES))
    if boxes.is_broken:
        return "a box has no length"
    return _short(boxes.at, size) or (
        "its last box is not all there"
        if boxes.is_open and boxes.at + 8 > size != boxes.at
        else None
    )


class OggParts(NamedTuple):
    """Where each recording of an Ogg file begins, and where the last one stops. `broken`: a text
    that says how the file ends early; None: the file does not end early.
    """

    begins: list[int]
    stop: int
    broken: str | None


def ogg_parts(source: Source) -> OggParts:
    """Find the recordings of an Ogg file. Each page's header is read once, and leads to the next
    page.
    """
    begins: list[int] = []
    at, was_first, is_last = 0, False, False
    while at < source.size:
        head = source.read(at, at + _OGG_HEAD_BYTES + _OGG_MOST_SEGMENTS)
        if not head.startswith(_OGG_PAGE):
            break
        stop = _page_end(head, at)
        if stop is None or stop > source.size:
            return OggParts(begins or [0], source.size, "its last page is not all there")
        is_first, is_last = bool(head[5] & _OGG_FIRST), bool(head[5] & _OGG_LAST)
        # If a recording has several streams (one may be a picture), the first pages of all its
        # streams follow each other.
        if is_first and not was_first:
            begins.append(at)
        at, was_first = stop, is_first
    begins = begins or [0]
    if _OGG_PAGE in source.read(at, at + _OGG_JUNK_BYTES):
        return OggParts(begins, source.size, f"at byte {at} there is no page")
    return OggParts(begins, at, None if is_last else "its last page is not there")


def _page_end(head: bytes, at: int) -> int | None:
    """Where the page ends; None: its header breaks off."""
    if len(head) < _OGG_HEAD_BYTES or len(head) < _OGG_HEAD_BYTES + head[26]:
        return None
    return at + _OGG_HEAD_BYTES + head[26] + sum(head[_OGG_HEAD_BYTES : _OGG_HEAD_BYTES + head[26]])
