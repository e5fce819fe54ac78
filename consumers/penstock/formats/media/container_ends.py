"""Follows a container (MP4, Matroska, MPEG-TS, Ogg) while libav reads it, and finds out what is
damaged or missing.

Rule: libav passes over much damage, and does not report a missing end. What the container can prove
is proven before libav gets the bytes: checksums and lengths of the elements of a Matroska; numbers
and lengths of the fragments of an MP4; counters of the packets of an MPEG-TS; the length that a
container states. A Matroska that is too short lost its end, or a piece in the middle; its cues tell
which. Each page of an Ogg has a checksum and a number in its stream: the file that libav gets ends
before the first page that is damaged, or behind missing ones. It also ends where another recording
begins: an Ogg may hold several, one after the other (from internet radio, or joined by `cat`).
Layouts: ISO 14496-12, Matroska (RFC 9559), MPEG-TS (ISO 13818-1), Ogg (RFC 3533, 6).
"""

import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import numpy as np

from penstock.formats.source import ObjectSource, SourceFile

# At most this many headers of boxes or elements are read here. Boxes whose headers were seen while
# frames were read do not count.
_MOST_HEADS: Final = 1_000
_BOX_HEAD_BYTES: Final = 24
_TS_PACKET_BYTES: Final = 188
_SYNC: Final = ord("G")  # each packet begins with it
_EBML: Final = b"\x1a\x45\xdf\xa3"
_SEGMENT: Final = b"\x18\x53\x80\x67"
# The elements at the top: head of EBML, segment; in it the seek head, info, tracks, clusters, cues,
# attachments, chapters, tags; and padding and a checksum anywhere.
_CLUSTER: Final = b"\x1f\x43\xb6\x75"
_CUES: Final = b"\x1c\x53\xbb\x6b"
_TOP_ELEMENTS: Final = (
    _EBML, _SEGMENT, b"\x11\x4d\x9b\x74", b"\x15\x49\xa9\x66", b"\x16\x54\xae\x6b",
    _CLUSTER, _CUES, b"\x19\x41\xa4\x69", b"\x10\x43\xa7\x70",
    b"\x12\x54\xc3\x67", b"\xec", b"\xbf",
)  # fmt: skip
# An element with a checksum begins with this (RFC 8794, 11.3.1), and 4 bytes of a CRC-32. libav
# writes clusters of 5 MB. Larger ones than this are not proven, because they are held in memory.
_CRC: Final = b"\xbf\x84"
_CRC_BYTES: Final = 6
_MOST_PROVEN_BYTES: Final = 32 << 20
_ELEMENT_HEAD_BYTES: Final = 12
_NAME_BYTES: Final = 4  # at most
# Inside of a cluster its time, which comes first or behind the checksum; inside of the cues the
# points, their times, their tracks, and the places of clusters (RFC 9559, 5.1.3 and 5.1.5).
_CLUSTER_TIME: Final = b"\xe7"
_CLUSTER_HEAD_BYTES: Final = 32
_CUE_POINT, _CUE_TIME, _CUE_TRACK, _CUE_PLACE = b"\xbb", b"\xb3", b"\xb7", b"\xf1"


class Container:
    """What a container proves of itself. Of other kinds than those below it is nothing."""

    def __init__(self, source: ObjectSource) -> None:
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
        """The places before which packets of this stream are missing, or in an MP4 may be missing;
        more are added while the file is read.
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

    def __init__(self, source: ObjectSource) -> None:
        super().__init__(source)
        self._at = 0  # the begin of the first box that was not seen
        self._is_open = True
        self._is_broken = False
        self._is_fragmented = False
        self._has_movie = False
        self._second: int | None = None  # the begin of another movie, which libav does not read
        # Where the media of a fragment begin if something follows them that is no box.
        self._damaged: int | None = None
        self._number: int | None = None  # of the newest fragment
        self._holes: list[int] = []  # where fragments begin before which others are missing
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
        if self._damaged is None:
            return data
        return known[: max(0, self._damaged - start)][len(known) - len(data) :]

    def holes(self, stream: int) -> list[int]:
        return self._holes

    def _step(self, head: bytes) -> None:
        """Move on behind the box that begins here. `head`: as much of the header of this box as
        there is.
        """
        if head[4:8] == b"moof":
            self._is_fragmented = True
            if head[12:16] == b"mfhd":
                before, self._number = self._number, int.from_bytes(head[20:24], "big")
                if before is not None and self._number > before + 1:
                    self._holes.append(self._at)
        if head[4:8] == b"moov":
            if self._has_movie and self._second is None:
                self._second = self._at
            self._has_movie = True
        nbytes = int.from_bytes(head[:4], "big")
        if nbytes == 1:
            nbytes = int.from_bytes(head[8:16], "big")
        self._is_broken = nbytes != 0 and nbytes < 8
        self._is_open = nbytes >= 8  # a length of 0: the box reaches to the end of the file
        begin, self._at = self._at, self._at + nbytes
        is_media = self._is_fragmented and head[4:8] == b"mdat" and nbytes <= _MOST_PROVEN_BYTES
        if is_media and self._damaged is None:
            # All of it is read, because libav will ask for it next.
            follows = self.source.read(begin, self._at + 8)[nbytes + 4 :]
            if follows and not follows.isalnum():
                self._damaged = begin

    def missing(self) -> str | None:
        size = self.source.size
        for _ in range(_MOST_HEADS):
            if not self._is_open or self._at + 8 > size:
                break
            self._step(self.source.read(self._at, self._at + _BOX_HEAD_BYTES))
        if self._is_broken:
            return "a box has no length"
        if self._damaged is not None:
            return f"the media at byte {self._damaged} are damaged"
        if self._second is not None:
            return f"another begins at byte {self._second}; store each as an object of its own"
        if self._is_open and self._at < size < self._at + 8:
            return "its last box is not all there"
        return self._short(self._at)


class _Elements(Container):
    """Proves the top elements of a Matroska, one after the other."""

    def __init__(self, source: ObjectSource) -> None:
        super().__init__(source)
        self._at = 0  # the begin of the first element that was not seen
        # Says that the element there is damaged, or that others before it are missing.
        self._broken: str | None = None
        self._gap: int | None = None  # where other elements of the segment are missing
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
        if self._at == self._gap:
            self._broken = f"before byte {self._at} something is missing"
            return
        name, begin, length = self._head(self._at)
        stop = begin + (length or 0)
        if name == _SEGMENT:
            self._stop = None if length is None else stop
            self._at = begin
            if length is not None and stop > self.source.size:
                self._gap = self._found_gap(begin)
            return
        if length is None or not name:
            self._at = begin + self.source.size
            return
        if name not in _TOP_ELEMENTS or stop > (self._stop or stop):
            self._broken = f"at byte {self._at} there is no element"
            return
        if length <= _MOST_PROVEN_BYTES:
            # All of it is read, because libav will ask for it next.
            body = self.source.read(begin, stop + _NAME_BYTES)
            body, follows = body[:length], body[length:]
            is_other = len(follows) == _NAME_BYTES and not follows.startswith(_TOP_ELEMENTS)
            proof = _CRC + zlib.crc32(body[_CRC_BYTES:]).to_bytes(4, "little")
            has_proof = body.startswith(_CRC[:1]) and len(body) == length
            if is_other or (has_proof and not body.startswith(proof)):
                self._broken = f"the element at byte {self._at} is damaged"
                return
        self._at = stop

    def _head(self, at: int) -> tuple[bytes, int, int | None]:
        """The name of the element there, nothing if it is not all there; where its content begins;
        and its length, None if it does not say it.
        """
        head = self.source.read(at, at + _ELEMENT_HEAD_BYTES)
        try:
            _, sized = _vint(head, 0)
            length, begin = _vint(head, sized)
        except struct.error:
            return b"", self.source.size, 0
        is_unknown = length == (1 << 7 * (begin - sized)) - 1
        return head[:sized], at + begin, None if is_unknown else length

    def _found_gap(self, begin: int) -> int | None:
        """Where elements are missing from a segment that is shorter than it says. Its cues tell: of
        each cluster with a frame that can be decoded alone the place, and the time of this frame.
        None: the end is missing, or there are no cues.
        """
        clusters: dict[int, int] = {}
        cues: list[tuple[int, int]] = []
        at = begin
        for _ in range(_MOST_HEADS):
            name, start, length = self._head(at)
            if length is None or start + length > self.source.size:
                break
            if name == _CLUSTER:
                body = self.source.read(start, start + _CLUSTER_HEAD_BYTES)
                clusters[at] = _number_of(body, _CLUSTER_TIME) or 0
            elif name == _CUES and length <= _MOST_PROVEN_BYTES:
                content = self.source.read(start, start + length)
                points = [point for kind, point in _children(content) if kind == _CUE_POINT]
                cues = [cue for point in points if (cue := _cue(point)) is not None]
            at = start + length
        last = begin
        for place, time in sorted(cues):
            if clusters.get(begin + place, time + 1) > time:
                return min((start for start in clusters if start > last), default=None)
            last = begin + place
        return None


def _children(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The name and the content of each element."""
    at = 0
    with suppress(struct.error):
        while at < len(data):
            _, sized = _vint(data, at)
            length, begin = _vint(data, sized)
            yield data[at:sized], data[begin : begin + length]
            at = begin + length


def _number_of(data: bytes, name: bytes) -> int | None:
    contents = (content for kind, content in _children(data) if kind == name)
    return next((int.from_bytes(content, "big") for content in contents), None)


def _cue(point: bytes) -> tuple[int, int] | None:
    """The place of a cluster in its segment, and a time in it."""
    time = _number_of(point, _CUE_TIME)
    places = [
        _number_of(track, _CUE_PLACE) for kind, track in _children(point) if kind == _CUE_TRACK
    ]
    return (places[0], time) if places and places[0] is not None and time is not None else None


class _Packets(Container):
    """Finds the holes in each stream of an MPEG-TS: its packets are counted from 0 to 15, in a
    circle.
    """

    def __init__(self, source: ObjectSource) -> None:
        super().__init__(source)
        self._holes: defaultdict[int, list[int]] = defaultdict(list)
        self._at = 0
        self._rest = b""
        self._counts: dict[int, int] = {}
        self._is_lost = False

    def holes(self, stream: int) -> list[int]:
        return self._holes[stream]

    def missing(self) -> str | None:
        size = self.source.size
        if size % _TS_PACKET_BYTES:
            return f"{size} bytes are no whole number of packets of {_TS_PACKET_BYTES}"
        return None

    def saw(self, start: int, data: bytes) -> bytes:
        if start != self._at + len(self._rest) or self._is_lost:
            return data
        known = self._rest + data
        whole = len(known) - len(known) % _TS_PACKET_BYTES
        packets = np.frombuffer(known, np.uint8, whole).reshape(-1, _TS_PACKET_BYTES)
        (lost,) = np.nonzero(packets[:, 0] != _SYNC)
        if len(lost):
            packets, self._is_lost = packets[: lost[0]], True
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
        if self._is_lost:
            self._lose(self._at + len(packets) * _TS_PACKET_BYTES)
        self._at += whole
        self._rest = known[whole:]
        return data

    def _lose(self, place: int) -> None:
        """Here bytes are missing, so no packet begins where it should."""
        for holes in self._holes.values():
            holes.append(place)
        self._holes.default_factory = lambda: [place]


# By libav's names.
_CONTAINERS: Final = {"mov": _Boxes, "matroska": _Elements, "mpegts": _Packets}


class FollowedFile(SourceFile):
    """The object as an open file for libav, followed as a container of this kind. It ends before
    the first part of which the container proves that it is damaged.
    """

    def __init__(self, source: ObjectSource, container: str) -> None:
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
