"""Recordings: windows of `rows.window_ms` every `rows.hop_ms` as rows of float32 samples.

Rule: runs in the child process alone. Every sample is in a row if the hop is no longer than the
window: the last row is filled up with zeros. A recording that is shorter than its header says is
`bad_format` after the rows that are there.
"""

import io
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from consumers.core.payload import Matrix
from consumers.errors import Poison
from consumers.formats.containers import breaks_off
from consumers.formats.gathered import Gathered
from consumers.formats.magic import no_such
from consumers.formats.media_wire import Batch, Task

EXTENSIONS: Final = (".wav", ".flac", ".ogg", ".oga", ".opus")

# Samples read at a time: 1.4 s at 48 kHz.
BLOCK_FRAMES: Final = 65_536
_FORMATS: Final = frozenset({"WAV", "WAVEX", "RF64", "FLAC", "OGG"})
# What libsndfile says for an unknown length.
_UNKNOWN_FRAMES: Final = 2**62
_NUMBER_BYTES: Final = 4

# Samples of all channels, in time order: shape (frames, channels).
Samples = npt.NDArray[np.float32]


def looks(head: bytes) -> bool:
    if head.startswith((b"RIFF", b"RF64")):
        return head[8:12] == b"WAVE"
    return head.startswith((b"fLaC", b"OggS"))


def audio_rows(task: Task, file: io.RawIOBase) -> Iterator[Batch]:
    """The rows of one recording. Raises `Poison`."""
    import soundfile  # noqa: PLC0415 (an extra, loaded when it is asked for)

    gathered = Gathered(task.skip_rows)
    try:
        with soundfile.SoundFile(io.BufferedReader(file, 1 << 18)) as sound:
            if sound.format not in _FORMATS:
                raise Poison("bad_format", f"{sound.format} is not read; write WAV, FLAC or OGG")
            yield from _windows(task, sound, gathered)
    except Poison:
        yield from gathered.rest()
        raise
    except (soundfile.SoundFileError, RuntimeError, ValueError, EOFError) as error:
        yield from gathered.rest()
        head = _head(file)
        if not looks(head):
            raise no_such("WAV, FLAC or OGG", head) from error
        said = str(error).strip() or type(error).__name__
        raise Poison("bad_format", f"the recording cannot be read: {said}") from error
    broken = breaks_off(file, task.size)
    if broken is not None:
        raise Poison("bad_format", f"the recording breaks off: {broken}")


def _head(file: io.RawIOBase) -> bytes:
    file.seek(0)
    return file.read(16) or b""


def _windows(task: Task, sound: Any, gathered: Gathered) -> Iterator[Batch]:
    rate, channels = sound.samplerate, sound.channels
    frames = task.window_ms * rate // 1000
    if not frames:
        raise Poison("bad_format", f"at {rate} samples a second a window has none")
    if frames * channels * _NUMBER_BYTES > task.row_bytes:
        raise Poison(
            "too_large",
            f"a window has {frames} samples of {channels} channels, more than {task.row_bytes} "
            "bytes (limits.row_bytes)",
        )
    source = _Source(lambda: sound.read(BLOCK_FRAMES, dtype="float32", always_2d=True))
    for number, start in enumerate(_starts(source, frames, task.hop_ms, rate)):
        if gathered.skips:
            yield from gathered.skip()
        else:
            row = np.zeros((channels, frames), np.float32)
            found = source.held(start, frames)
            row[:, : len(found)] = found.T
            yield from gathered.add(Matrix(row.reshape(1, -1)), number * task.hop_ms)
    yield from gathered.rest()
    if source.frames < sound.frames < _UNKNOWN_FRAMES:
        raise Poison(
            "bad_format",
            f"the recording breaks off after {source.frames} of {sound.frames} samples",
        )


class _Source:
    """Samples from some place on, read as far as they are needed."""

    def __init__(self, read: Callable[[], Samples]) -> None:
        self._read = read
        self._held: Samples | None = None
        self._at = 0
        self.frames = 0
        self.ended = False

    def reach(self, start: int, stop: int) -> None:
        """Have what lies between; nobody asks for what is before `start` any more."""
        while not self.ended and self.frames < stop:
            block = self._read()
            self.frames += len(block)
            self.ended = not len(block)
            held = block if self._held is None else np.concatenate([self._held, block])
            gone = min(len(held), max(0, start - self._at))
            self._held, self._at = held[gone:], self._at + gone

    def held(self, start: int, frames: int) -> Samples:
        assert self._held is not None
        begin = start - self._at
        return self._held[begin : begin + frames]


def _starts(source: _Source, frames: int, hop_ms: int, rate: int) -> Iterator[int]:
    """Where each window begins, until one holds the last sample."""
    number = start = 0
    while True:
        source.reach(start, start + frames)
        if start >= source.frames:
            return
        yield start
        # One more, to know whether there is anything behind this window.
        source.reach(start, start + frames + 1)
        if source.frames <= start + frames:
            return
        number += 1
        start = number * hop_ms * rate // 1000
