"""Reads WAV files of plain numbers, whole or float, of 8 to 64 bits.

Rule: such a file is a few headers and then the samples as they are, so no library decodes it. Its
length is in its header. A writer that cannot seek back leaves the length as 0 or as all ones. All
ones: the samples reach to the end of the file. 0: there must be no samples. Layouts: RIFF, WAVE and
WAVE_FORMAT_EXTENSIBLE (Microsoft), RF64 (EBU Tech 3306). Owner: one reading of one object.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from penstock.errors import Poison
from penstock.formats.base.source import Source
from penstock.formats.media.samples import BLOCK_FRAMES, Recording, Samples, breaks_off, scaled

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

    def missing(self, source: Source) -> str | None:
        """What is not there, as a text for people; None: all samples are."""
        found = source.size - self.begin
        return _short("samples", self.nbytes, found)


def _short(what: str, stated: int, found: int) -> str | None:
    return f"of {stated} bytes of {what} {found} are there" if found < stated else None


def missing_of_w64(source: Source) -> str | None:
    """As `Wave.missing`, of the file of Sony whose header has its whole length behind a GUID."""
    stated = int.from_bytes(source.read(16, 24), "little", signed=True)
    return _short("the file", stated, source.size)


def is_wave(head: bytes) -> bool:
    return head.startswith(_RIFFS) and head[8:12] == b"WAVE"


def wave_of(source: Source) -> Wave:
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


def _chunks(source: Source, at: int) -> Iterator[tuple[bytes, int, int]]:
    """The name of each chunk, where its body begins, and the length that it states."""
    for _ in range(_MOST_CHUNKS):
        head = source.read(at, at + 8)
        if len(head) < 8:
            return
        name, nbytes = struct.unpack("<4sI", head)
        yield name, at + 8, nbytes
        at += 8 + nbytes + nbytes % 2


def _check_nothing(source: Source, begin: int) -> None:
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


def plain_recording(source: Source, wave: Wave) -> Recording:
    return Recording(wave.rate, wave.channels, _blocks(source, wave), lambda: wave.states_end)


def _blocks(source: Source, wave: Wave) -> Iterator[Samples]:
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
