"""Videos as rows: every container, thinning, times, damage; each frame as decoded beside us."""

import io
import struct
from collections.abc import Callable, Sequence
from itertools import accumulate, cycle, islice

import av
import numpy as np
import pytest
from PIL import Image

from penstock.core.rows.payload import BytesRows, Matrix
from penstock.errors import Poison
from penstock.formats.media.video import VideoOptions
from penstock.formats.pictures.pixels import PictureOptions, PixelOptions, Rgb
from penstock.formats.registry import formats, sniff_format
from penstock.formats.runs import RowOptions, Run
from penstock.formats.source import Wanted
from tests.formats.recordings import frames_of, video
from tests.formats.support import by_ranges

OPAQUE = RowOptions(form="bytes")
FRAGMENTED = {"movflags": "frag_keyframe+empty_moov+default_base_moof"}
KINDS: dict[str, bytes] = {
    "MP4, moov at the end": video(25),
    "MP4, moov first": video(25, options={"movflags": "faststart"}),
    "MP4, fragmented": video(25, options=FRAGMENTED),
    "MKV": video(25, "matroska"),
    "WebM": video(25, "webm", codec="libvpx"),
    "MPEG-TS": video(25, "mpegts"),
}

every_kind = pytest.mark.parametrize("kind", KINDS)


def runs_of(
    data: bytes, options: RowOptions = OPAQUE, wanted: Wanted = lambda start, stop: True
) -> tuple[list[Run], Poison | None]:
    """And why the rest cannot be read."""
    runs: list[Run] = []
    try:
        for some in by_ranges(options, formats()["video"], data, wanted):
            runs += some
    except Poison as poison:
        return runs, poison
    return runs, None


def jpegs(runs: Sequence[Run]) -> list[bytes]:
    return [
        bytes(run.payload.row(row))
        for run in runs if isinstance(run.payload, BytesRows) for row in range(run.rows)
    ]  # fmt: skip


def expected(data: bytes) -> list[bytes]:
    return [jpeg(frame) for frame in frames_of(data)]


def jpeg(frame: Rgb) -> bytes:
    out = io.BytesIO()
    Image.fromarray(frame).save(out, "JPEG", quality=95)
    return out.getvalue()


def times(runs: Sequence[Run]) -> list[int]:
    return [ms for run in runs if run.since_ms is not None for ms in run.since_ms.tolist()]


@every_kind
def test_a_video_is_a_row_a_frame_with_its_time(kind: str) -> None:
    data = KINDS[kind]
    runs, failure = runs_of(data)
    assert failure is None
    assert len(jpegs(runs)) == 25
    assert jpegs(runs) == expected(data)
    assert times(runs) == [100 * number for number in range(25)]


@every_kind
def test_its_first_bytes_tell_what_it_is(kind: str) -> None:
    assert sniff_format(KINDS[kind][:512], OPAQUE) == "video"


def test_text_that_looks_a_little_like_a_packet_is_none() -> None:
    assert sniff_format(b"G" * 512, RowOptions()) == "csv"


def test_frames_are_rows_of_pixels_where_their_size_is_set() -> None:
    data = KINDS["MKV"]
    runs, _ = runs_of(
        data, RowOptions(own=(PictureOptions(image=PixelOptions(8, 6, "nhwc", unit=True)),))
    )
    values = np.concatenate([run.payload.values for run in runs if isinstance(run.payload, Matrix)])
    small = [
        np.asarray(Image.fromarray(frame).resize((8, 6), Image.Resampling.BILINEAR))
        for frame in frames_of(data)
    ]
    assert (values == np.array(small, np.float32).reshape(25, -1) / np.float32(255)).all()


def test_fps_thins_to_the_first_frame_of_each_span() -> None:
    runs, _ = runs_of(KINDS["MKV"], RowOptions(form="bytes", own=(VideoOptions(fps=2),)))
    assert times(runs) == [0, 500, 1000, 1500, 2000]
    assert jpegs(runs) == expected(KINDS["MKV"])[::5]


def test_frames_at_varying_distances_keep_their_times() -> None:
    pts = list(accumulate(islice(cycle([33, 100, 7, 260]), 19), initial=0))
    runs, failure = runs_of(video(20, "matroska", pts=pts))
    assert failure is None
    assert times(runs) == pts
    thinned, _ = runs_of(
        video(20, "matroska", pts=pts), RowOptions(form="bytes", own=(VideoOptions(fps=10),))
    )
    spans = [ms // 100 for ms in times(thinned)]
    assert spans == sorted({ms // 100 for ms in pts})


def test_time_begins_with_the_first_frame() -> None:
    runs, _ = runs_of(video(3, "matroska", pts=[5000, 5100, 5250]))
    assert times(runs) == [0, 100, 250]


@every_kind
def test_rows_that_nobody_wants_are_counted(kind: str) -> None:
    whole, _ = runs_of(KINDS[kind])
    part, _ = runs_of(KINDS[kind], wanted=lambda start, stop: stop > 11)
    assert (part[0].rows, part[0].payload) == (11, None)
    assert jpegs(part) == jpegs(whole)[11:]
    assert times(part) == times(whole)[11:]


@every_kind
def test_a_video_that_breaks_off_is_bad_after_the_frames_that_are_there(kind: str) -> None:
    data = KINDS[kind]
    whole = expected(data)
    counts = []
    for tenth in range(1, 10):
        part = data[: len(data) * tenth // 10]
        runs, failure = runs_of(part if len(part) % 188 or kind != "MPEG-TS" else part[:-1])
        assert failure is not None, tenth
        assert failure.code == "bad_format"
        pictures = jpegs(runs)
        assert pictures == whole[: len(pictures)]
        counts.append(len(pictures))
    if kind != "MP4, moov at the end":  # where nothing can be read without it
        assert counts[8] >= 12


def test_more_pixels_than_allowed_are_refused() -> None:
    runs, failure = runs_of(
        KINDS["MKV"], RowOptions(form="bytes", own=(PictureOptions(pixels=64 * 48 - 1),))
    )
    assert not runs
    assert failure is not None
    assert failure.code == "too_large"
    assert "limits.pixels" in str(failure)
    assert (
        runs_of(KINDS["MKV"], RowOptions(form="bytes", own=(PictureOptions(pixels=64 * 48),)))[1]
        is None
    )


def test_a_frame_above_the_limit_of_a_row_is_too_large() -> None:
    longest = max(map(len, expected(KINDS["MKV"])))
    assert runs_of(KINDS["MKV"], RowOptions(form="bytes", row_bytes=longest))[1] is None
    _, failure = runs_of(KINDS["MKV"], RowOptions(form="bytes", row_bytes=longest - 1))
    assert failure is not None
    assert failure.code == "too_large"
    assert "limits.row_bytes" in str(failure)
    assert "rows.image_size" in str(failure)


@pytest.mark.parametrize(
    "data",
    [
        b"hello", b"\0\0\0\x08ftyp", b"\x1a\x45\xdf\xa3" + bytes(100), (b"G" + bytes(187)) * 9,
        b"\0\0\0\x14ftypisom\0\0\0\0isom" + b"\0\0\0\x08moov" * 3,
    ],
    ids=["text", "a box", "EBML", "packets of nothing", "empty boxes"],
)  # fmt: skip
def test_what_has_no_video_is_bad(data: bytes) -> None:
    runs, failure = runs_of(data)
    assert not runs
    assert failure is not None
    assert failure.code == "bad_format"


def test_a_video_of_no_frames_has_no_rows() -> None:
    runs, failure = runs_of(video(0, "matroska"))
    assert not runs
    assert failure is None or failure.code == "bad_format"


def shown_by(data: bytes, *matrix: int) -> bytes:
    """The same MP4, to be shown by this matrix: a, b, c, d (ISO 14496-12, 8.3.2)."""
    a, b, c, d = matrix
    at = data.index(b"tkhd") + 44
    numbers = [a << 16, b << 16, 0, c << 16, d << 16, 0, 0, 0, 1 << 30]
    return data[:at] + struct.pack(">9i", *numbers) + data[at + 36 :]


@pytest.mark.parametrize(
    ("matrix", "turned"),
    [
        ((1, 0, 0, 1), lambda picture: picture),
        ((0, 1, -1, 0), lambda picture: np.rot90(picture, -1)),
        ((-1, 0, 0, -1), lambda picture: np.rot90(picture, 2)),
        ((0, -1, 1, 0), lambda picture: np.rot90(picture, 1)),
        ((-1, 0, 0, 1), np.fliplr),
        ((1, 0, 0, -1), np.flipud),
        ((0, 1, 1, 0), lambda picture: np.swapaxes(picture, 0, 1)),
        ((0, -1, -1, 0), lambda picture: np.rot90(np.swapaxes(picture, 0, 1), 2)),
    ],
)
def test_frames_are_turned_and_mirrored_as_the_file_says(
    matrix: tuple[int, ...], turned: Callable[[Rgb], Rgb]
) -> None:
    plain = KINDS["MP4, moov at the end"]
    runs, failure = runs_of(shown_by(plain, *matrix))
    assert failure is None
    assert jpegs(runs) == [jpeg(turned(frame)) for frame in frames_of(plain)]


@pytest.mark.parametrize("fps", [None, 1.0, 5.0])
def test_joined_transport_streams_go_on(fps: float | None) -> None:
    """As `cat` joins them: the clock of the second one begins again."""
    once, twice = KINDS["MPEG-TS"], KINDS["MPEG-TS"] * 2
    runs, failure = runs_of(twice, RowOptions(form="bytes", own=(VideoOptions(fps=fps),)))
    assert failure is None
    assert times(runs) == sorted(set(times(runs)))
    if fps is None:
        assert times(runs) == [number * 100 for number in range(50)]
        assert jpegs(runs) == expected(once) * 2
    else:
        assert len(times(runs)) == 5 * fps


def test_a_packet_that_is_lost_is_told_after_the_frames() -> None:
    data = KINDS["MPEG-TS"]
    packets = [data[at : at + 188] for at in range(0, len(data), 188)]
    lost = next(at for at in range(len(packets) // 2, len(packets)) if packets[at][1:3] == b"\1\0")
    runs, failure = runs_of(b"".join(packets[:lost] + packets[lost + 1 :]))
    assert failure is not None
    assert jpegs(runs)


def test_a_stream_that_appears_while_it_is_read_costs_only_frames_beside_it() -> None:
    """The last packet that begins a frame is of another stream, which no table announces."""
    data = KINDS["MPEG-TS"]
    packets = [data[at : at + 188] for at in range(0, len(data), 188)]
    last = max(at for at, packet in enumerate(packets) if packet[1:3] == b"\x41\0")
    packets[last] = packets[last][:1] + b"\x49" + packets[last][2:]
    runs, _ = runs_of(b"".join(packets))
    assert jpegs(runs) == expected(data)[: len(jpegs(runs))]
    assert len(jpegs(runs)) >= 20


def test_frames_that_need_others_from_before_the_file_are_no_rows() -> None:
    """Of MPEG-4, each twelfth frame can be decoded alone."""
    data = KINDS["MPEG-TS"]
    packets = [data[at : at + 188] for at in range(0, len(data), 188)]
    starts = [at for at, packet in enumerate(packets) if packet[1:3] == b"\x41\0"]
    runs, failure = runs_of(b"".join(packets[:2] + packets[starts[5] :]))
    assert failure is None
    assert jpegs(runs) == expected(data)[12:]


def test_sound_alone_is_no_film() -> None:
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=48_000)
        assert isinstance(stream, av.AudioStream)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 4_800), np.float32), "fltp", "mono")
        frame.sample_rate = 48_000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    runs, failure = runs_of(out.getvalue())
    assert not runs
    assert 'only sound; set its format to "audio"' in str(failure)


def test_a_transport_stream_that_is_cut_has_no_frame_in_the_place_of_another() -> None:
    """Frames that are shown between others come behind them. Before the first frame that is shown
    while it is read, there is no distance to compare with.
    """
    data = video(24, "mpegts", codec="libx264")
    whole = jpegs(runs_of(data)[0])
    assert len(whole) == 24
    for stop in range(len(data) // 376 * 188, len(data), 188):
        pictures = jpegs(runs_of(data[:stop])[0])
        assert pictures == whole[: len(pictures)], stop
