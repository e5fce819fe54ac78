"""The samples of recordings that libav decodes, block by block.

Rule: the blocks end by `Poison` where the recording is damaged or breaks off, behind all samples
before. Proven are the pages of an Ogg (`ogg`), the numbers, the count and the MD5 of the frames of
a FLAC (RFC 9639, 8.2), and the count of samples in AIFF, CAF, AU, W64 and MP3; libav itself proves
checksums of frames. Samples that an encoder has added are left out.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from penstock.errors import Poison
from penstock.formats.media.container_ends import Container, FollowedFile, OggFile
from penstock.formats.media.decoding import BUFFER_BYTES, frames_of, opened_by_libav
from penstock.formats.source import ObjectSource

if TYPE_CHECKING:
    from av.audio.stream import AudioStream
    from av.container import InputContainer

# Blocks have about this many samples of each channel: 1.4 s at 48 kHz.
BLOCK_FRAMES: Final = 65_536
# libav's names for the containers that state how many samples they have.
_STATING: Final = ("flac", "mov", "aiff", "caf", "au", "w64")
# An MP3 states it in its first frame, if one of these encoders wrote it; others count differently:
# the number of the frames behind this one, and how many samples were added at both ends.
_MP3_TAG: Final = re.compile(
    rb"(?s)(?:Xing|Info)\0\0\0\x0f(.{4}).{108}(?:LAME|Lavf|Lavc).{17}(.{3})"
)
# So many samples a decoder comes late; the tag does not count them.
_MP3_LATE: Final = 529
# libav's names for the numbers of decoded samples.
_TYPES: Final = {"u8": "u1", "s16": "i2", "s32": "i4", "s64": "i8", "flt": "f4", "dbl": "f8"}
# Options of libav's demuxers. If it makes up times for the frames of a FLAC, gaps are not seen. The
# heads of these containers say all, so no frame is decoded to find out more; of a second, that is a
# tenth.
_OPTIONS: Final = {
    "flac": {"fflags": "+nofillin", "max_ts_probe": "0"},
    "ogg": {"analyzeduration": "0"},
}
_MP3_FRAME_BYTES: Final = 1_441  # of 320 kbit/s at 32 kHz, with padding
_STREAMINFO_BYTES: Final = 34

# Samples in the order of time. The shape of the array is (frames, channels); a frame has one sample
# of each channel.
Samples = npt.NDArray[np.float32]
# Samples as a decoder gives them.
Numbers = npt.NDArray[Any]


@dataclass
class Recording:
    """One recording. `states_end`: called when all blocks were given; it returns True if the
    container says where the recording ends. `stated`: how many samples of each channel its header
    states, if such a statement is exact. `frames`: how many were given so far.
    """

    rate: int
    channels: int
    blocks: Iterator[Samples]
    states_end: Callable[[], bool]
    stated: int | None = None
    frames: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if not (self.rate > 0 and self.channels > 0):
            raise Poison("bad_format", "the recording cannot be read: it has no rate or no channel")

    def __iter__(self) -> Iterator[Samples]:
        for block in self.blocks:
            self.frames += len(block)
            yield block


def breaks_off(what: str) -> Poison:
    return Poison("bad_format", f"the recording breaks off: {what}")


def scaled(numbers: Numbers) -> Samples:
    """The samples as float32 from -1 to 1."""
    if numbers.dtype.kind == "f":
        return numbers.astype(np.float32, copy=False)
    bits = 8 * numbers.dtype.itemsize - 1
    samples = numbers.astype(np.float32)
    if numbers.dtype.kind == "u":
        samples -= np.float32(1 << bits)
    samples *= np.float32(2.0**-bits)
    return samples


def decoded(
    source: ObjectSource, container: str, missing: str | None = None, frames: int | None = None
) -> Iterator[Recording]:
    """The recordings of an object, one after the other. `container`: libav's name for it.
    `missing`: what the caller found to be missing at the end of the object. `frames`: how many
    samples of each channel the caller found in the header.
    """
    if container != "ogg":
        file = FollowedFile(source, container)
        with _opened(file, container) as opened:
            stream = _stream(opened)
            stated, most = (frames, None) if frames else _stated(source, stream)
            proof = _Flac if container == "flac" else _Stated
            yield _recording(
                opened,
                stream,
                proof(stream, file.container, missing, stated, most),
                file.container.holes(stream.id),
            )
        return
    at: int | None = 0
    while at is not None:
        pages = OggFile(source, at)
        with _opened(pages, container) as opened:
            stream = _stream(opened)
            yield _recording(opened, stream, _Ogg(stream, pages))
        at = pages.at if pages.is_followed else None


def _opened(file: FollowedFile | OggFile, container: str) -> "InputContainer":
    try:
        return opened_by_libav(file, container, "recording", _OPTIONS.get(container))
    except Poison as poison:
        if isinstance(file, OggFile) and file.broken:
            raise breaks_off(file.broken) from poison
        raise


def _recording(
    opened: "InputContainer", stream: "AudioStream", proof: "_Proof", holes: Sequence[int] = ()
) -> Recording:
    blocks = _blocks(opened, stream, proof, holes)
    rate = stream.rate or 0
    return Recording(rate, stream.channels, blocks, proof.states_end, proof.stated)


def _stream(opened: "InputContainer") -> "AudioStream":
    for stream in opened.streams.audio:
        # PyAV gives None for a codec that its libraries lack, although PyAV's types exclude None.
        context: object = stream.codec_context
        if context is None:
            raise Poison("bad_format", "the recording is of a codec that is not known")
        return stream
    raise Poison("bad_format", "there is no sound in it")


def _blocks(
    opened: "InputContainer", stream: "AudioStream", proof: "_Proof", holes: Sequence[int]
) -> Iterator[Samples]:
    rate, channels = stream.rate, stream.channels
    parts: list[Numbers] = []
    given = held = 0
    failure: Poison | None = None
    try:
        for frame in frames_of(opened, stream, "recording", proof.missing, holes):
            if (frame.sample_rate, frame.layout.nb_channels) != (rate, channels):
                raise Poison("bad_format", "the recording changes its rate or its channels")
            parts.append(proof.proven(frame.pts, _numbers(frame, channels)))
            held += len(parts[-1])
            if held >= BLOCK_FRAMES and proof.sure == given + held:
                yield scaled(np.concatenate(parts))
                parts, given, held = [], given + held, 0
    except Poison as poison:
        failure = None if proof.is_over else poison
    try:
        if failure is None:
            proof.end()
    except Poison as poison:
        failure = poison
    if held:
        whole = np.concatenate(parts)
        yield scaled(whole if failure is None else whole[: proof.sure - given])
    if failure is not None:
        raise failure


def _numbers(frame: Any, channels: int) -> Numbers:
    """The samples as the decoder gives them; the shape is (frames, channels)."""
    if frame.format.is_planar:
        planes: Numbers = frame.to_ndarray()
        return planes.T
    count = frame.samples * channels
    return np.frombuffer(frame.planes[0], _TYPES[frame.format.name], count).reshape(-1, channels)


class _Proof(Protocol):
    """Holds the samples against what their container states."""

    sure: int = 0
    """How many samples are proven, as far as that can be known before the end."""

    @property
    def stated(self) -> int | None:
        """How many samples there should be; None: nothing says so exactly."""
        return None

    @property
    def is_over(self) -> bool:
        """True if all samples came that should. What cannot be decoded then is no recording."""
        return False

    def proven(self, pts: int | None, numbers: Numbers) -> Numbers:
        """The samples of a frame that belong to the recording. `pts`: the time of the frame, in the
        file's clock.
        """
        ...

    def states_end(self) -> bool:
        """Called when all was read: True if the container says where the recording ends."""
        ...

    def missing(self) -> str | None:
        """Called when all of the file was read: what is missing, as a text for people."""
        ...

    def end(self) -> None:
        """Raise `Poison` if the samples are not those that the container states."""
        return


class _Stated(_Proof):
    """The samples of a container that may state their number. What follows the frames of which an
    MP3 tells (`most`) is another recording, or tags.
    """

    def __init__(
        self,
        stream: "AudioStream",
        container: Container,
        missing: str | None,
        stated: int | None,
        most: int | None,
    ) -> None:
        self.count = 0
        self._came = 0
        self._container = container
        self._missing = missing
        self._stated = stated
        self._most = most
        # An MP4 states when the sound ends. It may state gaps, too, so it does not state a count.
        self._is_wave = stream.container.format.name == "wav"
        self._is_exact = stream.container.format.name != "mov"
        # A CAF states how many packets of ALAC it has, and FFmpeg counts the last as a full one. A
        # decoder of libav cuts the last packet, although it is not filled up.
        self._packets: int | None = None
        if (stream.container.format.name, stream.codec_context.name) == ("caf", "alac"):
            self._packets = stream.frames // (stream.codec_context.frame_size or 1)
            _leave_whole(stream)

    @property
    def stated(self) -> int | None:
        """How many samples there should be. The parts of an MP4 in fragments state their own."""
        return self._stated if self._is_exact or self._container.states_end else None

    @property
    def is_over(self) -> bool:
        is_counted = self._most is not None or self._is_wave
        return self._packets == 0 or (is_counted and self.count == self.stated)

    def states_end(self) -> bool:
        return self.stated is not None or self._is_wave or self._container.states_end

    def missing(self) -> str | None:
        return self._missing or self._container.missing()

    def proven(self, pts: int | None, numbers: Numbers) -> Numbers:
        self._came += len(numbers)
        if self._packets is not None:
            self._packets -= 1
        if self.stated is not None:
            numbers = numbers[: self.stated - self.count]
        self.count += len(numbers)
        self.sure = self.count
        return numbers

    def end(self) -> None:
        is_short = self.stated is not None and self.count < self.stated
        is_short = is_short if self._packets is None else self._packets > 0
        if self._is_exact and is_short:
            raise breaks_off(f"after {self.count} of {self.stated} samples")
        if not self._is_exact and not self.count:
            raise Poison("bad_format", "there are no samples in it")
        if self._most is not None and self._came > self._most:
            raise _followed("MP3")


def _leave_whole(stream: "AudioStream") -> None:
    """Let libav cut no samples at the begin and the end."""
    from av.codec.context import Flags2  # noqa: PLC0415

    stream.codec_context.flags2 |= Flags2.skip_manual


def _followed(kind: str) -> Poison:
    message = f"another {kind} follows the first; store each as an object of its own"
    return Poison("bad_format", message)


def _stated(source: ObjectSource, stream: "AudioStream") -> tuple[int | None, int | None]:
    """How many samples the container states, and if it is an MP3, how many its frames have. For
    others, libav guesses it from the size.
    """
    container = stream.container.format.name
    if container == "mp3":
        return _stated_by_tag(source, stream.rate or 0)
    if container not in _STATING or stream.duration is None or stream.time_base is None:
        return None, None
    if container == "caf" and stream.codec_context.name.startswith("pcm"):
        return stream.frames or None, None  # libav makes up the duration
    return round(stream.duration * Fraction(stream.time_base) * (stream.rate or 0)) or None, None


def _stated_by_tag(source: ObjectSource, rate: int) -> tuple[int | None, int | None]:
    tag = _MP3_TAG.search(source.read(0, _MP3_FRAME_BYTES))
    if tag is None or not any(tag[1]):
        return None, None
    # Of MPEG-1, whose rates are these, a frame has 1,152 samples; of MPEG-2 half of them.
    frames = int.from_bytes(tag[1], "big") * (1_152 if rate >= 32_000 else 576)
    added = int.from_bytes(tag[2], "big")
    most = frames - (added >> 12) - _MP3_LATE
    return most - max(0, (added & 0xFFF) - _MP3_LATE), most


class _Flac(_Stated):
    """Proves the samples of a FLAC: each frame has the number of its first sample, and STREAMINFO
    has the number and the MD5 of all samples.
    """

    def __init__(self, stream: "AudioStream", *given: Any) -> None:
        super().__init__(stream, *given)
        info = (stream.codec_context.extradata or b"").ljust(_STREAMINFO_BYTES, b"\0")
        self._bits = ((info[12] & 1) << 4 | info[13] >> 4) + 1
        self._md5 = info[18:34]
        # Old encoders numbered blocks of varying sizes so that libav computes wrong times.
        self._is_fixed = info[:2] == info[2:4]
        self._digest = hashlib.md5(usedforsecurity=False)
        self._is_joined = False

    @property
    def is_over(self) -> bool:
        return self._is_joined or self.count == self.stated

    def proven(self, pts: int | None, numbers: Numbers) -> Numbers:
        self._is_joined |= self.is_over or (pts == 0 and self.count > 0)
        if self._is_joined:
            return numbers[:0]
        if self._is_fixed and pts not in (None, self.count):
            raise breaks_off(f"behind sample {self.sure} a frame is missing")
        self.count += len(numbers)
        # libav gives no number if that of the next frame does not follow on it. Then the next frame
        # tells, or the MD5 at the end.
        if pts is not None or not self._is_fixed:
            self.sure = self.count
        if any(self._md5):
            nbytes = numbers.dtype.itemsize
            whole = numbers >> 8 * nbytes - self._bits if self._bits < 8 * nbytes else numbers
            octets = np.ascontiguousarray(whole).view(np.uint8).reshape(-1, nbytes)
            self._digest.update(np.ascontiguousarray(octets[:, : -(-self._bits // 8)]).data)
        return numbers

    def end(self) -> None:
        super().end()
        if any(self._md5) and self._digest.digest() != self._md5:
            raise Poison("bad_format", "the samples are not those whose MD5 the FLAC states")
        self.sure = self.count
        if self._is_joined:
            raise _followed("FLAC")


class _Ogg(_Proof):
    """The samples of an Ogg. libav leaves out what an encoder has added, but not in a Vorbis: it
    has no right times if all samples are in one page.
    """

    def __init__(self, stream: "AudioStream", file: OggFile) -> None:
        self._file = file
        self._at: int | None = None  # the position of the next sample
        self._is_vorbis = stream.codec_context.name == "vorbis"
        self._is_first = True
        if self._is_vorbis:
            _leave_whole(stream)

    def states_end(self) -> bool:
        return self._file.is_at_end

    def missing(self) -> str | None:
        while self._file.read(BUFFER_BYTES):
            pass
        return self._file.broken

    def proven(self, pts: int | None, numbers: Numbers) -> Numbers:
        if self._is_vorbis:
            numbers = self._without_overlaps(pts, numbers)
        self.sure += len(numbers)
        return numbers

    def _without_overlaps(self, pts: int | None, numbers: Numbers) -> Numbers:
        # The first packet of a Vorbis gives no samples, only half of an overlap (Vorbis I, 4.3.8).
        if self._is_first:
            self._is_first = False
            return numbers[:0]
        if self._at is None:
            self._at = 0 if self._file.pages <= 1 else pts or 0
        begin, self._at = self._at, self._at + len(numbers)
        end = self._file.last_granule if self._file.is_at_end else self._at
        return numbers[max(0, -begin) : max(0, end - begin)]
