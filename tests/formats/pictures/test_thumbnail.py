"""Rows that are pictures, as they are shown beside their predictions."""

import io

import numpy as np
import pytest
from PIL import Image

from penstock.core.rows.payload import BytesRows, Form, Matrix
from penstock.formats.pictures.pixels import (
    MOST_PIXELS,
    EncodedPicture,
    Layout,
    PixelOptions,
    png,
    thumbnail,
)

MEAN_STD = {"unit": True, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
MOST = 1_000


def shown(made: object) -> np.ndarray:
    """As a browser shows it."""
    assert isinstance(made, np.ndarray)
    encoded = png(made)
    assert encoded.type == "image/png"
    return np.asarray(Image.open(io.BytesIO(encoded.body)).convert("RGB"))


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize(
    ("form", "scale"),
    [("matrix", {}), ("matrix", {"unit": True}), ("matrix", MEAN_STD), ("bytes", {})],
)
def test_the_picture_is_back_whatever_numbers_it_became(
    layout: Layout, form: Form, scale: dict[str, object]
) -> None:
    rgb = np.random.default_rng(1).integers(0, 256, (12, 16, 3), np.uint8)
    options = PixelOptions(16, 12, layout, **scale)  # type: ignore[arg-type]
    assert np.array_equal(shown(thumbnail(options.row(rgb, form), options, MOST)), rgb)


def test_a_large_one_is_shown_by_every_nth_pixel() -> None:
    rgb = np.random.default_rng(1).integers(0, 256, (224, 448, 3), np.uint8)
    options = PixelOptions(448, 224)
    found = shown(thumbnail(options.row(rgb, "matrix"), options, MOST))
    assert np.array_equal(found, rgb[::4, ::4])
    assert max(found.shape) <= MOST_PIXELS


def test_one_that_a_browser_knows_stays_as_it_is_unless_it_is_too_large() -> None:
    jpeg = b"\xff\xd8\xff" + bytes(100)
    assert thumbnail(BytesRows.of([jpeg]), None, MOST) == EncodedPicture("image/jpeg", jpeg)
    assert thumbnail(BytesRows.of([jpeg]), None, 100) is None


def test_other_rows_are_no_pictures() -> None:
    small = PixelOptions(4, 3)
    assert thumbnail(Matrix(np.zeros((1, 16), "<f4")), None, MOST) is None
    assert thumbnail(Matrix(np.zeros((1, 16), "<f4")), small, MOST) is None
    assert thumbnail(BytesRows.of([b"<svg onload=alert(1)>"]), small, MOST) is None
