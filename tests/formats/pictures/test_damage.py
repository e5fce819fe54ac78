"""Damage that a picture's container can prove is found, decoded or not; what is harmless is not."""

import io
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pillow_heif
import pytest
from PIL import Image

from penstock.core.rows.payload import BytesRows, Matrix
from penstock.formats.pictures.pixels import PictureOptions, PixelOptions
from penstock.formats.runs import RowOptions
from tests.formats.support import decode, errors

pillow_heif.register_heif_opener()
SIZE = (96, 80)
PIXELS = RowOptions(form="matrix", own=(PictureOptions(image=PixelOptions(*SIZE, "nhwc")),))
BYTES = RowOptions(form="bytes")
BOTH = pytest.mark.parametrize("options", [PIXELS, BYTES], ids=["pixels", "bytes"])


def scene() -> Image.Image:
    """Smooth, with noise on it, as a photo is."""
    y, x = np.mgrid[0 : SIZE[1], 0 : SIZE[0]]
    waves = np.stack([128 + 90 * np.sin(x / 9 + y / 21), 128 + 90 * np.cos(y / 7), x * 2.5], -1)
    noise = np.random.default_rng(1).normal(0, 10, waves.shape)
    return Image.fromarray((waves + noise).clip(0, 255).astype(np.uint8))


def saved(kind: str, **settings: Any) -> bytes:
    out = io.BytesIO()
    scene().save(out, kind, **settings)
    return out.getvalue()


TURNED = Image.Exif()
TURNED[0x0112] = 3
PICTURES: dict[str, Callable[[], bytes]] = {
    "PNG": lambda: saved("PNG"),
    "JPEG": lambda: saved("JPEG", quality=90),
    "JPEG, progressive": lambda: saved("JPEG", quality=90, progressive=True),
    "JPEG with restarts": lambda: saved("JPEG", quality=90, restart_marker_rows=1),
    "WebP, its orientation last": lambda: saved("WEBP", exif=TURNED),
    "HEIC": lambda: saved("HEIF"),
    "AVIF": lambda: saved("AVIF"),
}


@BOTH
@pytest.mark.parametrize("make", PICTURES.values(), ids=[*PICTURES])
def test_a_picture_that_breaks_off_is_a_bad_row_even_if_only_its_last_byte_is_missing(
    make: Callable[[], bytes], options: RowOptions
) -> None:
    data = make()
    assert not errors(decode(data, "x", options))
    for missing in (1, 2, 5, 30, len(data) // 2):
        assert len(errors(decode(data[:-missing], "x", options))) == 1, missing


@BOTH
@pytest.mark.parametrize("make", PICTURES.values(), ids=[*PICTURES])
def test_bytes_behind_the_end_do_no_harm(make: Callable[[], bytes], options: RowOptions) -> None:
    """Phones put a film there; others put padding."""
    data = make()
    for behind in (b"\0" * 40, b"\0\0\0\x18ftypmp42" + bytes(12), b"SEFT"):
        assert not errors(decode(data + behind, "x", options)), behind


def is_refused_or_same(data: bytes, good: list[Any], options: RowOptions) -> bool:
    (run,) = decode(data, "x", options)
    if run.payload is None:
        return True
    assert isinstance(run.payload, Matrix)
    return bool(run.payload.values.tolist() == good)


@pytest.mark.parametrize(
    "make",
    [
        lambda: saved("PNG"),
        lambda: saved("PNG", save_all=True, append_images=[scene().rotate(90)]),
        lambda: saved("TIFF", compression="tiff_adobe_deflate"),
        lambda: saved("TIFF", compression="tiff_adobe_deflate", strip_size=4_000, big_tiff=True),
    ],
    ids=["PNG", "APNG", "TIFF of deflate", "BigTIFF of deflate, in strips"],
)
def test_no_flipped_bit_under_a_checksum_is_passed_over(make: Callable[[], bytes]) -> None:
    data = make()
    (run,) = decode(data, "x", PIXELS)
    assert isinstance(run.payload, Matrix)
    good = run.payload.values.tolist()
    chance = random.Random(1)
    for _ in range(150):
        damaged = bytearray(data)
        # The head and the tags of a TIFF have no checksum.
        at = chance.randrange(*((300, len(data) - 400) if data[:2] == b"II" else (8, len(data))))
        damaged[at] ^= 1 << chance.randrange(8)
        assert is_refused_or_same(bytes(damaged), good, PIXELS), at


@BOTH
def test_a_part_that_is_missing_between_two_restarts_is_found(options: RowOptions) -> None:
    data = PICTURES["JPEG with restarts"]()
    marks = [found.start() for found in re.finditer(rb"\xff[\xd0-\xd7]", data)]
    assert len(marks) == 4
    (error,) = errors(decode(data[: marks[1]] + data[marks[2] :], "x", options))
    assert error == "the JPEG is damaged: a part of its data is missing"


def test_what_libjpeg_says_of_damage_is_heard() -> None:
    """Part of the pixels' data is missing, but the end is there."""
    data = PICTURES["JPEG"]()
    (error,) = errors(decode(data[:-1_500] + data[-2:], "x", PIXELS))
    assert error == "the JPEG is damaged: Corrupt JPEG data: premature end of data segment"


def test_what_careless_writers_do_is_no_damage() -> None:
    """Some bytes too many before the end, and between two headers."""
    data = PICTURES["JPEG"]()
    (run,) = decode(data, "x", PIXELS)
    assert isinstance(run.payload, Matrix)
    good = run.payload.values.tolist()
    padded = data[:-2] + bytes(8) + data[-2:]
    tables = data.index(b"\xff\xdb")
    spaced = data[:tables] + bytes(40) + data[tables:]
    for careless in (padded, spaced):
        (run,) = decode(careless, "x", PIXELS)
        assert isinstance(run.payload, Matrix), run.error
        assert run.payload.values.tolist() == good


def test_a_model_gets_the_bytes_of_a_picture_unchanged() -> None:
    for make in PICTURES.values():
        data = make()
        (run,) = decode(data, "x", BYTES)
        assert isinstance(run.payload, BytesRows)
        assert bytes(run.payload.row(0)) == data


def test_the_pixels_of_a_jpeg_are_pillows() -> None:
    for settings in ({}, {"subsampling": 2}, {"quality": 30}, {"progressive": True}):
        data = saved("JPEG", **settings)
        (run,) = decode(data, "x", PIXELS)
        assert isinstance(run.payload, Matrix)
        with Image.open(io.BytesIO(data)) as image:
            assert run.payload.values.tolist() == [np.asarray(image).ravel().tolist()]
