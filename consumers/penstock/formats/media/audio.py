"""Reads recordings. A row is a window of float32 samples, `rows.window_ms` long, every
`rows.hop_ms`.

Rule: if the hop is not longer than the window, every sample is in a row; so a window has at least
as many samples as the longest hop. The last row is filled with zeros only if the recording ends
where it says. If it is damaged or breaks off, a row has only samples that came, then the object is
`bad_format`; if it does not say where it ends, the last window is a bad row unless all of it came.
Each of several recordings in a file (Ogg) has windows of its own.

WAV of plain numbers is read without a library. A header whose writer could not seek back has all
ones for the length (samples to the end of the file) or 0 (there are none). Layouts: RIFF, WAVE,
WAVE_FORMAT_EXTENSIBLE (Microsoft), RF64 (EBU Tech 3306).
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from penstock.core.rows.payload import ROW_COST_BYTES, Matrix
from penstock.errors import Poison
from penstock.formats.first_bytes import iso_media, no_such
from penstock.formats.media.decoding import Gathered, reader
from penstock.formats.media.samples import (
    BLOCK_FRAMES,
    Recording,
    Samples,
    breaks_off,
    decoded,
    scaled,
)
from penstock.formats.parser_chain import Parser
from penstock.formats.runs import RowOptions, Run, bad_row, check_rows, too_long
from penstock.formats.source import ObjectSource, Wanted
from penstock.formats.text.text_and_bytes import opaque, open_bytes

_RIFFS: Final = (b"RIFF", b"RF64", b"BW64")
_UNKNOWN_BYTES: Final = 0xFFFFFFFF
_EXTENSIBLE: Final = 0xFFFE
# For the tag and the bytes of a sample: the type of the numbers. Of 24 bits numpy has none.
_TYPES: Final = {
    (1, 1): "u1", (1, 2): "<i2", (1, 3): "u1", (1, 4): "<i4", (3, 4): "<f4", (3, 8): "<f8"
}  # fmt: skip
# Tags of codecs whose blocks have a fixed number of samples: ADPCM of Microsoft and IMA, GSM.
_BLOCKS: Final = (0x02, 0x11, 0x31)
# At most this many chunks are read in search for the samples.
_MOST_CHUNKS: Final = 1_000
_MOST_HEADER_BYTES: Final = 40


class Wave(NamedTuple):
    """What the header says. The samples begin at byte `begin` and have `nbytes` bytes. `frames`:
    how many samples of each channel are in packed blocks, of which the last is filled up; None:
    the header does not say it, or not believably.
    """

    tag: int
    channels: int
    rate: int
    frame_bytes: int
    begin: int
    nbytes: int
    states_end: bool
    frames: int | None

    @property
    def is_plain(self) -> bool:
        """False: the samples are packed, so a library must decode them."""
        whole, rest = divmod(self.frame_bytes, self.channels or 1)
        return not rest and (self.tag, whole) in _TYPES

    def missing(self, source: ObjectSource) -> str | None:
        """What is not there, as a text for people; None: all samples are."""
        size = source.size - self.begin
        return _short("samples", self.nbytes, size)


def _short(what: str, stated: int, size: int) -> str | None:
    return f"of {stated} bytes of {what} {size} are there" if size < stated else None


def missing_of_w64(source: ObjectSource) -> str | None:
    """As `Wave.missing`, of the file of Sony whose header has its whole length behind a GUID."""
    stated = int.from_bytes(source.read(16, 24), "little", signed=True)
    return _short("the file", stated, source.size)


def is_wave(head: bytes) -> bool:
    return head.startswith(_RIFFS) and head[8:12] == b"WAVE"


def wave_of(source: ObjectSource) -> Wave:
    layout: tuple[int, int, int, int] | None = None
    long_bytes = block_frames = fact = 0
    for name, at, nbytes in _chunks(source, len(b"RIFF....WAVE")):
        body = source.read(at, at + min(nbytes, _MOST_HEADER_BYTES))
        try:
            if name == b"ds64":
                long_bytes = int(struct.unpack_from("<Q", body, 8)[0])
            elif name == b"fmt ":
                tag, channels, rate, _, frame_bytes = struct.unpack_from("<HHIIH", body)
                if tag == _EXTENSIBLE:
                    tag = struct.unpack_from("<H", body, 24)[0]
                layout = (tag, channels, rate, frame_bytes)
                if tag in _BLOCKS:
                    (block_frames,) = struct.unpack_from("<H", body, 18)
            elif name == b"fact" and block_frames:
                (fact,) = struct.unpack_from("<I", body)
        except struct.error as error:
            raise breaks_off("its header is not all there") from error
        if name == b"data" and layout is not None:
            if not nbytes:
                _check_nothing(source, at)
            is_unknown = nbytes == _UNKNOWN_BYTES
            there = (long_bytes or source.size - at) if is_unknown else nbytes
            # sox counts the byte that pads the samples to an even number.
            block_bytes = layout[3] or 1
            most = -(-(there - (there % block_bytes == 1)) // block_bytes) * block_frames
            frames = fact if 0 <= most - fact < block_frames else None
            return Wave(*layout, at, there, not is_unknown or long_bytes > 0, frames)
    raise breaks_off("it has no samples")


def _chunks(source: ObjectSource, at: int) -> Iterator[tuple[bytes, int, int]]:
    """The name of each chunk, where its body begins, and the length that it states."""
    for _ in range(_MOST_CHUNKS):
        head = source.read(at, at + 8)
        if len(head) < 8:
            return
        name, nbytes = struct.unpack("<4sI", head)
        yield name, at + 8, nbytes
        at += 8 + nbytes + nbytes % 2


def _check_nothing(source: ObjectSource, begin: int) -> None:
    """Raise `Poison` if samples follow a chunk `data` of length 0. Whole chunks up to the end of
    the file are allowed.
    """
    at = begin
    for name, body, nbytes in _chunks(source, begin):
        if not name.strip().isalnum():
            break
        at = body + nbytes + nbytes % 2
    if at not in (source.size, source.size + 1):
        raise Poison(
            "bad_format",
            f"its header says 0 bytes of samples, and {source.size - begin} follow: write it to no "
            "pipe",
        )


def plain_recording(source: ObjectSource, wave: Wave) -> Recording:
    return Recording(wave.rate, wave.channels, _blocks(source, wave), lambda: wave.states_end)


def _blocks(source: ObjectSource, wave: Wave) -> Iterator[Samples]:
    there = min(wave.nbytes, source.size - wave.begin) // wave.frame_bytes
    for first in range(0, there, BLOCK_FRAMES):
        start = wave.begin + first * wave.frame_bytes
        stop = wave.begin + min(there, first + BLOCK_FRAMES) * wave.frame_bytes
        yield _numbers(source.read(start, stop), wave)
    if (missing := wave.missing(source)) is not None:
        raise breaks_off(missing)
    if wave.nbytes % wave.frame_bytes:
        raise breaks_off("its last sample is not all there")


def _numbers(data: bytes, wave: Wave) -> Samples:
    sample_bytes = wave.frame_bytes // wave.channels
    numbers = np.frombuffer(data, _TYPES[wave.tag, sample_bytes])
    if sample_bytes == 3:
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = numbers.reshape(-1, 3)
        numbers = wide.view("<i4")
    return scaled(numbers.reshape(-1, wave.channels))


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


def read_audio(source: ObjectSource, options: RowOptions, wanted: Wanted) -> Iterator[Run]:
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


def _whole(source: ObjectSource, options: RowOptions) -> Run:
    """The whole recording as one opaque row."""
    if source.size > options.row_bytes:
        return bad_row(too_long(options.row_bytes))
    return Run(1, opaque(source.read(0, source.size)))


class _Behind:
    """The object from byte `begin` on."""

    def __init__(self, source: ObjectSource, begin: int) -> None:
        self.size = max(0, source.size - begin)
        self._source = source
        self._begin = begin

    def read(self, start: int, stop: int) -> bytes:
        return self._source.read(self._begin + start, self._begin + stop)


def _untagged(source: ObjectSource) -> ObjectSource:
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


def _decode(source: ObjectSource, options: RowOptions, gathered: Gathered) -> Iterator[Run]:
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
