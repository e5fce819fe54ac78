"""Recordings and films as other tools write them.

The content is noise for tools that keep each sample, a tone for those that do not, and frames of
one colour each. A film's rows are 4 x 4 pixels of each frame.
"""

import io
import struct
import wave
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.writers.support import (
    Cell,
    File,
    Refused,
    Request,
    Right,
    Way,
    files,
    hold,
    named,
    read,
    run,
)

Samples = npt.NDArray[np.int16]

RATE = 48_000
WINDOW = RATE // 4
# Of 8 bits, so that every width of sample holds them; two and a half windows.
NOISE: Samples = (
    np.random.default_rng(38).integers(-(2**7), 2**7, WINDOW * 5 // 2).astype(np.int16) << 8
)
TONE: Samples = (
    np.sin(np.arange(WINDOW * 9 // 2) * 2 * np.pi * 440 / RATE) * 2**14
).astype(np.int16)  # fmt: skip
# A shift by one sample of the tone is a mean difference of 0.018.
MOST_DIFFERENCE = 0.01
SOUND_ROWS = {"window_ms": 250}

SIZE = 32
COLOURS = np.random.default_rng(38).integers(0, 256, (24, 3), np.uint8)
GREYS = np.repeat(COLOURS[:, :1] // 2 + 60, 3, axis=1)
FILM_ROWS = {"image_size": "4x4", "image_layout": "nhwc", "image_scale": "none"}
MOST_GREYS = 4.0
# For each cell that loses something: the largest mean difference of a row.
LOSSES: dict[str, float] = {}
# The end of the GUID of the plain numbers.
_PCM = bytes.fromhex("000000001000800000aa00389b71")
# Recordings and films are read by ranges.
WAYS: tuple[Way, ...] = ("plain", "decoder")


def sound(samples: Samples) -> list[object]:
    """The right windows; the last one is filled up with zeros."""
    return windows_of(samples.tobytes())


@cache  # most tools are given the same
def windows_of(octets: bytes) -> list[object]:
    samples = np.frombuffer(octets, np.int16)
    whole = np.zeros(-(-len(samples) // WINDOW) * WINDOW, np.float32)
    whole[: len(samples)] = samples.astype(np.float32) / 2**15
    return list(whole.reshape(-1, WINDOW).tolist())


def film(colours: npt.NDArray[np.uint8]) -> list[object]:
    return list(np.tile(colours, (1, 16)).astype(np.float32).tolist())


def wav(samples: Samples) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    return out.getvalue()


def of_fewer_bits(samples: Samples, bits: int) -> bytes:
    """As WAVE_FORMAT_EXTENSIBLE, which says that so many bits of a sample are valid."""
    nbytes = -(-bits // 8)
    octets = (samples.astype("<i4") << 16).view(np.uint8).reshape(-1, 4)[:, 4 - nbytes :]
    form = struct.pack("<HHIIHH", 0xFFFE, 1, RATE, RATE * nbytes, nbytes, 8 * nbytes)
    form += struct.pack("<HHI", 22, bits, 4) + struct.pack("<H", 1) + _PCM
    body = b"fmt " + struct.pack("<I", len(form)) + form
    body += b"data" + struct.pack("<I", octets.size) + octets.tobytes()
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


def made(
    key: str, commands: Sequence[str], given: bytes, right: Right, request: Request = "float32"
) -> Callable[[Path], File]:
    """`commands`: each is run in the folder, where the content is in the file `in`."""

    def write(folder: Path) -> File:
        (folder / "in").write_bytes(given)
        for command in commands:
            run(*command.split(), cwd=folder)
        return File(key, (folder / key).read_bytes(), {request: right})

    return write


def tools(commands: Sequence[str]) -> list[str]:
    return sorted({command.split()[0] for command in commands})


def exact(writer: str, option: str, key: str, *commands: str, is_long: bool = False) -> Cell:
    """A recording that keeps each sample."""
    write = made(key, commands, wav(NOISE), sound(NOISE))
    return Cell(writer, option, write, tools(commands), SOUND_ROWS, WAYS, is_long)


def near(writer: str, option: str, key: str, *commands: str, is_long: bool = False) -> Cell:
    """A recording that loses, but no whole samples."""
    write = made(key, commands, wav(TONE), sound(TONE))
    cell = Cell(writer, option, write, tools(commands), SOUND_ROWS, WAYS, is_long)
    LOSSES[str(cell)] = MOST_DIFFERENCE
    return cell


def full(writer: str, option: str, key: str, *commands: str) -> Cell:
    """A recording that ends with a window, so that what an encoder adds must not make another."""
    whole = TONE[: 4 * WINDOW]
    write = made(key, commands, wav(whole), sound(whole))
    cell = Cell(writer, f"{option}, full windows", write, tools(commands), SOUND_ROWS, WAYS)
    LOSSES[str(cell)] = MOST_DIFFERENCE
    return cell


def filmed(writer: str, option: str, key: str, *commands: str, is_long: bool = False) -> Cell:
    """A film that keeps each colour."""
    write = made(key, commands, frames(COLOURS), film(COLOURS))
    return Cell(writer, option, write, tools(commands), FILM_ROWS, WAYS, is_long)


def grey(
    writer: str, option: str, key: str, *commands: str, is_long: bool = False, first: int = 0
) -> Cell:
    """A film that loses a little. `first`: the first frame that it shows."""
    write = made(key, commands, frames(GREYS), film(GREYS[first:]))
    cell = Cell(writer, option, write, tools(commands), FILM_ROWS, WAYS, is_long)
    LOSSES[str(cell)] = MOST_GREYS
    return cell


def frames(colours: npt.NDArray[np.uint8]) -> bytes:
    return np.repeat(colours, SIZE * SIZE, axis=0).tobytes()


FFMPEG = "ffmpeg -nostdin -v error -y"
RAW = f"{FFMPEG} -f rawvideo -pix_fmt rgb24 -s {SIZE}x{SIZE} -r 25 -i in"
X264 = "-c:v libx264 -pix_fmt yuv420p -crf 10"
COVER = "-f lavfi -i color=red:s=64x64:d=0.04:r=25 -map 0 -map 1 -disposition:v attached_pic"

SOUNDS = [
    exact("Python", "wave", "in", "true"),
    *(
        exact("ffmpeg", f"WAV, {codec}", "a.wav", f"{FFMPEG} -i in -c:a {codec} a.wav")
        for codec in ("pcm_u8", "pcm_s24le", "pcm_s32le", "pcm_f32le", "pcm_f64le")
    ),
    exact("ffmpeg", "RF64", "a.wav", f"{FFMPEG} -i in -rf64 always a.wav"),
    exact("ffmpeg", "W64", "a.w64", f"{FFMPEG} -i in a.w64"),
    exact("ffmpeg", "AIFF", "a.aiff", f"{FFMPEG} -i in a.aiff"),
    exact("ffmpeg", "CAF", "a.caf", f"{FFMPEG} -i in a.caf"),
    exact("ffmpeg", "AU", "a.au", f"{FFMPEG} -i in a.au"),
    exact("ffmpeg", "FLAC", "a.flac", f"{FFMPEG} -i in a.flac"),
    exact("ffmpeg", "FLAC with a cover", "a.flac", f"{FFMPEG} -i in {COVER} -c:v png a.flac"),
    exact("ffmpeg", "FLAC in Ogg", "a.oga", f"{FFMPEG} -i in -c:a flac a.oga"),
    exact("ffmpeg", "FLAC in Matroska", "a.mka", f"{FFMPEG} -i in -c:a flac a.mka"),
    exact("ffmpeg", "ALAC", "a.m4a", f"{FFMPEG} -i in -c:a alac a.m4a"),
    near("ffmpeg", "AAC with a cover", "a.m4a",
         f"{FFMPEG} -i in {COVER} -c:v mjpeg -c:a aac -b:a 192k a.m4a"),
    near("ffmpeg", "MP3 with a cover", "a.mp3",
         f"{FFMPEG} -i in {COVER} -c:v mjpeg -c:a libmp3lame -b:a 192k a.mp3"),
    near("ffmpeg", "Vorbis", "a.ogg", f"{FFMPEG} -i in -c:a libvorbis a.ogg"),
    near("ffmpeg", "Opus", "a.opus", f"{FFMPEG} -i in -c:a libopus -b:a 128k a.opus"),
    near("ffmpeg", "WAV, A-law", "a.wav", f"{FFMPEG} -i in -c:a pcm_alaw a.wav"),
    near("ffmpeg", "WAV, mu-law", "a.wav", f"{FFMPEG} -i in -c:a pcm_mulaw a.wav"),
    full("ffmpeg", "AAC", "a.m4a", f"{FFMPEG} -i in -c:a aac -b:a 192k a.m4a"),
    full("ffmpeg", "Opus in MP4", "a.m4a", f"{FFMPEG} -i in -c:a libopus -b:a 128k -f mp4 a.m4a"),
    full("ffmpeg", "MP3", "a.mp3", f"{FFMPEG} -i in -c:a libmp3lame -b:a 192k a.mp3"),
    full("sox", "WAV, IMA ADPCM", "a.wav", "sox -t wav in -e ima-adpcm a.wav"),
    full("sox", "WAV, Microsoft ADPCM", "a.wav", "sox -t wav in -e ms-adpcm a.wav"),
    full("lame", "constant", "a.mp3", "lame --quiet -b 192 in a.mp3"),
    exact("flac", "16 bit", "a.flac", "flac -s -f in -o a.flac"),
    exact("flac", "16 bit, small blocks", "a.flac", "flac -s -f --blocksize=576 in -o a.flac"),
    exact("flac", "in Ogg", "a.oga", "flac -s -f --ogg in -o a.oga"),
    *(
        exact("flac", f"{bits} bit", "a.flac",
              f"sox -D -t wav in -b {wide} a.wav", "flac -s -f a.wav -o a.flac")
        for bits, wide in ((8, 8), (24, 24), (32, 32))
    ),
    *(
        Cell("flac", f"{bits} bit",
             made("a.flac", ["flac -s -f in -o a.flac"], of_fewer_bits(NOISE, bits), sound(NOISE)),
             ["flac"], SOUND_ROWS, WAYS)
        for bits in (12, 20)
    ),
    near("lame", "constant", "a.mp3", "lame --quiet -b 192 in a.mp3"),
    near("lame", "variable, tags", "a.mp3", "lame --quiet -V2 --tt t --add-id3v2 in a.mp3"),
    near("opusenc", "Opus", "a.opus", "opusenc --quiet --bitrate 128 in a.opus"),
    near("oggenc", "Vorbis", "a.ogg", "oggenc -Q -q 6 in -o a.ogg"),
    exact("sox", "WAV, 24 bit", "a.wav", "sox -t wav in -b 24 a.wav"),
    exact("sox", "AIFF", "a.aiff", "sox -t wav in a.aiff"),
    exact("sox", "FLAC", "a.flac", "sox -t wav in a.flac"),
    near("sox", "WAV, mu-law", "a.wav", "sox -t wav in -e u-law a.wav"),
    exact("mkvmerge", "FLAC in Matroska", "a.mka",
          "flac -s -f in -o a.flac", "mkvmerge -q -o a.mka a.flac"),
    exact("GStreamer", "flacenc", "a.flac",
          "gst-launch-1.0 -q filesrc location=in ! wavparse ! flacenc ! filesink location=a.flac",
          is_long=True),
    exact("GStreamer", "wavenc", "a.wav",
          "gst-launch-1.0 -q filesrc location=in ! wavparse ! wavenc ! filesink location=a.wav",
          is_long=True),
]  # fmt: skip

FILMS = [
    filmed("ffmpeg", "FFV1 in Matroska", "a.mkv", f"{RAW} -c:v ffv1 -pix_fmt gbrp a.mkv"),
    filmed("ffmpeg", "H.264 without loss, MP4", "a.mp4", f"{RAW} -c:v libx264rgb -qp 0 a.mp4"),
    filmed("ffmpeg", "QuickTime Animation", "a.mov", f"{RAW} -c:v qtrle a.mov"),
    filmed("ffmpeg", "QuickTime Animation with alpha", "a.mov",
           f"{RAW} -c:v qtrle -pix_fmt argb a.mov"),
    filmed("ffmpeg", "PNG in QuickTime", "a.mov", f"{RAW} -c:v png a.mov"),
    filmed("ffmpeg", "VP9 without loss, WebM", "a.webm",
           f"{RAW} -c:v libvpx-vp9 -lossless 1 -pix_fmt gbrp a.webm"),
    grey("ffmpeg", "H.264 with B-frames, MP4", "a.mp4", f"{RAW} {X264} -bf 3 a.mp4"),
    grey("ffmpeg", "MP4, fragmented", "a.mp4",
         f"{RAW} {X264} -movflags frag_keyframe+empty_moov -g 8 a.mp4"),
    grey("ffmpeg", "MP4, edit list", "a.mp4", f"{RAW} {X264} -g 50 -bf 0 b.mp4",
         f"{FFMPEG} -ss 0.2 -i b.mp4 -c copy a.mp4", first=5),
    grey("ffmpeg", "MPEG-TS, H.264", "a.ts", f"{RAW} {X264} -bf 2 a.ts"),
    grey("ffmpeg", "MPEG-TS, MPEG-2, interlaced", "a.ts",
         f"{RAW} -c:v mpeg2video -q:v 1 -flags +ilme+ildct a.ts"),
    grey("ffmpeg", "H.265, 10 bit", "a.mp4",
         f"{RAW} -c:v libx265 -pix_fmt yuv420p10le -crf 8 -x265-params log-level=none a.mp4"),
    grey("ffmpeg", "ProRes", "a.mov", f"{RAW} -c:v prores_ks a.mov"),
    grey("ffmpeg", "MJPEG in QuickTime", "a.mov", f"{RAW} -c:v mjpeg -q:v 1 a.mov"),
    grey("ffmpeg", "VP8, WebM", "a.webm", f"{RAW} -c:v libvpx -crf 4 -b:v 2M a.webm"),
    Cell("ffmpeg", "AVI", made("a.avi", [f"{RAW} -c:v mjpeg a.avi"], frames(GREYS),
         Refused("RIFF (as AVI)"), "float32"), ["ffmpeg"], FILM_ROWS, WAYS),
    Cell("ffmpeg", "MP4 of sound alone, as a film", made("a.mp4", [f"{FFMPEG} -i in a.mp4"],
         wav(TONE), Refused("only sound"), "bytes"), ["ffmpeg"], {}, WAYS),
    grey("mkvmerge", "H.264 in Matroska", "a.mkv",
         f"{RAW} {X264} b.mp4", "mkvmerge -q -o a.mkv b.mp4"),
]  # fmt: skip

CELLS: list[Cell] = [*SOUNDS, *FILMS]


@pytest.mark.parametrize("cell", named([cell for cell in CELLS if str(cell) not in LOSSES]))
def test_rows_are_what_was_written(cell: Cell, tmp_path: Path) -> None:
    hold(cell, tmp_path)


@pytest.mark.parametrize("cell", named([cell for cell in CELLS if str(cell) in LOSSES]))
def test_rows_are_nearly_what_was_written(cell: Cell, tmp_path: Path) -> None:
    """As many rows, and each of them near, which samples that are shifted by one are not."""
    [file] = files(cell, tmp_path)
    right = np.array(file.right["float32"], np.float32)
    for way in cell.ways:
        seen = read(way, file.key, file.data, "float32", cell.rows)
        assert seen.failure is None, seen.failure
        found = np.array(seen.rows, np.float32)
        assert found.shape == right.shape
        differences = np.abs(found - right).mean(axis=1)
        assert differences.max() < LOSSES[str(cell)], differences


RECORDINGS = {"m4a": f"{FFMPEG} -i in -c:a aac -b:a 192k a.m4a", "mp3": "lame --quiet -V2 in a.mp3"}


def recorded(folder: Path, kind: str, samples: Samples, *more: str) -> bytes:
    """`more`: commands that make `b` of the recording."""
    command = RECORDINGS[kind]
    key = f"b.{kind}" if more else f"a.{kind}"
    return made(key, [command, *more], wav(samples), [])(folder).data


@pytest.mark.parametrize("kind", RECORDINGS)
def test_a_recording_behind_another_is_not_passed_over(kind: str, tmp_path: Path) -> None:
    # Of the first, whose bit rate is lower, one may guess that the file is longer than it is.
    first = recorded(tmp_path, kind, np.zeros_like(TONE))
    joined = first + recorded(tmp_path, kind, TONE)
    alone = read("decoder", f"a.{kind}", first, "float32", SOUND_ROWS)
    seen = read("decoder", f"a.{kind}", joined, "float32", SOUND_ROWS)
    assert seen.failure is not None
    assert "store each as an object of its own" in seen.failure
    assert seen.rows == alone.rows[: len(seen.rows)]
    assert len(seen.rows) == len(TONE) // WINDOW


def test_a_large_tag_behind_an_mp3_is_no_sound(tmp_path: Path) -> None:
    plain = recorded(tmp_path, "mp3", TONE)
    body = b"x" * 100_000
    size = struct.pack("<II", 2_000, len(body) + 32) + struct.pack("<I", 1)
    ends = [
        b"APETAGEX" + size + struct.pack("<I", flags) + bytes(8) for flags in (5 << 29, 1 << 31)
    ]
    tagged = plain + ends[0] + body + ends[1]
    alone = read("decoder", "a.mp3", plain, "float32", SOUND_ROWS)
    seen = read("decoder", "a.mp3", tagged, "float32", SOUND_ROWS)
    assert (seen.failure, len(seen.rows)) == (None, len(alone.rows))
    assert seen.rows[:-1] == alone.rows[:-1]


def test_a_part_of_an_mp3_is_all_there(tmp_path: Path) -> None:
    """ffmpeg copies whole frames, and says of none of their samples that it was added."""
    part = recorded(tmp_path, "mp3", TONE, f"{FFMPEG} -i a.mp3 -t 0.5 -c copy b.mp3")
    seen = read("decoder", "a.mp3", part, "float32", SOUND_ROWS)
    assert (seen.failure, len(seen.rows)) == (None, 3)


@pytest.mark.parametrize("option", ["", "-movflags frag_keyframe+empty_moov"])
def test_a_film_behind_another_is_not_passed_over(option: str, tmp_path: Path) -> None:
    write = made("a.mp4", [f"{RAW} {X264} -bf 0 {option} a.mp4"], frames(GREYS), [])
    one = write(tmp_path).data
    seen = read("decoder", "a.mp4", one * 2, "float32", FILM_ROWS)
    assert seen.failure is not None
    movie = len(one) + one.index(b"moov") - 4
    assert f"another begins at byte {movie}" in seen.failure
    assert seen.rows == read("decoder", "a.mp4", one, "float32", FILM_ROWS).rows[: len(seen.rows)]


@pytest.mark.parametrize(
    ("key", "commands", "said"),
    [
        ("a.mp4", [f"{RAW} {X264} -movflags empty_moov -frames:v 0 a.mp4"], "no frame"),
        ("a.m4a", [f"{FFMPEG} -f lavfi -i sine -t 0 -movflags empty_moov a.m4a"], "no samples"),
    ],
)  # fmt: skip
def test_the_head_of_a_stream_alone_is_no_film(
    key: str, commands: list[str], said: str, tmp_path: Path
) -> None:
    head = made(key, commands, frames(GREYS), [])(tmp_path)
    rows = FILM_ROWS if key == "a.mp4" else SOUND_ROWS
    seen = read("decoder", key, head.data, "float32", rows)
    assert seen.failure is not None
    assert said in seen.failure
