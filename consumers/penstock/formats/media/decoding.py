"""What the decoding of recordings and of videos has in common.

Rule: the libraries are an extra, loaded when an object needs them, and only in a decoder. libav is
told to prove what it can and to stop at the first packet that it cannot decode; else it would
conceal the damage. A packet or frame marked as damaged ends the object, too. Unwanted rows are
counted, not made.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from penstock.core.rows.payload import ROW_COST_BYTES, BytesRows, Form, Matrix, Payload
from penstock.errors import Poison
from penstock.formats.runs import RowOptions, Run, too_long
from penstock.formats.source import ObjectSource, Read, Wanted
from penstock.packages import missing_extra

if TYPE_CHECKING:
    from av.audio.stream import AudioStream
    from av.container import InputContainer
    from av.video.stream import VideoStream

Kind = Literal["audio", "video"]

_LIBRARIES: Final[dict[Kind, tuple[str, ...]]] = {"audio": ("av",), "video": ("av", "PIL")}

# libav reads this much at a time.
BUFFER_BYTES: Final = 256 << 10
_PROVE: Final = {"err_detect": "crccheck+bitstream+buffer+explode"}
# Where two files were joined, libav marks a packet as damaged although it is not. The file's clock
# begins again at most this many packets later.
_END_PACKETS: Final = 3

# Runs of this size are so few that the cost of a run itself does not matter.
RUN_BYTES: Final = 256 << 10
# A run stands for at most this many unwanted rows.
SKIPPED_ROWS: Final = 1_000


def need_media(format: str, form: Form) -> None:
    """Raises `Fatal` if the format needs the extra `media` for rows of this form, and the extra is
    not installed.
    """
    is_decoded = format == "video" or (format == "audio" and form != "bytes")
    if is_decoded and _is_missing(format):
        raise missing_extra(format, "media")


def _is_missing(kind: str) -> bool:
    return not all(find_spec(name) for name in _LIBRARIES["audio" if kind == "audio" else "video"])


def reader(kind: Kind, decode: "Decode") -> Read:
    """Returns a function that reads objects of this kind. `decode`: a function that decodes an
    object and adds its rows to a `Gathered`.
    """

    def read(source: ObjectSource, options: RowOptions, wanted: Wanted) -> Iterator[Run]:
        if _is_missing(kind):
            raise Poison("bad_format", str(missing_extra(kind, "media")))
        gathered = Gathered(options, wanted)
        try:
            yield from decode(source, options, gathered)
        except Poison:
            yield from gathered.rest()
            raise

    return read


@contextmanager
def _library_errors(what: str) -> Iterator[None]:
    """Errors that libav raises become `Poison`."""
    import av.error  # noqa: PLC0415 (an extra, loaded when it is asked for)

    try:
        yield
    # ZeroDivisionError: PyAV divides by the time base of a frame, which may be 0.
    except (av.error.FFmpegError, ValueError, ZeroDivisionError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Poison("bad_format", f"the {what} cannot be decoded: {reason}") from error


def opened_by_libav(
    file: object, container: str, what: str, options: dict[str, str] | None = None
) -> "InputContainer":
    """The file, opened as this container and no other. `options`: of libav's demuxer."""
    import av  # noqa: PLC0415 (an extra, loaded when it is asked for)

    with _library_errors(what):
        return av.open(
            file,
            "r",
            format=container,
            options=options,
            buffer_size=BUFFER_BYTES,
            metadata_errors="replace",
        )


def frames_of(
    opened: "InputContainer",
    stream: "AudioStream | VideoStream",
    what: str,
    missing: Callable[[], str | None],
    holes: Sequence[int] = (),
) -> Iterator[Any]:
    """The frames in the order of time. They end by an error before the first that is damaged.
    `missing`: called when all of the file was read; it returns what is missing. `holes`: places in
    the file before which something is missing.
    """
    stream.codec_context.thread_count = 1
    stream.codec_context.options = _PROVE
    is_open = opened.format.name == "mpegts"
    last = longest = 0
    with _library_errors(what):
        for packet in _packets(opened, stream, what, missing, holes):
            for frame in stream.decode(packet):
                if frame.is_corrupt:
                    raise Poison("bad_format", f"the {what} has frames that are damaged")
                # An MPEG-TS does not say where it ends. If it is cut before a frame that is shown
                # between others, the frames that the decoder still holds have a gap there.
                step, last = (frame.pts or 0) - last, frame.pts or 0
                if is_open and packet is None and step > longest > 0:
                    raise Poison("bad_format", f"the {what} breaks off: frames are missing")
                longest = max(longest, step) if step < last else longest
                yield frame


def _packets(
    opened: "InputContainer",
    stream: "AudioStream | VideoStream",
    what: str,
    missing: Callable[[], str | None],
    holes: Sequence[int],
) -> Iterator[Any]:
    """The packets up to the first that is damaged. If none is, None follows, for which the decoder
    gives the frames that it still holds; after damage these may be behind frames that are missing,
    because the order of packets is not that of frames. Where two files were joined, libav marks
    some packets as damaged although they are not. They are recognised because the file's clock
    begins again soon after them.
    """
    # The newest packet, or a packet that is marked and those after it. The newest waits, because
    # libav may set the mark one packet late.
    held: list[Any] = []
    is_marked = has_begun = False
    last = due = passed = 0  # `passed`: how many holes are behind us
    # If fragments of an MP4 are missing, others may go on where the last ended: those of sound.
    is_mov = opened.format.name.startswith("mov")
    try:
        for packet in opened.demux(stream):
            if packet.dts is None and not packet.size:
                break  # the end: PyAV asks for the frames that the decoder still holds
            # A recording of a broadcast may begin between two pictures that can be decoded alone.
            has_begun |= packet.is_keyframe
            if not has_begun:
                continue
            before, passed = passed, bisect_right(holes, packet.pos or 0, passed)
            if packet.dts is not None and packet.dts < last:
                is_marked = False
            elif packet.is_corrupt or (passed > before and not (is_mov and packet.dts == due)):
                is_marked = True
            if not is_marked:
                yield from held
                held = []
            elif len(held) > _END_PACKETS:
                break
            held.append(packet)
            last = last if packet.dts is None else packet.dts
            due = last + (packet.duration or 0)
    # PyAV's list of streams lacks those that appear while it reads (as in a joined MPEG-TS). It
    # reads past them, but raises this at the end.
    except IndexError:
        pass
    if is_marked or passed < len(holes):
        raise Poison("bad_format", f"the {what} has packets that are damaged or not all there")
    yield from held
    if (reason := missing()) is not None:
        raise Poison("bad_format", f"the {what} breaks off: {reason}")
    yield None


class Gathered:
    """Takes each row by `add`, and returns the runs that are complete. `weight`: of each row."""

    def __init__(self, options: RowOptions, wanted: Wanted) -> None:
        self._options = options
        self._wanted = wanted
        self._row = self._skipped = 0
        self._rows: list[Payload] = []
        self._times: list[int] = []
        self._nbytes = 0
        self.weight = ROW_COST_BYTES

    def add(self, make: Callable[[], Payload], time_ms: int) -> Iterator[Run]:
        """`make`: a function that makes the next row; it is called only if this row is wanted.
        `time_ms`: the time from the first row to this one.
        """
        self._row += 1
        if not self._wanted(self._row - 1, self._row):
            if self._rows or self._skipped == SKIPPED_ROWS:
                yield from self.rest()
            self._skipped += 1
            return
        if self._skipped:
            yield from self.rest()
        row = make()
        nbytes = len(row.row(0)) if isinstance(row, BytesRows) else row.nbytes
        if nbytes > self._options.row_bytes:
            reason = too_long(self._options.row_bytes)
            raise Poison("too_large", f"{reason}; set rows.image_size, or a higher limit")
        self._rows.append(row)
        self._times.append(time_ms)
        self._nbytes += row.nbytes
        if self._nbytes >= RUN_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[Run]:
        """The runs of the rows that are still held."""
        if self._skipped:
            skipped, self._skipped = self._skipped, 0
            yield Run(skipped, None, weight=self.weight)
        if self._rows:
            rows, times = self._rows, np.array(self._times, np.int64)
            self._rows, self._times, self._nbytes = [], [], 0
            yield Run(len(rows), _joined(rows), since_ms=times, weight=self.weight)


Decode = Callable[[ObjectSource, RowOptions, Gathered], Iterator[Run]]


def _joined(rows: list[Payload]) -> Payload:
    """Join rows of one kind and width. Before the user of a `Gathered` adds rows of another width,
    it calls `rest`.
    """
    matrices = [row for row in rows if isinstance(row, Matrix)]
    if matrices:
        return Matrix(np.concatenate([row.values for row in matrices]))
    return BytesRows.of([bytes(row.row(0)) for row in rows if isinstance(row, BytesRows)])
