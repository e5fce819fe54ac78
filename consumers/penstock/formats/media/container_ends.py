"""Follows a container while libav reads it, and finds out what is damaged or missing.

Rule: libav passes over much damage, and does not report a missing end. What the container can prove
is proven here: the checksums of the elements of a Matroska, before libav gets their bytes; the
counters of the packets of an MPEG-TS; and the lengths that a container states, if it states any.
Of an MP4 only headers are read, each of a few bytes. Layouts: ISO 14496-12, Matroska (RFC 9559),
MPEG-TS (ISO 13818-1).
"""

import struct
import zlib
from collections import defaultdict
from typing import Final

import numpy as np

from penstock.formats.base.source import Source, SourceFile

# At most this many headers of boxes are read here. Boxes whose headers were seen while frames were
# read do not count.
_MOST_BOXES: Final = 1_000
_BOX_HEAD_BYTES: Final = 16
_TS_PACKET_BYTES: Final = 188
_EBML: Final = b"\x1a\x45\xdf\xa3"
_SEGMENT: Final = b"\x18\x53\x80\x67"
# The elements at the top: head of EBML, segment; in it the seek head, info, tracks, clusters, cues,
# attachments, chapters, tags; and padding and a checksum anywhere.
_TOP_ELEMENTS: Final = (
    _EBML, _SEGMENT, b"\x11\x4d\x9b\x74", b"\x15\x49\xa9\x66", b"\x16\x54\xae\x6b",
    b"\x1f\x43\xb6\x75", b"\x1c\x53\xbb\x6b", b"\x19\x41\xa4\x69", b"\x10\x43\xa7\x70",
    b"\x12\x54\xc3\x67", b"\xec", b"\xbf",
)  # fmt: skip
# An element with a checksum begins with this (RFC 8794, 11.3.1), and 4 bytes of a CRC-32. libav
# writes clusters of 5 MB. Larger ones than this are not proven, because they are held in memory.
_CRC: Final = b"\xbf\x84"
_CRC_BYTES: Final = 6
_MOST_PROVEN_BYTES: Final = 32 << 20
_ELEMENT_HEAD_BYTES: Final = 12 + len(_CRC)
_BOXES: Final = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"styp", b"moof", b"sidx")


class Boxes:
    """Follows the boxes of an MP4 from one to the next. Call `saw` with the bytes that are read for
    the frames; then even the headers of a thousand fragments need no reads of their own. `at`: the
    begin of the first box that was not seen. `second`: the begin of another movie, which libav does
    not read.
    """

    def __init__(self) -> None:
        self.at = 0
        self.is_open = True
        self.is_broken = False
        self.is_fragmented = False
        self.second: int | None = None
        self._has_movie = False
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
        self.is_fragmented |= head[4:8] == b"moof"
        if head[4:8] == b"moov":
            if self._has_movie and self.second is None:
                self.second = self.at
            self._has_movie = True
        nbytes = int.from_bytes(head[:4], "big")
        if nbytes == 1:
            nbytes = int.from_bytes(head[8:16], "big")
        self.is_broken = nbytes != 0 and nbytes < 8
        self.is_open = nbytes >= 8  # a length of 0 says that the box reaches to the end of the file
        self.at += nbytes


class _Elements:
    """Proves the top elements of a Matroska, one after the other. `at`: the begin of the first that
    was not seen. `broken`: says that the element at `at` is damaged.
    """

    def __init__(self, source: Source) -> None:
        self.at = 0
        self.broken: str | None = None
        self._source = source
        self.stop: int | None = None  # where the segment says that it ends

    def step(self) -> None:
        """Move `at` behind the element that begins there, or to the begin of its content."""
        head = self._source.read(self.at, self.at + _ELEMENT_HEAD_BYTES)
        try:
            _, sized = _vint(head, 0)
            length, begin = _vint(head, sized)
        except struct.error:
            length, begin, sized = 0, self._source.size, 0
        stop = self.at + begin + length
        is_unknown = length == (1 << 7 * (begin - sized)) - 1
        if head[:sized] == _SEGMENT:
            self.stop = None if is_unknown else stop
            length = 0
        elif is_unknown:
            length = self._source.size
        elif sized and (head[:sized] not in _TOP_ELEMENTS or stop > (self.stop or stop)):
            self.broken = f"at byte {self.at} there is no element"
            return
        if head[begin : begin + 1] == _CRC[:1] and length <= _MOST_PROVEN_BYTES:
            body = self._source.read(self.at + begin, self.at + begin + length)
            proof = _CRC + zlib.crc32(body[_CRC_BYTES:]).to_bytes(4, "little")
            if len(body) == length and not body.startswith(proof):
                self.broken = f"the element at byte {self.at} is damaged"
                return
        self.at += begin + length


class _Counters:
    """Finds the holes in each stream of an MPEG-TS: its packets are counted from 0 to 15, in a
    circle. `holes`: for each stream, the places of the packets before which others are missing.
    """

    def __init__(self) -> None:
        self.holes: defaultdict[int, list[int]] = defaultdict(list)
        self._at = 0
        self._rest = b""
        self._counts: dict[int, int] = {}

    def saw(self, start: int, data: bytes) -> None:
        """Call this with all bytes that are read for the frames."""
        if start != self._at + len(self._rest):
            return
        data = self._rest + data
        whole = len(data) - len(data) % _TS_PACKET_BYTES
        packets = np.frombuffer(data, np.uint8, whole).reshape(-1, _TS_PACKET_BYTES)
        streams = (packets[:, 1].astype(np.int64) & 0x1F) << 8 | packets[:, 2]
        flags = packets[:, 3]
        # A packet may say that the count begins anew. Packets without content are not counted.
        is_new = (flags & 0x20 > 0) & (packets[:, 4] > 0) & (packets[:, 5] & 0x80 > 0)
        is_counted = flags & 0x10 > 0
        for stream in np.unique(streams).tolist():
            (places,) = np.nonzero((streams == stream) & is_counted)
            if not len(places):
                continue
            counts = flags[places] & 0xF
            before = np.roll(counts, 1)
            before[0] = self._counts.get(stream, counts[0])
            # A packet may come twice.
            is_hole = ((counts - before) & 0xF > 1) & ~is_new[places]
            self.holes[stream] += (self._at + places[is_hole] * _TS_PACKET_BYTES).tolist()
            self._counts[stream] = counts[-1]
        self._at += whole
        self._rest = data[whole:]


class FollowedFile(SourceFile):
    """The object as an open file for libav, followed as a container of this kind. It ends before
    the first part of which the container proves that it is damaged.
    """

    def __init__(self, source: Source, container: str) -> None:
        super().__init__(source)
        self._container = container
        self._boxes = Boxes()
        self._counters = _Counters() if container == "mpegts" else None
        self._elements = _Elements(source) if container == "matroska" else None

    def read(self, size: int | None = -1) -> bytes:
        start = self.tell()
        data = super().read(size)
        self._boxes.saw(start, data)
        if self._counters is not None:
            self._counters.saw(start, data)
        elements = self._elements
        if elements is not None:
            while start <= elements.at < start + len(data) and elements.broken is None:
                elements.step()
            if elements.broken is not None and start + len(data) > elements.at:
                data = data[: max(0, elements.at - start)]
                self.seek(start + len(data))
        return data

    @property
    def states_end(self) -> bool:
        """True if the container says where it ends. Call this when all was read."""
        if self._elements is not None:
            return self._elements.stop is not None
        return self._container == "mov" and not self._boxes.is_fragmented

    def holes(self, stream: int) -> list[int]:
        """The places before which packets of this stream are missing; more are added while the file
        is read.
        """
        return self._counters.holes[stream] if self._counters is not None else []

    def missing(self) -> str | None:
        """Call this when all was read: what is damaged or missing, as a text for people."""
        broken = self._elements.broken if self._elements is not None else None
        return broken or missing_end(self._source, self._boxes)


def missing_end(source: Source, boxes: Boxes | None = None) -> str | None:
    """What is missing, as a text for people; None: nothing is missing. `boxes`: the `Boxes` that
    have followed the file while its frames were read, if there are any.
    """
    head, size = source.read(0, 64), source.size
    try:
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


def _matroska(head: bytes, size: int) -> str | None:
    """`missing_end` for a Matroska file, by the length of its segment, which reaches from the
    header to the end. Live streams do not state this length.
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
    if boxes.second is not None:
        return f"another begins at byte {boxes.second}; store each as an object of its own"
    return _short(boxes.at, size) or (
        "its last box is not all there"
        if boxes.is_open and boxes.at + 8 > size != boxes.at
        else None
    )
