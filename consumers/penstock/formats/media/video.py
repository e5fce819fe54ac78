"""Reads videos. Each frame is a row, or with `rows.fps` so many a second.

Rule: containers that name other files are not read. Time counts from the first frame and never goes
back: where another file was joined, its clock begins again, ours goes on. A damaged packet or frame
ends the object; the frames before it are rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from penstock.core.rows.payload import ROW_COST_BYTES, BytesRows, Form, Payload
from penstock.errors import Poison
from penstock.formats.first_bytes import iso_media, no_such
from penstock.formats.media.container_ends import FollowedFile, is_transport_stream
from penstock.formats.media.decoding import Gathered, frames_of, opened_by_libav, reader
from penstock.formats.pictures.image import jpeg, scaled_frame
from penstock.formats.pictures.pixels import PictureOptions, Rgb
from penstock.formats.runs import FRAME_BYTES, FREE_BYTES, RowOptions, Run
from penstock.formats.source import ObjectSource

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.reformatter import VideoReformatter
    from av.video.stream import VideoStream

EXTENSIONS: Final = (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".ts")

_BOXES: Final = (b"ftyp", b"moov", b"moof", b"styp", b"mdat", b"wide", b"free")
_HEAD_BYTES: Final = 512
_NO_TURN: Final = np.array([1, 0, 0, 0, 1], "<i4")
# No time is above this, about 30 years, because a frame may have a nonsensical time stamp.
_MOST_MS: Final = 10**12
# A smaller film is no camera's, and its frames may well have more bytes than `FRAME_BYTES`.
_SMALL_FRAME_BYTES: Final = 64
_SMALL_PIXELS: Final = 64 * 64


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


def _decode(source: ObjectSource, options: RowOptions, gathered: Gathered) -> Iterator[Run]:
    head = source.read(0, _HEAD_BYTES)
    container = container_of(head)
    if container is None:
        raise no_such("MP4, MKV, WebM or MPEG-TS", head)
    file = FollowedFile(source, container)
    with opened_by_libav(file, container, "video") as opened:
        yield from _frames(source, options, opened, gathered, file)


read_video: Final = reader("video", _decode)


def _frame_weight(size: int, pixels: int) -> int:
    """What a frame counts as, at most. 4,096 frames are always free, and a frame for each
    `FRAME_BYTES`, so that hours of a black film pass and a small film of copies does not.
    """
    frame_bytes = FRAME_BYTES if pixels >= _SMALL_PIXELS else _SMALL_FRAME_BYTES
    return max(frame_bytes * ROW_COST_BYTES, FREE_BYTES * frame_bytes // max(size, 1))


def _frames(
    source: ObjectSource,
    options: RowOptions,
    opened: "InputContainer",
    gathered: Gathered,
    file: FollowedFile,
) -> Iterator[Run]:
    from av.video.reformatter import VideoReformatter  # noqa: PLC0415

    # All frames share one reformatter. If each frame had a reformatter of its own, that would start
    # threads, which live as long as the frame.
    colours = VideoReformatter()
    stream = _stream(opened)
    own = options.of(PictureOptions)
    width, height = stream.codec_context.width, stream.codec_context.height
    gathered.weight = min(own.weight(options.form), _frame_weight(source.size, width * height))
    _check_pixels(own, width, height)
    due, clock = _DueFrames(options.of(VideoOptions).fps), _Clock(stream)
    for frame in frames_of(
        opened, stream, "video", file.container.missing, file.container.holes(stream.id)
    ):
        since = clock.since_first(frame)
        if not due.wants(since):
            continue
        _check_pixels(own, frame.width, frame.height)
        time_ms = int(min(_MOST_MS, max(0, round(since * 1000))))
        yield from gathered.add(partial(_row, own, options.form, frame, colours), time_ms)
    yield from gathered.rest()
    if not clock.has_begun:
        raise Poison("bad_format", "there is no frame in the video")


def _stream(opened: "InputContainer") -> "VideoStream":
    """The first video stream that is not a cover picture."""
    for stream in opened.streams.video:
        # PyAV gives None for a codec that its libraries lack, although PyAV's types exclude None.
        context: object = stream.codec_context
        if context is None:
            raise Poison("bad_format", "the video is of a codec that is not known")
        if "attached_pic" not in str(stream.disposition).lower():
            return stream
    only = ', only sound; set its format to "audio"' if opened.streams.audio else ""
    raise Poison("bad_format", f"there is no video in it{only}")


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
    matrix: Any = frame.side_data.get("DISPLAYMATRIX")
    numbers = np.frombuffer(bytes(matrix), "<i4") if matrix is not None else _NO_TURN
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

    @property
    def has_begun(self) -> bool:
        return self._first is not None

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


class _DueFrames:
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
