"""Reads recordings. A row is a window of float32 samples, `rows.window_ms` long. A new window
begins every `rows.hop_ms`.

Rule: if the hop is not longer than the window, every sample is in a row; so a window has at least
as many samples as the longest hop. The last row is filled up with zeros, but only if the recording
ends where it says. If it is damaged or breaks off, a row has only samples that came, and from there
on the object is `bad_format`; if it does not say where it ends, the last window is a bad row unless
all of it came. Each of several recordings in a file (Ogg) has windows of its own.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from penstock.core.rows.payload import ROW_COST_BYTES, Matrix
from penstock.errors import Poison
from penstock.formats.base.parser_chain import Parser
from penstock.formats.base.runs import RowOptions, Run, bad_row, check_rows, too_long
from penstock.formats.base.source import Source, Wanted
from penstock.formats.magic import iso_media, no_such
from penstock.formats.media.decoding import Gathered, reader
from penstock.formats.media.samples import Recording, Samples, decoded
from penstock.formats.media.wave import is_wave, missing_of_w64, plain_recording, wave_of
from penstock.formats.text.text_and_bytes import opaque, open_bytes

EXTENSIONS: Final = (
    ".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".m4a", ".m4b", ".aac", ".aif", ".aiff",
    ".caf", ".au", ".w64", ".mka", ".weba",
)  # fmt: skip

_HEAD_BYTES: Final = 512
# A window or hop of fewer samples is a mistaken rate: a second at 1 Hz would be a row a sample.
_LEAST_SAMPLES: Final = 8
_NUMBER_BYTES: Final = 4
# The samples that are new in a window count as a sixteenth of their bytes where the rows of an
# object are compared with its size. Honest recordings have hours of silence, and a second of it, in
# two channels of 48 kHz, is 384 kB of samples and 176 bytes of FLAC; 200 times as much is 35 kB.
_SILENCE: Final = 16
_UNKNOWN_END: Final = (
    "the recording does not say where it ends, so its last window may be cut; write it to a file, "
    "not to a pipe, or in a container that states its length"
)
_TAGS: Final = (b"ID3\2\0", b"ID3\3\0", b"ID3\4\0")
_TAG_HEAD_BYTES: Final = 10
_MOST_TAGS: Final = 8  # programs that add one beside another are rare
# For each beginning of a recording, libav's name for its container.
_CONTAINERS: Final = {
    b"fLaC": "flac",
    b"OggS": "ogg",
    b"caff\0": "caf",
    b".snd\0": "au",
    b"riff\x2e\x91\xcf\x11": "w64",
    **dict.fromkeys(_TAGS, "mp3"),
}
_MAGICS: Final = tuple(_CONTAINERS)
# The first 11 bits of a frame of MPEG audio are ones (ISO 11172-3), the first 12 of a frame of AAC
# (ISO 13818-7, ADTS). They are no proof, so they count only if the name says audio.
_FRAMES: Final = {b"\xff\xf1": "aac", b"\xff\xf9": "aac"} | {
    bytes([0xFF, second]): "mp3"
    for second in (0xFA, 0xFB, 0xFC, 0xFD, 0xF2, 0xF3, 0xF4, 0xF5, 0xE2, 0xE3)
}


@dataclass(frozen=True, slots=True)
class AudioOptions:
    """The windows of a recording. `hop_ms`: the time from the begin of a window to the begin of the
    next one; None: a window begins where the window before it ends.
    """

    window_ms: int = 1_000
    hop_ms: int | None = None


def looks(head: bytes) -> bool:
    return _container_of(head) is not None


def _container_of(head: bytes) -> str | None:
    """libav's name for the container that begins with `head`; None: it is no recording, or it is
    not certain.
    """
    if is_wave(head):
        return "wav"
    if head.startswith(b"FORM") and head[8:12] in (b"AIFF", b"AIFC"):
        return "aiff"
    if iso_media(head) == "audio":
        return "mov"
    if not head.startswith(_MAGICS):
        return None
    return next(name for magic, name in _CONTAINERS.items() if head.startswith(magic))


def _named_container(head: bytes) -> str | None:
    """The container of an object whose name says that it is a recording. Then it may be a container
    that mostly holds videos.
    """
    if head[4:8] == b"ftyp" and iso_media(head) == "video":
        return "mov"
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        return "matroska"
    return _container_of(head) or _FRAMES.get(head[:2])


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


class _Behind:
    """The object from byte `begin` on."""

    def __init__(self, source: Source, begin: int) -> None:
        self.size = max(0, source.size - begin)
        self._source = source
        self._begin = begin

    def read(self, start: int, stop: int) -> bytes:
        return self._source.read(self._begin + start, self._begin + stop)


def _untagged(source: Source) -> Source:
    """The recording without the tags at its begin (ID3v2.4, 3.1), which may stand before any."""
    begin = 0
    for _ in range(_MOST_TAGS):
        head = source.read(begin, begin + _TAG_HEAD_BYTES)
        if not head.startswith(_TAGS):
            break
        nbytes = 0
        for byte in head[6:]:
            nbytes = nbytes << 7 | byte & 0x7F
        begin += _TAG_HEAD_BYTES + nbytes
    return _Behind(source, begin) if begin else source


def _decode(source: Source, options: RowOptions, gathered: Gathered) -> Iterator[Run]:
    untagged = _untagged(source)
    head = untagged.read(0, _HEAD_BYTES)
    # Between the tags and an MP3 there may be junk.
    container = _named_container(head) or ("mp3" if untagged is not source else None)
    source = untagged
    if container is None:
        raise no_such("WAV, FLAC, Ogg, MP3, MP4, AIFF, CAF, AU or W64", head)
    wave = wave_of(source) if container == "wav" else None
    missing = missing_of_w64(source) if container == "w64" else wave and wave.missing(source)
    ms = 0.0
    for recording in (
        [plain_recording(source, wave)]
        if wave is not None and wave.is_plain
        else decoded(source, container, missing, wave and wave.frames)
    ):
        yield from _rows(recording, options, gathered, ms, source.size)
        ms += recording.frames * 1000 / recording.rate


_read_windows: Final = reader("audio", _decode)


def _rows(
    recording: Recording, options: RowOptions, gathered: Gathered, ms: float, size: int
) -> Iterator[Run]:
    """The rows of one recording. `ms`: the time in the object at which the recording begins.
    `size`: of the object.
    """
    rate, channels = recording.rate, recording.channels
    own = options.of(AudioOptions)
    hop_ms = own.hop_ms or own.window_ms
    frames = own.window_ms * rate // 1000
    if hop_ms <= own.window_ms:
        frames = max(frames, -(-hop_ms * rate // 1000))
    if min(frames, hop_ms * rate // 1000) < _LEAST_SAMPLES:
        raise Poison(
            "bad_format",
            f"at {rate} samples a second a window or a hop has fewer than {_LEAST_SAMPLES} "
            "samples; set rows.window_ms and rows.hop_ms higher",
        )
    new_bytes = min(frames, hop_ms * rate // 1000) * channels * _NUMBER_BYTES
    gathered.weight = max(ROW_COST_BYTES, new_bytes // _SILENCE)
    if recording.stated is not None:
        rows = (recording.stated - frames) * 1000 // (hop_ms * rate)
        check_rows(rows, size, options, gathered.weight)
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

    windows = _windows(recording, frames, lambda n: n * hop_ms * rate // 1000)
    for number, samples in enumerate(windows):
        if len(samples) < frames and not recording.states_end():
            yield from gathered.rest()
            yield bad_row(_UNKNOWN_END)
            return
        yield from gathered.add(partial(row, samples), int(ms) + number * hop_ms)
    yield from gathered.rest()


def _windows(
    blocks: Iterable[Samples], frames: int, start_of: Callable[[int], int]
) -> Iterator[Samples]:
    """All windows, up to the window that holds the last sample; that window may be shorter. If the
    blocks end by an error, no window is shorter. `start_of`: a function that takes a window's
    number and returns the frame at which the window begins.
    """
    held: Samples | None = None
    at = number = 0  # the held samples begin at frame `at`; the next window is `number`
    failure: Poison | None = None
    try:
        for block in blocks:
            held = block if held is None else np.concatenate([held, block])
            # A window is given here only if a sample follows it. The last window is given at the
            # end, because it may be shorter.
            while at + len(held) > start_of(number) + frames:
                begin = start_of(number) - at
                yield held[begin : begin + frames]
                number += 1
            gone = min(len(held), start_of(number) - at)
            held, at = held[gone:], at + gone
    except Poison as poison:
        failure = poison
    if held is not None:
        last = held[start_of(number) - at :]
        if len(last) == frames or (len(last) and failure is None):
            yield last
    if failure is not None:
        raise failure
