"""Videos and recordings as ffmpeg writes them, compared with what ffprobe and ffmpeg find."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from penstock.core.rows.payload import Matrix
from penstock.errors import Poison
from penstock.formats.media.audio import AudioOptions
from penstock.formats.pictures.pixels import PictureOptions, PixelOptions
from penstock.formats.registry import formats
from penstock.formats.runs import RowOptions, Run
from tests.formats.support import by_ranges

pytestmark = pytest.mark.skipif(
    not (shutil.which("ffmpeg") and shutil.which("ffprobe")), reason="ffmpeg is not on this machine"
)

FRAMES = 50
SIZE = (96, 64)
PIXELS = PixelOptions(*SIZE, "nhwc")
VIDEO = RowOptions(form="matrix", own=(PictureOptions(image=PIXELS),))


def ffmpeg(*arguments: object, stdin: bytes | None = None) -> None:
    command = ["ffmpeg", "-v", "error", "-y", *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def rows_of(path: Path, kind: str, options: RowOptions) -> tuple[list[Run], Poison | None]:
    runs: list[Run] = []
    try:
        for some in by_ranges(options, formats()[kind], path.read_bytes()):
            runs += some
    except Poison as poison:
        return runs, poison
    return runs, None


def values(runs: Sequence[Run]) -> np.ndarray[Any, np.dtype[np.float32]]:
    found = [run.payload.values for run in runs if isinstance(run.payload, Matrix)]
    return np.concatenate(found)


def times(runs: Sequence[Run]) -> list[int]:
    return [ms for run in runs if run.since_ms is not None for ms in run.since_ms.tolist()]


def shown(path: Path) -> list[float]:
    """When each frame is shown, in seconds, by ffprobe."""
    command = ["ffprobe", "-v", "error", "-select_streams", "v:0", "-of", "json"]
    command += ["-show_entries", "frame=pts_time,best_effort_timestamp_time", str(path)]
    output = subprocess.run(command, capture_output=True, check=False).stdout
    frames = json.loads(output)["frames"]
    return [float(frame.get("pts_time", frame["best_effort_timestamp_time"])) for frame in frames]


def decoded(path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Its frames by ffmpeg itself."""
    command = ["ffmpeg", "-v", "error", "-i", str(path), "-fps_mode", "passthrough"]
    command += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(command, capture_output=True, check=False).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, SIZE[1], SIZE[0], 3)


X264 = ("-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p")
VARIABLE = ("-vf", "select='not(mod(n,3))+gt(n,30)'", "-fps_mode", "vfr")
WRITERS: dict[str, tuple[str, Sequence[str]]] = {
    "MP4, moov at the end": ("mp4", X264),
    "MP4, moov first": ("mp4", (*X264, "-movflags", "+faststart")),
    "MP4, fragmented": ("mp4", (*X264, "-movflags", "frag_keyframe+empty_moov", "-g", "10")),
    "MP4, B frames": ("mp4", ("-c:v", "libx264", "-bf", "3", "-g", "12", "-pix_fmt", "yuv420p")),
    "MP4, variable frame rate": ("mp4", (*VARIABLE, *X264)),
    "MKV, variable frame rate": ("mkv", (*VARIABLE, *X264)),
    "MKV": ("mkv", X264),
    "MKV, MPEG-4": ("mkv", ("-c:v", "mpeg4")),
    "WebM": ("webm", ("-c:v", "libvpx", "-deadline", "realtime")),
    "MPEG-TS": ("ts", X264),
    "MPEG-TS, MPEG-2": ("ts", ("-c:v", "mpeg2video")),
    "MP4 with sound": ("mp4", (*X264, "-f", "lavfi", "-i", "sine", "-shortest", "-c:a", "aac")),
}


def written(writer: str, folder: Path) -> Path:
    extension, options = WRITERS[writer]
    path = folder / f"a.{extension}"
    source = f"testsrc2=size={SIZE[0]}x{SIZE[1]}:rate=25"
    inputs = ["-f", "lavfi", "-i", source]
    if "-i" in options:  # what is read stands before what is written
        cut = options.index("-f")
        inputs += options[cut : cut + 4]
        options = [*options[:cut], *options[cut + 4 :]]
    ffmpeg(*inputs, "-frames:v", FRAMES, *options, path)
    return path


@pytest.mark.parametrize("writer", WRITERS)
def test_a_video_has_the_frames_and_times_that_ffmpeg_finds(writer: str, tmp_path: Path) -> None:
    path = written(writer, tmp_path)
    runs, failure = rows_of(path, "video", VIDEO)
    assert failure is None
    seconds = shown(path)
    expected = [1000 * (moment - seconds[0]) for moment in seconds]
    assert len(expected) >= FRAMES // 2
    assert times(runs) == pytest.approx(expected, abs=1)
    pictures = decoded(path)
    ours = values(runs).reshape(-1, SIZE[1], SIZE[0], 3)
    assert len(pictures) == len(ours)
    # The two convert from YUV each in its own way: the pictures are the same, the last bits not.
    assert np.abs(ours - pictures).mean(axis=(1, 2, 3)).max() < 4


def test_a_video_that_was_cut_off_is_answered_as_far_as_it_goes(tmp_path: Path) -> None:
    for writer in ("MPEG-TS", "MKV", "MP4, moov first"):
        path = written(writer, tmp_path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
        runs, failure = rows_of(path, "video", VIDEO)
        assert failure is None or failure.code == "bad_format"
        assert 0 < len(times(runs)) < FRAMES
        assert failure is not None or writer == "MPEG-TS", "a transport stream has no end"


RATE = 8_000
SAMPLES = np.random.default_rng(2).integers(-(2**7), 2**7, RATE).astype(np.float32) / 2**7
CODECS = {
    "wav": ("pcm_u8", "pcm_s16le", "pcm_s24le", "pcm_s32le", "pcm_f32le", "pcm_f64le"),
    "flac": ("flac",),
}


@pytest.mark.parametrize(
    ("extension", "codec"), [(end, codec) for end, some in CODECS.items() for codec in some]
)
def test_a_recording_has_the_samples_that_were_written(
    extension: str, codec: str, tmp_path: Path
) -> None:
    path = tmp_path / f"a.{extension}"
    samples = SAMPLES.astype("<f4").tobytes()
    ffmpeg("-f", "f32le", "-ar", RATE, "-ac", 1, "-i", "-", "-c:a", codec, path, stdin=samples)
    runs, failure = rows_of(path, "audio", RowOptions(own=(AudioOptions(window_ms=500),)))
    assert failure is None
    assert times(runs) == [0, 500]
    # Samples of 8 bits fit all of them.
    assert values(runs).ravel().tolist() == SAMPLES.tolist()


def test_a_picture_is_a_picture(tmp_path: Path) -> None:
    """Nothing above compares noise with noise."""
    path = written("MKV", tmp_path)
    assert np.std(np.asarray(Image.fromarray(decoded(path)[0]))) > 30
