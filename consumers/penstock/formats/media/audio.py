"""Reads recordings. A row is a window of float32 samples, `rows.window_ms` long. A new window
begins every `rows.hop_ms`.

Rule: if the hop is not longer than the window, every sample is in a row. To make this true, a
window has at least as many samples as the longest hop, and the last row is filled up with zeros. If
a file holds several recordings (Ogg), each recording has windows of its own. If a recording is
shorter than its header says, its rows are answered, and then the object is `bad_format`. Owner: one
reading of one object.
"""

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.core.rows.payload import Matrix
from penstock.errors import Poison
from penstock.formats.base.parser_chain import Parser
from penstock.formats.base.runs import RowOptions, Run, bad_row, too_long
from penstock.formats.base.source import Source, SourceFile, Wanted
from penstock.formats.magic import no_such
from penstock.formats.media.container_ends import OggParts, breaks_off, ogg_parts
from penstock.formats.media.decoding import Gathered, reader
from penstock.formats.text.text_and_bytes import opaque, open_bytes

EXTENSIONS: Final = (".wav", ".flac", ".ogg", ".oga", ".opus")

# How many samples of each channel are read at a time: 1.4 s at 48 kHz.
BLOCK_FRAMES: Final = 65_536
_BUFFER_BYTES: Final = 256 << 10
_FORMATS: Final = frozenset({"WAV", "WAVEX", "RF64", "FLAC", "OGG"})
# libsndfile states this length for a recording of unknown length, such as a FLAC that was written
# to a pipe.
_UNKNOWN_FRAMES: Final = 2**62
# The number of the error that libsndfile raises at the end of such a recording, because it cannot
# seek to the place behind the last sample.
_NO_SUCH_PLACE: Final = 39
_NUMBER_BYTES: Final = 4
_HEAD_BYTES: Final = 16
_FLAC: Final = b"fLaC"
# A FLAC begins with this name and a block of metadata of 34 bytes. The block's header says whether
# it is the last block of metadata, so there are two possible beginnings (RFC 9639, 8.1).
_FLAC_BEGINS: Final = (_FLAC + b"\x00\0\0\x22", _FLAC + b"\x80\0\0\x22")

# Samples in the order of time. The shape of the array is (frames, channels); a frame has one sample
# of each channel.
Samples = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class AudioOptions:
    """The windows of a recording. `hop_ms`: the time from the begin of a window to the begin of the
    next one; None: a window begins where the window before it ends.
    """

    window_ms: int = 1_000
    hop_ms: int | None = None


def looks(head: bytes) -> bool:
    if head.startswith((b"RIFF", b"RF64")):
        return head[8:12] == b"WAVE"
    return head.startswith((_FLAC, b"OggS"))


def read_audio(source: Source, options: RowOptions, wanted: Wanted) -> Iterator[Run]:
    """The windows of a recording. If the rows are opaque bytes, the whole recording is one row."""
    if options.form == "bytes":
        yield _whole(source, options)
    else:
        yield from _read_windows(source, options, wanted)


def open_audio(options: RowOptions) -> Parser | None:
    """The parser of a recording that is a member of an archive, if the rows are opaque bytes. None:
    the rows are windows, which cannot be read from a stream.
    """
    return open_bytes(options) if options.form == "bytes" else None


def _whole(source: Source, options: RowOptions) -> Run:
    """The whole recording as one opaque row."""
    if source.size > options.row_bytes:
        return bad_row(too_long(options.row_bytes))
    return Run(1, opaque(source.read(0, source.size)))


def _decode(source: Source, options: RowOptions, gathered: Gathered) -> Iterator[Run]:
    import soundfile  # noqa: PLC0415 (an extra, loaded when it is asked for)

    head = source.read(0, _HEAD_BYTES)
    parts = ogg_parts(source) if head.startswith(b"OggS") else OggParts([0], source.size, None)
    ms = 0.0
    try:
        for begin, stop in zip(parts.begins, [*parts.begins[1:], parts.stop], strict=True):
            file = SourceFile(_Part(source, begin, stop))
            with soundfile.SoundFile(io.BufferedReader(file, _BUFFER_BYTES)) as sound:
                if sound.format not in _FORMATS:
                    said = f"{sound.format} is not read; write WAV, FLAC or OGG"
                    raise Poison("bad_format", said)
                blocks = _Blocks(sound)
                yield from _rows(blocks, options, gathered, ms)
                ms += blocks.frames * 1000 / sound.samplerate
                if head.startswith(_FLAC) and _is_joined(source, file.tell()):
                    said = "another FLAC follows the first; store each as an object of its own"
                    raise Poison("bad_format", said)
    except (soundfile.SoundFileError, RuntimeError, ValueError, EOFError) as error:
        if not looks(head):
            raise no_such("WAV, FLAC or OGG", head) from error
        said = str(error).strip() or type(error).__name__
        raise Poison("bad_format", f"the recording cannot be read: {said}") from error
    broken = parts.broken or breaks_off(source)
    if broken is not None:
        raise Poison("bad_format", f"the recording breaks off: {broken}")


_read_windows: Final = reader("audio", _decode)


def _is_joined(source: Source, read_to: int) -> bool:
    """True if another FLAC begins where the first one ends. The first one ends at `read_to` or up
    to two buffers before it, because our buffer and libsndfile's smaller buffer read ahead.
    """
    end = source.read(max(1, read_to - 2 * _BUFFER_BYTES), read_to + _HEAD_BYTES)
    return any(begin in end for begin in _FLAC_BEGINS)


class _Part:
    """A part of an object, which is read as if it were a whole object."""

    def __init__(self, source: Source, begin: int, stop: int) -> None:
        self.size = stop - begin
        self._source, self._begin = source, begin

    def read(self, start: int, stop: int) -> bytes:
        return self._source.read(self._begin + start, self._begin + min(stop, self.size))


class _Blocks:
    """The samples of one recording, block by block. The blocks end at the first error; `failure`
    keeps this error.
    """

    def __init__(self, sound: Any) -> None:
        self.sound = sound
        self.frames = 0
        self.failure: Exception | None = None

    def __iter__(self) -> Iterator[Samples]:
        while self.failure is None:
            block = self._next()
            if not len(block):
                return
            self.frames += len(block)
            yield block

    def _next(self) -> Samples:
        # Never read beyond the stated length, because some programs write tags behind a FLAC.
        frames = min(BLOCK_FRAMES, self.sound.frames - self.frames)
        # The samples of a FLAC are never NaN. So if NaN are left after an error, they mark the
        # samples that the library did not fill.
        block: Samples = np.full((frames, self.sound.channels), np.nan, np.float32)
        if not frames:
            return block
        try:
            found: Samples = self.sound.read(out=block)
        except RuntimeError as error:
            is_end = getattr(error, "code", 0) == _NO_SUCH_PLACE
            if not (is_end and self.sound.frames >= _UNKNOWN_FRAMES):
                self.failure = error
            is_flac = self.sound.format == "FLAC"
            return block[: int((~np.isnan(block).any(axis=1)).sum()) if is_flac else 0]
        return found

    def check(self) -> None:
        """Raise `Poison` if samples are missing."""
        if self.failure is not None:
            raise self.failure
        if self.frames < self.sound.frames < _UNKNOWN_FRAMES:
            said = f"after {self.frames} of {self.sound.frames} samples"
            raise Poison("bad_format", f"the recording breaks off {said}")


def _rows(blocks: _Blocks, options: RowOptions, gathered: Gathered, ms: float) -> Iterator[Run]:
    """The rows of one recording. `ms`: the time in the object at which the recording begins."""
    rate, channels = blocks.sound.samplerate, blocks.sound.channels
    own = options.of(AudioOptions)
    hop_ms = own.hop_ms or own.window_ms
    frames = own.window_ms * rate // 1000
    if hop_ms <= own.window_ms:
        frames = max(frames, -(-hop_ms * rate // 1000))
    if not frames:
        raise Poison("bad_format", f"at {rate} samples a second a window has none")
    if frames * channels * _NUMBER_BYTES > options.row_bytes:
        raise Poison(
            "too_large",
            f"a window has {frames} samples of {channels} channels, more than {options.row_bytes} "
            "bytes (limits.row_bytes)",
        )

    def row(samples: Samples) -> Matrix:
        values = np.zeros((channels, frames), np.float32)
        values[:, : len(samples)] = samples.T
        return Matrix(values.reshape(1, -1))

    for number, samples in enumerate(_windows(blocks, frames, lambda n: n * hop_ms * rate // 1000)):
        yield from gathered.add(partial(row, samples), int(ms) + number * hop_ms)
    yield from gathered.rest()
    blocks.check()


def _windows(
    blocks: Iterable[Samples], frames: int, start_of: Callable[[int], int]
) -> Iterator[Samples]:
    """All windows, up to the window that holds the last sample; that window may be shorter.
    `start_of`: a function that takes a window's number and returns the frame at which the window
    begins.
    """
    held: Samples | None = None
    at = number = 0  # the held samples begin at frame `at`; the next window is `number`
    for block in blocks:
        held = block if held is None else np.concatenate([held, block])
        # A window is given here only if a sample follows it. The last window is given at the end,
        # because it may be shorter.
        while at + len(held) > start_of(number) + frames:
            begin = start_of(number) - at
            yield held[begin : begin + frames]
            number += 1
        gone = min(len(held), start_of(number) - at)
        held, at = held[gone:], at + gone
    if held is not None and start_of(number) < at + len(held):
        yield held[start_of(number) - at :]
