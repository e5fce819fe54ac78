"""Videos: a row a frame, or as many a second as `rows.fps` wants.

Rule: runs in the child process alone. The container is the one that the first bytes tell, never a
list of other files. Time counts from the first frame. Whatever cannot be decoded ends the object,
after the frames before it.
"""

import io
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np

from consumers.core.payload import BytesRows, Payload
from consumers.errors import Poison
from consumers.formats import pictures
from consumers.formats.containers import Boxes, breaks_off, is_transport_stream
from consumers.formats.gathered import Gathered
from consumers.formats.magic import no_such
from consumers.formats.media_wire import Batch, Task
from consumers.formats.pixels import Rgb

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

EXTENSIONS: Final = (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".ts")

# What libav reads at a time.
BUFFER_BYTES: Final = 256 << 10
_BOXES: Final = (b"ftyp", b"moov", b"moof", b"styp", b"mdat", b"wide", b"free")
# Frames whose clock says nonsense have this time at most: 30 years.
_MOST_MS: Final = 10**12


def looks(head: bytes) -> bool:
    return container_of(head) is not None


def container_of(head: bytes) -> str | None:
    """libav's name of what reads it."""
    if head[4:8] in _BOXES and head[:1] == b"\0":
        return "mov"
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        return "matroska"
    return "mpegts" if is_transport_stream(head) else None


def video_rows(task: Task, file: io.RawIOBase, boxes: Boxes) -> Iterator[Batch]:
    """The rows of one video; `boxes` follows what is read of it. Raises `Poison`."""
    import av  # noqa: PLC0415 (an extra, loaded when it is asked for)
    import av.error  # noqa: PLC0415

    head = file.read(512) or b""
    container = container_of(head)
    if container is None:
        raise no_such("MP4, MKV, WebM or MPEG-TS", head)
    file.seek(0)
    gathered = Gathered(task.skip_rows)
    try:
        with av.open(
            file, "r", format=container, buffer_size=BUFFER_BYTES, metadata_errors="replace"
        ) as opened:
            yield from _frames(task, opened, gathered)
    except Poison:
        yield from gathered.rest()
        raise
    # PyAV divides by the time base of a frame, which may be 0.
    except (av.error.FFmpegError, ValueError, ZeroDivisionError, OverflowError) as error:
        yield from gathered.rest()
        raise Poison("bad_format", f"the video cannot be decoded: {error}") from error
    broken = breaks_off(file, task.size, boxes)
    if broken is not None:
        raise Poison("bad_format", f"the video breaks off: {broken}")


def _frames(task: Task, opened: "InputContainer", gathered: Gathered) -> Iterator[Batch]:
    stream = _stream(opened)
    stream.codec_context.thread_count = 1
    size = (stream.codec_context.width, stream.codec_context.height)
    _check_pixels(task, *size)
    due, clock = _Due(task.fps), _Clock(stream)
    is_damaged = False
    for packet in opened.demux(stream):
        is_damaged = is_damaged or packet.is_corrupt
        for frame in packet.decode():
            since = clock.since_first(frame)
            if not due.wants(since):
                continue
            if gathered.skips:
                yield from gathered.skip()
                continue
            _check_pixels(task, frame.width, frame.height)
            time_ms = int(min(_MOST_MS, max(0, round(since * 1000))))
            yield from gathered.add(_row(task, frame), time_ms)
    yield from gathered.rest()
    if is_damaged:
        raise Poison("bad_format", "the video has packets that are damaged or not all there")


def _stream(opened: "InputContainer") -> "VideoStream":
    """The first that is no cover picture."""
    for stream in opened.streams.video:
        if "attached_pic" not in str(stream.disposition).lower():
            return stream
    raise Poison("bad_format", "there is no video in it")


def _check_pixels(task: Task, width: int, height: int) -> None:
    if width * height > task.pixels:
        raise Poison(
            "too_large",
            f"the video has {width} x {height} pixels, more than {task.pixels} (limits.pixels)",
        )


def _row(task: Task, frame: "VideoFrame") -> Payload:
    rgb: Rgb = frame.to_ndarray(format="rgb24").astype(np.uint8, copy=False)
    turns = round(frame.rotation / 90) % 4
    if turns:
        rgb = np.ascontiguousarray(np.rot90(rgb, turns))
    if task.image is None:
        return BytesRows.of([pictures.jpeg(rgb)])
    return task.image.row(
        pictures.scaled_frame(rgb, (task.image.width, task.image.height)), task.form
    )


class _Clock:
    """Seconds since the first frame; one without a time stamp follows at the usual distance."""

    def __init__(self, stream: "VideoStream") -> None:
        rate = stream.average_rate
        self._step = 1 / Fraction(rate) if rate else Fraction(0)
        self._first: Fraction | None = None
        self._last = Fraction(0)

    def since_first(self, frame: "VideoFrame") -> Fraction:
        if frame.pts is None or frame.time_base is None:
            now = self._last + self._step
        else:
            now = frame.pts * Fraction(frame.time_base)
        if self._first is None:
            self._first = now
        self._last = now
        return now - self._first


class _Due:
    """Thins: of the frames in each 1/fps of a second the first."""

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
