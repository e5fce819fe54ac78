"""Pixels and samples count against the size of the object that they come from."""

import io
import tarfile
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from PIL import Image

from penstock.errors import Poison
from penstock.formats.media.audio import AudioOptions
from penstock.formats.pictures.pixels import PictureOptions, PixelOptions
from penstock.formats.reading import read_object
from penstock.formats.registry import claim_of
from penstock.formats.runs import FREE_BYTES, RowOptions
from penstock.formats.source import AtHand, Wanted
from tests.formats.recordings import recording, video

# As many rows of pixels are free; a row of pixels counts as 64 KiB.
FREE_PIXELS = FREE_BYTES >> 16
EVERY = RowOptions(form="bytes")


@cache
def still(frames: int) -> bytes:
    """A film in which nothing moves; some 20 bytes a frame."""
    return video(frames, codec="libx264", rate=1000, size=(16, 16), still=True)


def read(
    data: bytes, key: str, options: RowOptions, wanted: Wanted = lambda start, stop: True
) -> tuple[int, Poison | None, set[int]]:
    """How many rows came, why no more did, and what they weigh."""
    rows, weights = 0, set()
    try:
        for run in read_object(AtHand(data), options, claim_of(key), wanted):
            rows += run.rows
            weights.add(run.weight)
    except Poison as poison:
        return rows, poison, weights
    return rows, None, weights


@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_film_that_packs_to_nothing_ends_at_the_same_row_in_every_try(is_wanted: bool) -> None:
    rows, poison, _ = read(still(FREE_PIXELS + 9), "a.mp4", EVERY, lambda start, stop: is_wanted)
    assert rows == FREE_PIXELS
    assert poison is not None
    assert poison.code == "too_large"
    assert "limits.expansion_ratio" in str(poison)


def test_a_film_of_small_frames_that_are_all_its_own_is_read_to_its_end() -> None:
    frames = FREE_PIXELS + 104
    film = video(frames, rate=1000, size=(80, 80))
    assert 64 < len(film) / frames < 128
    assert read(film, "a.mp4", EVERY)[:2] == (frames, None)


@pytest.mark.parametrize("codec", ["libx264", "libvpx-vp9", "mpeg4"])
def test_a_film_in_which_nothing_moves_is_read_to_its_end(codec: str) -> None:
    frames = FREE_PIXELS + 104
    film = video(frames, codec=codec, size=(64, 64), is_black=True)
    assert 14 < len(film) / frames < 64
    assert read(film, "a.mp4", EVERY, lambda start, stop: False)[:2] == (frames, None)


def test_a_film_may_have_as_many_rows_as_the_ratio_allows() -> None:
    high = RowOptions(form="bytes", expansion_ratio=5_000)
    assert read(still(FREE_PIXELS + 9), "a.mp4", high)[:2] == (FREE_PIXELS + 9, None)


def test_small_rows_of_pixels_count_as_what_they_have() -> None:
    for size, weight in ((1, 256), (32, 3 * 32 * 32), (224, 64 << 10)):
        own = PictureOptions(image=PixelOptions(size, size))
        options = RowOptions(form="bytes", own=(own,))
        assert read(still(2), "a.mp4", options) == (2, None, {weight})
        assert read(picture(), "a.gif", options) == (1, None, {weight})
    # A picture that stays as it is has not grown.
    assert read(picture(), "a.gif", EVERY) == (1, None, {256})


def test_pictures_of_an_archive_count_together() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for number in range(FREE_PIXELS + 9):
            member = tarfile.TarInfo(f"{number}.gif")
            member.size = len(picture())
            tar.addfile(member, io.BytesIO(picture()))
    own = PictureOptions(image=PixelOptions(160, 160))
    options = RowOptions(form="bytes", own=(own,))
    rows, poison, _ = read(out.getvalue(), "a.tar.gz", options)
    assert (rows, poison and poison.code) == (FREE_PIXELS, "too_large")


def picture() -> bytes:
    out = io.BytesIO()
    Image.new("P", (1, 1)).save(out, "GIF")
    return out.getvalue()


@pytest.mark.parametrize(("hop_ms", "samples"), [(1, 9 << 20), (None, 1 << 34)])
def test_a_recording_is_judged_by_its_rate_and_duration_before_its_first_row(
    hop_ms: int | None, samples: int
) -> None:
    flac = bytearray(recording(np.zeros((8_000, 1), np.float32), "FLAC"))
    # STREAMINFO has the number of samples in the last 36 bits before its MD5 (RFC 9639, 8.2).
    at = 4 + 4 + 13
    flac[at] = flac[at] & 0xF0 | samples >> 32
    flac[at + 1 : at + 5] = (samples & 0xFFFFFFFF).to_bytes(4, "big")
    options = RowOptions(own=(AudioOptions(hop_ms=hop_ms),))
    rows, poison, _ = read(bytes(flac), "a.flac", options)
    assert (rows, poison and poison.code) == (0, "too_large")


def test_new_samples_count_as_a_sixteenth_of_their_bytes() -> None:
    silence = recording(np.zeros((16_000, 2), np.float32), "FLAC")
    for window_ms, hop_ms, new_ms in ((1000, None, 1000), (1000, 500, 500), (100, 1000, 100)):
        options = RowOptions(own=(AudioOptions(window_ms, hop_ms),))
        weights = read(silence, "a.flac", options)[2]
        assert weights == {max(256, 8 * new_ms * 2 * 4 // 16)}
    # So silence as programs pack it is never too much.
    hour = Fraction(len(recording(np.zeros((480_000, 2), np.float32), "FLAC", rate=48_000)), 10)
    assert 200 * hour > 48_000 * 2 * 4 // 16
