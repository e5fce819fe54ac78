"""Does a recording or a video end where its own container says that it does?

Rule: the decoding libraries ignore a missing end; here it is found by the lengths at the beginning,
if the container has them. Only a few bytes are read in several places. Layouts: RIFF (Microsoft),
ISO 14496-12, Matroska (RFC 9559), MPEG-TS (ISO 13818-1).
"""

import struct
from typing import Final

from penstock.formats.base.source import Source

# At most this many headers of boxes are read separately; those seen while frames were read are
# free.
_MOST_BOXES: Final = 1_000
_BOX_HEAD_BYTES: Final = 16
_TS_PACKET_BYTES: Final = 188
_EBML: Final = b"\x1a\x45\xdf\xa3"
_SEGMENT: Final = b"\x18\x53\x80\x67"
_BOXES: Final = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"styp", b"moof", b"sidx")


class Boxes:
    """Follows the boxes of an MP4 while others read it, so that a thousand fragments need no reads
    of their own. `at`: where the next box begins that was not seen.
    """

    def __init__(self) -> None:
        self.at = 0
        self.is_open = True
        self.is_broken = False
        self._tail = (0, b"")

    def saw(self, start: int, data: bytes) -> None:
        """The reader of frames has read these bytes."""
        before, tail = self._tail
        if before + len(tail) == start:
            start, data = before, tail + data
        while self.is_open and start <= self.at <= start + len(data) - _BOX_HEAD_BYTES:
            self.step(data[self.at - start : self.at - start + _BOX_HEAD_BYTES])
        self._tail = (start + max(0, len(data) - _BOX_HEAD_BYTES), data[-_BOX_HEAD_BYTES:])

    def step(self, head: bytes) -> None:
        """Go on by the box at `at`, with as much of its header as there is."""
        nbytes = int.from_bytes(head[:4], "big")
        if nbytes == 1:
            nbytes = int.from_bytes(head[8:16], "big")
        self.is_broken = nbytes != 0 and nbytes < 8
        self.is_open = nbytes >= 8  # 0: to the end of the file
        self.at += nbytes


def breaks_off(source: Source, boxes: Boxes | None = None) -> str | None:
    """A text for people about the missing part, or None. `boxes` followed the file so far."""
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
    """Does each packet begin as it must? Text that does so by chance lacks the other bytes."""
    return bool(head) and set(head[:512:_TS_PACKET_BYTES]) == {ord("G")} and b"\0" in head


def _short(promised: int, size: int) -> str | None:
    return f"it should have {promised} bytes and has {size}" if promised > size else None


def _wave(source: Source) -> str | None:
    """Looks for the chunk `data`. A writer that could not seek back left its length as 0 or all
    ones: with all ones the samples are read to the end of the file, with 0 none are read.
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
    """After an empty `data`, whole chunks may follow up to the end; any other bytes are samples."""
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
    """The segment reaches from the header to the end; live streams do not state its length."""
    header, begin = _vint(head, 4)
    at = begin + header
    if head[at : at + 4] != _SEGMENT:
        return None
    length, begin = _vint(head, at + 4)
    unknown = length == (1 << 7 * (begin - at - 4)) - 1
    return None if unknown else _short(begin + length, size)


def _vint(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
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
