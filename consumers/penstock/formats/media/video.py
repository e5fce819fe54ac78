"""Reads videos. Each frame is a row; if `rows.fps` is set, only so many frames a second are rows.

Rule: the first bytes tell the container. Containers that name other files are not read. Time counts
from the first frame and never goes back. If another file was joined to the first one, the file's
clock begins again there, but our clock goes on. If a packet cannot be decoded, the object ends
there: the frames before the packet are rows. Owner: one reading of one object.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from penstock.core.rows.payload import BytesRows, Form, Payload
from penstock.errors import Poison
from penstock.formats.base.runs import RowOptions, Run
from penstock.formats.base.source import Source, SourceFile
from penstock.formats.magic import iso_media, no_such
from penstock.formats.media.container_ends import Boxes, breaks_off, is_transport_stream
from penstock.formats.media.decoding import Gathered, reader
from penstock.formats.pictures.image import jpeg, scaled_frame
from penstock.formats.pictures.pixels import PictureOptions, Rgb

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.reformatter import VideoReformatter
    from av.video.stream import VideoStream

EXTENSIONS: Final = (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".ts")

# libav reads this much at a time.
BUFFER_BYTES: Final = 256 << 10
_BOXES: Final = (b"ftyp", b"moov", b"moof", b"styp", b"mdat", b"wide", b"free")
_HEAD_BYTES: Final = 512
# Where two files were joined, libav marks a packet as damaged although it is not. The file's clock
# begins again at most this many packets later.
_END_PACKETS: Final = 3
_NO_TURN: Final = np.array([1, 0, 0, 0, 1], "<i4")
# No time is above this, about 30 years, because a frame may have a nonsensical time stamp.
_MOST_MS: Final = 10**12


@dataclass(frozen=True, slots=True)
class VideoOptions:
    """`fps`: at most this many frames a second become rows; None: all frames do."""

    fps: float | None = None


def looks(head: bytes) -> bool:
    return container_of(head) is not None


def container_of(head: bytes) -> str | None:
    """libav's name for the container that begins with `head`. None: videos in such data are not
    read.
    """
    if head[4:8] in _BOXES and head[:1] == b"\0":
        return "mov" if iso_media(head) in ("video", None) else None
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        return "matroska"
    return "mpegts" if is_transport_stream(head) else None


class _Followed(SourceFile):
    """The object as an open file. All bytes that are read from this file are shown to `boxes`."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.boxes = Boxes()

    def read(self, size: int | None = -1) -> bytes:
        start = self.tell()
        data = super().read(size)
        self.boxes.saw(start, data)
        return data


def _decode(source: Source, options: RowOptions, gathered: Gathered) -> Iterator[Run]:
    import av  # noqa: PLC0415 (an extra, loaded when it is asked for)
    import av.error  # noqa: PLC0415

    head = source.read(0, _HEAD_BYTES)
    container = container_of(head)
    if container is None:
        raise no_such("MP4, MKV, WebM or MPEG-TS", head)
    file = _Followed(source)
    try:
        with av.open(
            file, "r", format=container, buffer_size=BUFFER_BYTES, metadata_errors="replace"
        ) as opened:
            yield from _frames(options, opened, gathered)
    # ZeroDivisionError: PyAV divides by the time base of a frame, which may be 0.
    except (av.error.FFmpegError, ValueError, ZeroDivisionError, OverflowError) as error:
        raise Poison("bad_format", f"the video cannot be decoded: {error}") from error
    broken = breaks_off(source, file.boxes)
    if broken is not None:
        raise Poison("bad_format", f"the video breaks off: {broken}")


read_video: Final = reader("video", _decode)


def _frames(options: RowOptions, opened: "InputContainer", gathered: Gathered) -> Iterator[Run]:
    from av.video.reformatter import VideoReformatter  # noqa: PLC0415

    # All frames share one reformatter. If each frame had a reformatter of its own, that would start
    # threads, which live as long as the frame.
    colours = VideoReformatter()
    stream = _stream(opened)
    stream.codec_context.thread_count = 1
    own = options.of(PictureOptions)
    _check_pixels(own, stream.codec_context.width, stream.codec_context.height)
    due, clock, damage = _Due(options.of(VideoOptions).fps), _Clock(stream), _Damage()
    for packet in opened.demux(stream):
        damage.saw(packet)
        for frame in packet.decode():
            since = clock.since_first(frame)
            if not due.wants(since):
                continue
            _check_pixels(own, frame.width, frame.height)
            time_ms = int(min(_MOST_MS, max(0, round(since * 1000))))
            yield from gathered.add(partial(_row, own, options.form, frame, colours), time_ms)
    yield from gathered.rest()
    if damage.is_there:
        raise Poison("bad_format", "the video has packets that are damaged or not all there")


def _stream(opened: "InputContainer") -> "VideoStream":
    """The first video stream that is not a cover picture."""
    for stream in opened.streams.video:
        # PyAV gives None for a codec that its libraries lack, although PyAV's types exclude None.
        context: object = stream.codec_context
        if context is None:
            raise Poison("bad_format", "the video is of a codec that is not known")
        if "attached_pic" not in str(stream.disposition).lower():
            return stream
    raise Poison("bad_format", "there is no video in it")


def _check_pixels(own: PictureOptions, width: int, height: int) -> None:
    if width * height > own.pixels:
        raise Poison(
            "too_large",
            f"the video has {width} x {height} pixels, more than {own.pixels} (limits.pixels)",
        )


def _row(
    own: PictureOptions, form: Form, frame: "VideoFrame", colours: "VideoReformatter"
) -> Payload:
    plain = colours.reformat(frame, format="rgb24", threads=1)
    rgb: Rgb = plain.to_ndarray().astype(np.uint8, copy=False)
    rgb = _upright(rgb, _matrix(frame))
    if own.image is None:
        return BytesRows.of([jpeg(rgb)])
    size = (own.image.width, own.image.height)
    return own.image.row(scaled_frame(rgb, size), form)


def _matrix(frame: "VideoFrame") -> tuple[int, int, int, int]:
    """The part of the display matrix that turns the frame (ISO 14496-12, 8.2.2)."""
    found: Any = frame.side_data.get("DISPLAYMATRIX")
    numbers = np.frombuffer(bytes(found), "<i4") if found is not None else _NO_TURN
    return int(numbers[0]), int(numbers[1]), int(numbers[3]), int(numbers[4])


def _upright(rgb: Rgb, matrix: tuple[int, int, int, int]) -> Rgb:
    """The upright picture. It is turned by a multiple of 90 degrees, the one nearest to the matrix,
    and is mirrored if the matrix says so.
    """
    across_x, across_y, down_x, down_y = matrix
    if abs(across_y) > abs(across_x):
        rgb, flips_x, flips_y = rgb.transpose(1, 0, 2), down_x < 0, across_y < 0
    else:
        flips_x, flips_y = across_x < 0, down_y < 0
    rgb = rgb[:: -1 if flips_y else 1, :: -1 if flips_x else 1]
    return np.ascontiguousarray(rgb)


class _Clock:
    """Computes the seconds since the first frame. If a frame has no time stamp, or an earlier one
    than the frame before, its time is the time of the frame before plus the average distance
    between frames.
    """

    def __init__(self, stream: "VideoStream") -> None:
        rate = stream.average_rate
        self._step = 1 / Fraction(rate) if rate else Fraction(0)
        self._first: Fraction | None = None
        self._last = Fraction(0)
        self._ahead = Fraction(0)  # by how much our clock is ahead of the file's clock

    def since_first(self, frame: "VideoFrame") -> Fraction:
        if frame.pts is None or frame.time_base is None:
            now = self._last + self._step
        else:
            now = frame.pts * Fraction(frame.time_base) + self._ahead
        if self._first is None:
            self._first = now
        elif now < self._last:
            self._ahead += self._last + self._step - now
            now = self._last + self._step
        self._last = now
        return now - self._first


class _Damage:
    """Watches for damaged packets. Where two files were joined, libav marks some packets as damaged
    although they are not. Such packets are recognised because the file's clock begins again soon
    after them.
    """

    def __init__(self) -> None:
        self.is_there = False
        # How many packets have come since the first packet that is marked as damaged; that packet
        # counts, too. Two files may have been joined at that packet. 0: no packet is marked.
        self._doubtful = 0
        self._last = 0

    def saw(self, packet: "Packet[VideoStream]") -> None:
        if packet.dts is not None and packet.dts < self._last:
            self._doubtful = 0
        elif self._doubtful or packet.is_corrupt:
            self._doubtful += 1
        # A packet without a time is the last one.
        self.is_there |= self._doubtful > _END_PACKETS or (
            packet.dts is None and self._doubtful > 1
        )
        self._last = self._last if packet.dts is None else packet.dts


class _Due:
    """Chooses frames: in each 1/fps of a second, the first frame is wanted."""

    def __init__(self, fps: float | None) -> None:
        self._fps = None if fps is None else Fraction(fps)
        self._last = -1

    def wants(self, since: Fraction) -> bool:
        if self._fps is None:
            return True
        number = int(since * self._fps)
        if number <= self._last:
            return False
        self._last = number
        return True
