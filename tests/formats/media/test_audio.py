"""Recordings as rows of samples: every width of sample, windows and hops, damage."""

import io
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
import soundfile

from penstock.core.rows.payload import BytesRows, Matrix
from penstock.errors import Poison
from penstock.formats.media.audio import AudioOptions
from penstock.formats.registry import formats
from penstock.formats.runs import RowOptions, Run
from penstock.formats.source import Wanted
from tests.formats.picture_bodies import JPEG
from tests.formats.recordings import RATE, recording, tone
from tests.formats.support import by_ranges, decode, errors, rows_of, tar_of

HALF_S = RowOptions(own=(AudioOptions(window_ms=500),))


def runs_of(
    data: bytes, options: RowOptions = HALF_S, wanted: Wanted = lambda start, stop: True
) -> tuple[list[Run], Poison | None]:
    """And why the rest cannot be read."""
    runs: list[Run] = []
    try:
        for some in by_ranges(options, formats()["audio"], data, wanted):
            runs += some
    except Poison as poison:
        return runs, poison
    return runs, None


def values(runs: Sequence[Run]) -> list[list[float]]:
    return [
        row
        for run in runs
        if isinstance(run.payload, Matrix)
        for row in run.payload.values.tolist()
    ]


def times(runs: Sequence[Run]) -> list[int]:
    return [ms for run in runs if run.since_ms is not None for ms in run.since_ms.tolist()]


@pytest.mark.parametrize(
    ("format", "subtype"),
    [
        ("WAV", "PCM_U8"), ("WAV", "PCM_16"), ("WAV", "PCM_24"), ("WAV", "PCM_32"),
        ("WAV", "FLOAT"), ("WAV", "DOUBLE"), ("WAVEX", "PCM_24"), ("RF64", "PCM_16"),
        ("FLAC", "PCM_16"), ("FLAC", "PCM_24"), ("OGG", "VORBIS"),
    ],
)  # fmt: skip
def test_a_recording_is_windows_of_its_samples(format: str, subtype: str) -> None:
    data = recording(tone(2 * RATE), format, subtype)
    samples, _ = soundfile.read(io.BytesIO(data), dtype="float32")
    runs, failure = runs_of(data)
    assert failure is None
    # Decoders of Vorbis may round differently.
    tolerance = 1e-5 if subtype == "VORBIS" else 0
    assert np.abs(np.array(values(runs)) - samples.reshape(-1, RATE // 2)).max() <= tolerance
    assert times(runs) == [0, 500, 1000, 1500]


@pytest.mark.parametrize("subtype", ["ALAC_16", "ALAC_24"])
def test_alac_in_a_caf_is_whole_to_its_last_sample(subtype: str) -> None:
    for frames in (RATE // 2, 2 * RATE + 100):
        samples = tone(frames)
        data = recording(samples, "CAF", subtype)
        runs, failure = runs_of(data)
        assert failure is None
        assert np.concatenate(values(runs))[:frames].tolist() == samples[:, 0].tolist()
    _, failure = runs_of(data[:-600])
    assert failure is not None


@pytest.mark.parametrize("format", ["AIFF", "AU", "CAF", "W64", "WAV"])
def test_a_recording_that_is_cut_anywhere_is_told(format: str) -> None:
    samples = tone(RATE)
    data = recording(samples, format)
    right = values(runs_of(data)[0])
    for stop in range(len(data) - 12_288, len(data), 1_024):
        runs, failure = runs_of(data[:stop])
        assert failure is not None, stop
        assert values(runs) == right[: len(values(runs))]


@pytest.mark.parametrize("tags", [1, 2])
@pytest.mark.parametrize("form", ["FLAC", "OGG", "WAV", "MP3"])
def test_tags_before_any_recording_are_passed_over(form: str, tags: int) -> None:
    data = recording(tone(2 * RATE), form, None, RATE)
    tag = b"ID3\4\0\0\0\0\1\2" + bytes(130)
    runs, failure = runs_of(tag * tags + data)
    assert failure is None
    assert values(runs) == values(runs_of(data)[0])
    assert runs_of(tag * 1_000 + data)[1] is not None or form == "MP3"


def test_windows_overlap_and_the_last_is_filled_up() -> None:
    samples = tone(1_100)
    runs, _ = runs_of(recording(samples), RowOptions(own=(AudioOptions(window_ms=100, hop_ms=25),)))
    starts = [0, 200, 400]
    padded = np.concatenate([samples[:, 0], np.zeros(800, np.float32)])
    assert values(runs) == [padded[start : start + 800].tolist() for start in starts]
    assert times(runs) == [0, 25, 50]


@pytest.mark.parametrize(
    ("frames", "rows"), [(0, 0), (1, 1), (3999, 1), (4000, 1), (4001, 2), (200_000, 50)]
)
def test_every_sample_is_in_a_row(frames: int, rows: int) -> None:
    runs, failure = runs_of(recording(tone(frames)))
    assert failure is None
    flat = [sample for row in values(runs) for sample in row]
    assert (len(flat), flat[:frames]) == (rows * 4000, tone(frames)[:, 0].tolist())
    assert not any(flat[frames:])


def test_hops_do_not_drift_where_they_are_no_whole_number_of_samples() -> None:
    rate = 11_025
    runs, _ = runs_of(
        recording(tone(rate), rate=rate), RowOptions(own=(AudioOptions(window_ms=10, hop_ms=7),))
    )
    samples = tone(rate)[:, 0]
    for number, row in enumerate(values(runs)[:-1]):
        start = number * 7 * rate // 1000
        assert row == samples[start : start + 110].tolist()


def test_channels_lie_one_after_the_other() -> None:
    samples = tone(4_000, channels=2)
    runs, _ = runs_of(recording(samples))
    assert values(runs) == [samples.T.ravel().tolist()]


def test_rows_that_nobody_wants_are_counted() -> None:
    data = recording(tone(5 * RATE))
    whole, _ = runs_of(data)
    part, _ = runs_of(data, wanted=lambda start, stop: stop > 7)
    assert sum(run.rows for run in part) == 10
    assert (part[0].rows, part[0].payload) == (7, None)
    assert values(part) == values(whole)[7:]
    assert times(part) == times(whole)[7:]


@pytest.mark.parametrize("format", ["WAV", "FLAC", "OGG"])
def test_a_recording_that_breaks_off_is_bad_after_the_rows_that_are_there(format: str) -> None:
    data = recording(tone(4 * RATE), format)
    whole = values(runs_of(data)[0])
    for tenth in range(1, 10):
        runs, failure = runs_of(data[: len(data) * tenth // 10])
        assert failure is not None, tenth
        assert failure.code == "bad_format"
        found = values(runs)
        assert found == whole[: len(found)]


def test_headers_that_lie_are_bad() -> None:
    data = recording(tone(RATE))
    fast = data[:24] + (2**31 - 1).to_bytes(4, "little") + data[28:]
    assert runs_of(fast)[1] is not None
    still = data[:24] + bytes(4) + data[28:]
    assert runs_of(still)[1] is not None
    long = data[:40] + (10**9).to_bytes(4, "little") + data[44:]
    _, failure = runs_of(long)
    assert failure is not None
    assert "breaks off" in str(failure)


def test_a_window_above_the_limit_is_too_large() -> None:
    _, failure = runs_of(
        recording(tone(RATE)), RowOptions(row_bytes=15_999, own=(AudioOptions(window_ms=500),))
    )
    assert failure is not None
    assert failure.code == "too_large"
    assert (
        runs_of(
            recording(tone(RATE)), RowOptions(row_bytes=16_000, own=(AudioOptions(window_ms=500),))
        )[1]
        is None
    )


def test_what_is_no_recording_is_bad() -> None:
    for data in (b"hello, world" * 10, b"RIFF\0\0\0\0WAVE", b"fLaC" + bytes(100), b"OggS" * 50):
        _, failure = runs_of(data)
        assert failure is not None
        assert failure.code == "bad_format"


def test_a_model_that_takes_bytes_gets_the_recording_as_it_is() -> None:
    data = recording(tone(100))
    opaque = RowOptions(form="bytes")
    (run,), _ = runs_of(data, opaque)
    assert isinstance(run.payload, BytesRows)
    assert bytes(run.payload.row(0)) == data
    (long,), _ = runs_of(data, RowOptions(form="bytes", row_bytes=100))
    assert "limits.row_bytes" in errors([long])[0]
    assert rows_of(decode(tar_of({"a.wav": data}), "x.tar", opaque)) == [("a.wav", data)]


def test_samples_of_a_recording_in_an_archive_are_not_read() -> None:
    runs = decode(tar_of({"a.wav": recording(tone(100))}), "x.tar", HALF_S)
    assert "object of its own" in errors(runs)[0]


def test_a_stray_video_among_pictures_is_one_bad_row() -> None:
    pictures = {"1.jpg": JPEG, "2.mp4": b"\0\0\0\x18ftypisom" + bytes(3000), "3.jpg": JPEG}
    rows = rows_of(decode(tar_of(pictures), "x.tar", RowOptions(form="bytes")))
    assert [rows[0], rows[2]] == [("1.jpg", JPEG), ("3.jpg", JPEG)]
    assert rows[1][0] == "2.mp4"
    assert "video is read by its parts" in str(rows[1][1])


@pytest.mark.parametrize("samples", [tone(RATE), 0 * tone(RATE)])
def test_samples_behind_a_chunk_that_says_that_it_has_none_are_told(
    samples: npt.NDArray[np.float32],
) -> None:
    data = recording(samples, "WAV", "PCM_16")
    at = data.index(b"data") + 4
    runs, failure = runs_of(data[:at] + bytes(4) + data[at + 4 :])
    assert failure is not None
    assert "says 0 bytes of samples" in str(failure)
    assert failure.code == "bad_format"
    assert not runs


def test_a_recording_without_samples_has_no_rows_whatever_follows() -> None:
    data = recording(tone(RATE), "WAV", "PCM_16")
    at = data.index(b"data") + 4
    for behind in (b"", b"LIST\4\0\0\0abcd"):
        assert runs_of(data[:at] + bytes(4) + behind) == ([], None)


@pytest.mark.parametrize("window_ms", [5, 25, 33])
@pytest.mark.parametrize("rate", [11_025, 22_050, 44_100])
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_no_sample_falls_between_windows(rate: int, window_ms: int, hops: int) -> None:
    options = RowOptions(own=(AudioOptions(window_ms=window_ms, hop_ms=max(1, window_ms // hops)),))
    samples = np.arange(1, rate + 1, dtype=np.float32)[:, None] / np.float32(2**16)
    runs, failure = runs_of(recording(samples, "WAV", "FLOAT", rate), options)
    assert failure is None
    assert {sample for row in values(runs) for sample in row} - {0.0} == set(samples[:, 0].tolist())


CHAINS = {
    "Vorbis": [("VORBIS", 2 * RATE, RATE), ("VORBIS", RATE // 2, RATE)],
    "Opus": [("OPUS", 48_000, 48_000), ("OPUS", 24_000, 48_000)],
    "two rates": [("VORBIS", RATE, RATE), ("VORBIS", 16_000, 16_000), ("VORBIS", RATE, RATE)],
}


@pytest.mark.parametrize("name", CHAINS)
def test_recordings_that_follow_one_another_in_ogg_are_all_read(name: str) -> None:
    parts = [recording(tone(frames), "OGG", kind, rate) for kind, frames, rate in CHAINS[name]]
    runs, failure = runs_of(b"".join(parts))
    assert failure is None
    alone = [runs_of(part)[0] for part in parts]
    assert values(runs) == [row for part in alone for row in values(part)]
    assert times(runs) == [500 * number for number in range(len(times(runs)))]


def test_an_ogg_without_a_first_page_is_bad_and_says_so() -> None:
    data = bytearray(recording(tone(RATE), "OGG", "VORBIS"))
    data[5] = 0  # the flags of the first page
    runs, poison = runs_of(bytes(data))
    assert not runs
    assert poison is not None
    assert "zip" not in str(poison)
    assert str(poison).startswith("the recording breaks off: ")


def test_the_same_recording_twice_is_twice_its_rows() -> None:
    data = recording(tone(RATE), "OGG", "VORBIS")
    assert values(runs_of(data + data)[0]) == 2 * values(runs_of(data)[0])


@pytest.mark.parametrize("format", ["OGG", "FLAC"])
@pytest.mark.parametrize("behind", [b"TAG" + bytes(125), bytes(70_000)])
def test_what_programs_write_behind_a_recording_is_passed_over(format: str, behind: bytes) -> None:
    data = recording(tone(RATE), format)
    assert runs_of(data + behind)[1] is None
    assert values(runs_of(data + behind)[0]) == values(runs_of(data)[0])


@pytest.mark.parametrize("seconds", [1, 60])
def test_a_second_flac_behind_the_first_is_told_after_the_rows(seconds: int) -> None:
    first = recording(tone(seconds * RATE), "FLAC")
    runs, poison = runs_of(first + recording(tone(2 * RATE), "FLAC"))
    assert len(values(runs)) == 2 * seconds
    assert "another FLAC follows the first" in str(poison)


def test_a_chain_with_a_hole_is_told_after_its_rows() -> None:
    data = recording(tone(4 * RATE), "OGG", "VORBIS")
    holed = data + data[: len(data) // 2] + data[len(data) // 2 + 10 :]
    runs, failure = runs_of(holed)
    assert failure is not None
    assert len(values(runs)) >= 8


@pytest.mark.parametrize("cut_bytes", [1, 5_000])
@pytest.mark.parametrize("is_length_known", [True, False])
def test_a_cut_flac_has_every_sample_before_the_cut(cut_bytes: int, is_length_known: bool) -> None:
    samples = tone(10 * RATE)
    data = recording(samples, "FLAC", "PCM_16")
    if not is_length_known:
        data = without_length(data)
    runs, failure = runs_of(data[:-cut_bytes], RowOptions(own=(AudioOptions(window_ms=100),)))
    assert failure is not None
    found = [sample for row in values(runs) for sample in row]
    whole = len(found)
    assert found == samples[:whole, 0].tolist()
    # libFLAC writes frames of 4,096 samples: all but those that are damaged.
    assert whole >= len(samples) - 4_096 * (1 + cut_bytes // 4_096) - 2 * 800 - 4_096


def test_a_flac_that_does_not_know_its_length_is_read() -> None:
    samples = tone(10 * RATE)
    runs, failure = runs_of(without_length(recording(samples, "FLAC", "PCM_16")))
    assert failure is None
    assert [sample for row in values(runs) for sample in row] == samples[:, 0].tolist()


def without_length(flac: bytes) -> bytes:
    """As written to a pipe: of STREAMINFO the number of samples and the checksum are 0."""
    return flac[:21] + bytes([flac[21] & 0xF0]) + bytes(20) + flac[42:]


@pytest.mark.parametrize("format", ["WAV", "RF64", "AIFF", "CAF", "AU", "W64", "FLAC"])
def test_no_window_of_a_recording_that_breaks_off_is_filled_up(format: str) -> None:
    samples = tone(2 * RATE + 100)
    data = recording(samples, format, "PCM_16")
    runs, failure = runs_of(data[:-2_000])
    assert failure is not None
    assert failure.code == "bad_format"
    found = [sample for row in values(runs) for sample in row]
    assert found == samples[: len(found), 0].tolist()
    assert len(found) >= RATE


def test_a_window_that_came_whole_before_the_damage_is_a_row() -> None:
    samples = tone(RATE)
    data = recording(samples, "WAV", "PCM_16")
    runs, failure = runs_of(data[: 44 + RATE])  # half of the samples, of two bytes each
    assert failure is not None
    assert values(runs) == [samples[: RATE // 2, 0].tolist()]


def test_samples_that_are_not_those_of_the_md5_are_told_at_the_end() -> None:
    data = bytearray(recording(tone(RATE), "FLAC", "PCM_16"))
    data[26] ^= 1  # in the MD5 of STREAMINFO, which begins at byte 26
    runs, failure = runs_of(bytes(data))
    assert "MD5" in str(failure)
    assert len(values(runs)) <= 2


def test_the_frames_of_a_flac_that_is_missing_some_are_rows_up_to_there() -> None:
    samples = tone(4 * RATE)
    data = recording(samples, "FLAC", "PCM_16")
    starts = [at for at in range(len(data)) if data.startswith(b"\xff\xf8", at)]
    frames = [at for at in starts if data[at + 2] == data[starts[0] + 2]]
    runs, failure = runs_of(
        data[: frames[3]] + data[frames[4] :], RowOptions(own=(AudioOptions(window_ms=64),))
    )
    assert "a frame is missing" in str(failure)
    assert [sample for row in values(runs) for sample in row] == samples[: 3 * 4096, 0].tolist()


@pytest.mark.parametrize(("rate", "hop_ms"), [(1, None), (7_000, 1)])
def test_windows_of_a_few_samples_are_refused(rate: int, hop_ms: int | None) -> None:
    own = AudioOptions(window_ms=1_000, hop_ms=hop_ms)
    runs, failure = runs_of(recording(tone(20), rate=rate), RowOptions(own=(own,)))
    assert "fewer than 8 samples" in str(failure)
    assert not runs


def test_a_page_of_an_ogg_that_is_damaged_ends_it() -> None:
    data = recording(tone(8 * RATE), "OGG", "VORBIS")
    whole = values(runs_of(data)[0])
    pages = [at for at in range(len(data)) if data.startswith(b"OggS", at)]
    middle = pages[len(pages) // 2]
    flipped = data[: middle + 500] + bytes([data[middle + 500] ^ 1]) + data[middle + 501 :]
    lost = data[:middle] + data[pages[len(pages) // 2 + 1] :]
    for damaged, said in ((flipped, "a page is damaged"), (lost, "of a stream is not there")):
        runs, failure = runs_of(damaged)
        assert said in str(failure)
        assert 0 < len(values(runs)) < len(whole)
        assert values(runs) == whole[: len(values(runs))]


@pytest.mark.parametrize("frames", [RATE, RATE + 100])
@pytest.mark.parametrize("format", ["WAV", "FLAC"])
def test_the_last_window_is_bad_if_nothing_says_that_the_recording_ends(
    format: str, frames: int
) -> None:
    samples = tone(frames)
    data = recording(samples, format, "PCM_16")
    if format == "FLAC":
        data = without_length(data)
    else:
        at = data.index(b"data") + 4
        data = data[:at] + b"\xff" * 4 + data[at + 4 :]
    runs, failure = runs_of(data)
    assert failure is None
    assert [sample for row in values(runs) for sample in row] == samples[:RATE, 0].tolist()
    assert len(errors(runs)) == (frames > RATE)
    assert all("does not say where it ends" in error for error in errors(runs))
