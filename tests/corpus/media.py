"""Hostile recordings and videos: cut short, lying, of nothing, of too much."""

from collections.abc import Iterator

from penstock.formats.media.audio import AudioOptions
from penstock.formats.pictures.pixels import PictureOptions, PixelOptions
from penstock.formats.runs import RowOptions
from tests.corpus.cases import Stored
from tests.formats.recordings import recording, tone, video

# A model of JSON takes neither.
_NEITHER = "end:bad_format"
_OPTIONS = RowOptions(
    own=(
        PictureOptions(image=PixelOptions(4, 3)),
        AudioOptions(window_ms=500),
    )
)
_SMALL = RowOptions(
    row_bytes=4_000, own=(PictureOptions(image=PixelOptions(4, 3), pixels=64 * 48 - 1),)
)
_WAV = recording(tone(8_000))


def _case(
    name: str, key: str, data: bytes, answer: str = _NEITHER, options: RowOptions = _OPTIONS
) -> Stored:
    return Stored(name, key, data, answer, _NEITHER, options)


def _cut_short() -> Iterator[Stored]:
    """16-bit samples behind 44 bytes; half a second is a row, a part of one is none."""
    yield _case("a whole WAV", "x.wav", _WAV, "row*2")
    for tenth in range(1, 10):
        part = _WAV[: len(_WAV) * tenth // 10]
        rows = "row " if len(part) >= 44 + 8_000 else ""
        yield _case(f"{tenth} tenths of a WAV", "x.wav", part, f"{rows}end:bad_format")
    mp4 = video(5)
    yield _case("a whole MP4", "x.mp4", mp4, "row*5")
    for tenth in range(1, 10):
        yield _case(f"{tenth} tenths of an MP4", "x.mp4", mp4[: len(mp4) * tenth // 10])


MEDIA = [
    *_cut_short(),
    _case("a WAV of no samples", "x.wav", recording(tone(0)), "end"),
    _case("a WAV of 2 billion samples a second", "x.wav",
          _WAV[:24] + (2**31 - 1).to_bytes(4, "little") + _WAV[28:], "end:too_large"),
    _case("a WAV of no rate", "x.wav", _WAV[:24] + bytes(4) + _WAV[28:]),
    _case("a WAV of windows above the limit", "x.wav", _WAV, "end:too_large", _SMALL),
    _case("a FLAC of zeros", "x.flac", b"fLaC" + bytes(400)),
    _case("an Ogg of capitals", "x.ogg", b"OggS" * 200),
    _case("an MP4 of too many pixels", "x.mp4", video(2), "end:too_large", _SMALL),
    _case("an MP4 of empty boxes", "x.mp4", b"\0\0\0\x08ftyp" + b"\0\0\0\x08moov" * 99),
    _case("an MP4 whose box ends beyond all numbers", "x.mp4",
          b"\0\0\0\x01ftyp" + b"\xff" * 8 + bytes(99)),
    _case("a WebM of ones", "x.webm", b"\x1a\x45\xdf\xa3" + b"\xff" * 400),
    _case("packets of nothing", "x.ts", (b"G" + bytes(187)) * 40),
    _case("a text named video", "x.mkv", b"hello, world"),
]  # fmt: skip
