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


class Container:
    """What a container proves of itself. Of other kinds than those below it is nothing."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @property
    def states_end(self) -> bool:
        """True if the container says where it ends. Call this when all was read."""
        return False

    def saw(self, start: int, data: bytes) -> bytes:
        """Call this with all bytes that are read for the frames. Returns those before the first
        part that is damaged.
        """
        return data

    def holes(self, stream: int) -> list[int]:
        """The places before which packets of this stream are missing; more are added while the file
        is read.
        """
        return []

    def missing(self) -> str | None:
        """Call this when all was read: what is damaged or missing, as a text for people."""
        return None

    def _short(self, promised: int) -> str | None:
        size = self.source.size
        return f"it should have {promised} bytes and has {size}" if promised > size else None


class _Boxes(Container):
    """Follows the boxes of an MP4 from one to the next. Most headers are seen in the bytes that are
    read for the frames; so even those of a thousand fragments need no reads of their own.
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._at = 0  # the begin of the first box that was not seen
        self._is_open = True
        self._is_broken = False
        self._is_fragmented = False
        self._has_movie = False
        self._second: int | None = None  # the begin of another movie, which libav does not read
        self._tail = (0, b"")

    @property
    def states_end(self) -> bool:
        return not self._is_fragmented

    def saw(self, start: int, data: bytes) -> bytes:
        before, tail = self._tail
        known = data
        if before + len(tail) == start:
            start, known = before, tail + data
        while self._is_open and start <= self._at <= start + len(known) - _BOX_HEAD_BYTES:
            self._step(known[self._at - start : self._at - start + _BOX_HEAD_BYTES])
        self._tail = (start + max(0, len(known) - _BOX_HEAD_BYTES), known[-_BOX_HEAD_BYTES:])
        return data

    def _step(self, head: bytes) -> None:
        """Move on behind the box that begins here. `head`: as much of the header of this box as
        there is.
        """
        self._is_fragmented |= head[4:8] == b"moof"
        if head[4:8] == b"moov":
            if self._has_movie and self._second is None:
                self._second = self._at
            self._has_movie = True
        nbytes = int.from_bytes(head[:4], "big")
        if nbytes == 1:
            nbytes = int.from_bytes(head[8:16], "big")
        self._is_broken = nbytes != 0 and nbytes < 8
        self._is_open = nbytes >= 8  # a length of 0: the box reaches to the end of the file
        self._at += nbytes

    def missing(self) -> str | None:
        size = self.source.size
        for _ in range(_MOST_BOXES):
            if not self._is_open or self._at + 8 > size:
                break
            self._step(self.source.read(self._at, self._at + _BOX_HEAD_BYTES))
        if self._is_broken:
            return "a box has no length"
        if self._second is not None:
            return f"another begins at byte {self._second}; store each as an object of its own"
        if self._is_open and self._at < size < self._at + 8:
            return "its last box is not all there"
        return self._short(self._at)


class _Elements(Container):
    """Proves the top elements of a Matroska, one after the other."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._at = 0  # the begin of the first element that was not seen
        self._broken: str | None = None  # says that the element there is damaged
        # Where the segment says that it ends. Live streams do not say it.
        self._stop: int | None = None

    @property
    def states_end(self) -> bool:
        return self._stop is not None

    def saw(self, start: int, data: bytes) -> bytes:
        while start <= self._at < start + len(data) and self._broken is None:
            self._step()
        return data if self._broken is None else data[: max(0, self._at - start)]

    def missing(self) -> str | None:
        return self._broken or self._short(self._stop or 0)

    def _step(self) -> None:
        """Move `at` behind the element that begins there, or to the begin of its content."""
        head = self.source.read(self._at, self._at + _ELEMENT_HEAD_BYTES)
        try:
            _, sized = _vint(head, 0)
            length, begin = _vint(head, sized)
        except struct.error:
            length, begin, sized = 0, self.source.size, 0
        stop = self._at + begin + length
        is_unknown = length == (1 << 7 * (begin - sized)) - 1
        if head[:sized] == _SEGMENT:
            self._stop = None if is_unknown else stop
            length = 0
        elif is_unknown:
            length = self.source.size
        elif sized and (head[:sized] not in _TOP_ELEMENTS or stop > (self._stop or stop)):
            self._broken = f"at byte {self._at} there is no element"
            return
        if head[begin : begin + 1] == _CRC[:1] and length <= _MOST_PROVEN_BYTES:
            body = self.source.read(self._at + begin, self._at + begin + length)
            proof = _CRC + zlib.crc32(body[_CRC_BYTES:]).to_bytes(4, "little")
            if len(body) == length and not body.startswith(proof):
                self._broken = f"the element at byte {self._at} is damaged"
                return
        self._at += begin + length


class _Packets(Container):
    """Finds the holes in each stream of an MPEG-TS: its packets are counted from 0 to 15, in a
    circle.
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._holes: defaultdict[int, list[int]] = defaultdict(list)
        self._at = 0
        self._rest = b""
        self._counts: dict[int, int] = {}

    def holes(self, stream: int) -> list[int]:
        return self._holes[stream]

    def missing(self) -> str | None:
        size = self.source.size
        if size % _TS_PACKET_BYTES:
            return f"{size} bytes are no whole number of packets of {_TS_PACKET_BYTES}"
        return None

    def saw(self, start: int, data: bytes) -> bytes:
        if start != self._at + len(self._rest):
            return data
        known = self._rest + data
        whole = len(known) - len(known) % _TS_PACKET_BYTES
        packets = np.frombuffer(known, np.uint8, whole).reshape(-1, _TS_PACKET_BYTES)
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
            self._holes[stream] += (self._at + places[is_hole] * _TS_PACKET_BYTES).tolist()
            self._counts[stream] = counts[-1]
        self._at += whole
        self._rest = known[whole:]
        return data


# By libav's names.
_CONTAINERS: Final = {"mov": _Boxes, "matroska": _Elements, "mpegts": _Packets}


class FollowedFile(SourceFile):
    """The object as an open file for libav, followed as a container of this kind. It ends before
    the first part of which the container proves that it is damaged.
    """

    def __init__(self, source: Source, container: str) -> None:
        super().__init__(source)
        self.container = _CONTAINERS.get(container, Container)(source)

    def read(self, size: int | None = -1) -> bytes:
        start = self.tell()
        data = self.container.saw(start, super().read(size))
        self.seek(start + len(data))
        return data


def is_transport_stream(head: bytes) -> bool:
    """True if each packet begins with `G`, and if there is a NUL among the bytes. A text may have a
    `G` in all these places, but it has no NUL.
    """
    return bool(head) and set(head[:512:_TS_PACKET_BYTES]) == {ord("G")} and b"\0" in head


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
