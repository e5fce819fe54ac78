"""Pictures as rows of numbers: every kind of picture, every layout, broken ones."""

import io
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pillow_heif
import pytest
from PIL import Image, ImageOps

from penstock.config import Config, Model
from penstock.config.sections import Limits, Rows
from penstock.core.rows.payload import BytesRows, Form, Matrix
from penstock.errors import EXIT_USAGE, Fatal
from penstock.formats.pictures.pixels import PictureOptions, PixelOptions
from penstock.formats.runs import RowOptions
from penstock.settings.inputs import row_options
from tests.formats import picture_bodies
from tests.formats.support import decode, errors, gzipped, tar_of

SMALL = PixelOptions(4, 3)
KINDS = ("JPEG", "PNG", "WebP", "TIFF", "BMP", "GIF", "AVIF", "HEIF")
pillow_heif.register_heif_opener()


def options(form: Form = "matrix", format: str = "auto", **changes: Any) -> RowOptions:
    own = replace(PictureOptions(image=SMALL), **changes)
    return RowOptions(form=form, format=format, own=(own,))


def noise(width: int, height: int, channels: int = 3) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(width).integers(0, 256, (height, width, channels), np.uint8)


def saved(image: Image.Image, kind: str = "PNG", **settings: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **settings)
    return out.getvalue()


def pixels(data: bytes, key: str = "x", chosen: RowOptions | None = None) -> npt.NDArray[np.uint8]:
    """The one row of a picture, as height, width and channels of 0 to 255."""
    (run,) = decode(data, key, chosen or options())
    assert isinstance(run.payload, Matrix), run.error
    values = run.payload.values.reshape(3, SMALL.height, SMALL.width).transpose(1, 2, 0)
    assert (values == values.astype(np.uint8)).all()
    return values.astype(np.uint8)


def expected(image: Image.Image) -> npt.NDArray[np.uint8]:
    return np.asarray(image.convert("RGB").resize((4, 3), Image.Resampling.BILINEAR))


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_is_a_row_of_its_pixels(kind: str) -> None:
    data = saved(Image.fromarray(noise(20, 10)), kind)
    with Image.open(io.BytesIO(data)) as image:
        assert (pixels(data) == expected(image)).all()


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("L", "PNG"), ("1", "PNG"), ("P", "PNG"), ("RGBA", "PNG"), ("LA", "PNG"), ("CMYK", "JPEG"),
        ("L", "JPEG"), ("RGBA", "WebP"), ("P", "GIF"), ("CMYK", "TIFF"), ("YCbCr", "TIFF"),
        ("LAB", "TIFF"),
    ],
)  # fmt: skip
def test_grey_cmyk_alpha_and_palettes_become_rgb(mode: str, kind: str) -> None:
    base = Image.fromarray(noise(8, 6))
    grey = base.convert("L") if mode == "LA" else base
    image = ImageOps.posterize(base, 2) if mode == "LAB" else grey.convert(mode)
    data = saved(image, kind)
    with Image.open(io.BytesIO(data)) as again:
        assert (pixels(data) == expected(again)).all()


def test_an_avif_that_does_not_say_so_is_named() -> None:
    data = saved(Image.fromarray(noise(64, 48)), "AVIF")
    end = int.from_bytes(data[:4], "big")
    brands = data[8:end].replace(b"avif", b"mif1").replace(b"MA1B", b"miaf")
    (error,) = errors(decode(data[:8] + brands + data[end:], "x.avif", options()))
    assert "this is an AVIF that does not say so" in error


def test_a_palette_with_transparency_keeps_its_colours() -> None:
    image = Image.fromarray(noise(4, 3)).quantize(8)
    image.info["transparency"] = bytes([0, 128, 255])
    data = saved(image, transparency=bytes([0, 128, 255]))
    assert (pixels(data) == np.asarray(image.convert("RGBA").convert("RGB"))).all()


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_16_bits_are_scaled_not_clipped(kind: str) -> None:
    grey = np.array([[0, 255, 256, 65_535]] * 3, np.uint16)
    row = pixels(saved(Image.fromarray(grey), kind))
    assert row[0].tolist() == [[0] * 3, [0] * 3, [1] * 3, [255] * 3]


def test_pixels_of_32_bits_are_a_bad_row_however_small_their_values() -> None:
    small = Image.fromarray(np.array([[0, 255, 256, 65_535]] * 3, np.int32))
    assert errors(decode(saved(small, "TIFF"), "x", options())) == [
        "the picture has pixels of 32 bits, which are not read"
    ]


def test_the_orientation_that_a_camera_wrote_is_applied() -> None:
    image = Image.fromarray(noise(4, 3))
    exif = Image.Exif()
    exif[0x0112] = 3  # turned upside down
    assert (pixels(saved(image, exif=exif)) == np.asarray(image)[::-1, ::-1]).all()


@pytest.mark.parametrize("turn", [1, 6])
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize(
    "size", [(4, 3), (7, 6), (8, 6), (9, 6), (16, 13), (17, 12), (33, 25), (64, 48), (200, 12)]
)
def test_a_drafted_jpeg_has_the_pixels_of_pillow_s_draft(
    size: tuple[int, int], mode: str, turn: int
) -> None:
    exif = Image.Exif()
    exif[0x0112] = turn
    stored = size if turn == 1 else size[::-1]
    data = saved(Image.fromarray(noise(*stored)).convert(mode), "JPEG", exif=exif)
    with Image.open(io.BytesIO(data)) as image:
        # Pillow drafts nothing but these, and knows nothing of turned pictures.
        if mode != "CMYK":
            image.draft(None, (SMALL.width, SMALL.height) if turn == 1 else (3, 4))
        wanted = expected(ImageOps.exif_transpose(image))
    assert (pixels(data, chosen=options(draft=True)) == wanted).all()


def test_without_a_draft_all_pixels_of_a_jpeg_count() -> None:
    data = saved(Image.fromarray(noise(64, 48)), "JPEG")
    with Image.open(io.BytesIO(data)) as image:
        assert (pixels(data) == expected(image)).all()
        assert (pixels(data, chosen=options(draft=True)) != expected(image)).any()


def test_of_an_animation_the_first_frame_counts() -> None:
    first, second = (Image.new("RGB", (4, 3), colour) for colour in ("red", "blue"))
    data = saved(first, "GIF", save_all=True, append_images=[second])
    assert (pixels(data) == np.asarray(first)).all()


def test_layout_and_scale_are_torchvisions() -> None:
    image = noise(4, 3)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    unit = image.astype(np.float32) / np.float32(255)
    normal = (unit - np.array(mean, np.float32)) / np.array(std, np.float32)
    for chosen, values in [
        (PixelOptions(4, 3, "nhwc"), image),
        (PixelOptions(4, 3, "nchw"), image.transpose(2, 0, 1)),
        (PixelOptions(4, 3, "nhwc", unit=True), unit),
        (PixelOptions(4, 3, "nchw", unit=True, mean=mean, std=std), normal.transpose(2, 0, 1)),
    ]:
        (run,) = decode(saved(Image.fromarray(image)), "x", options(image=chosen))
        assert isinstance(run.payload, Matrix)
        assert run.payload.values.tolist() == [values.astype(np.float32).ravel().tolist()]


def test_rows_of_bytes_are_pixels_of_a_byte_each() -> None:
    image = noise(4, 3)
    data = saved(Image.fromarray(image))
    (run,) = decode(data, "x", options(form="bytes", image=PixelOptions(4, 3, "nhwc")))
    assert isinstance(run.payload, BytesRows)
    assert bytes(run.payload.row(0)) == image.tobytes()


def test_pictures_in_archives_and_the_bad_one_among_them() -> None:
    good = saved(Image.fromarray(noise(5, 5)))
    archive = tar_of({"1.png": good, "notes.csv2": b"no", "2.png": good[:-30], "3.png": good})
    runs = decode(gzipped(archive), "x.tgz", options())
    assert [(run.member, run.error is None) for run in runs] == [
        ("1.png", True), ("2.png", False), ("3.png", True),
    ]  # fmt: skip


def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded() -> None:
    bomb = picture_bodies.png(1, 1, said=(100_000, 100_000))
    (error,) = errors(decode(bomb, "x", options()))
    assert "limits.pixels" in error
    data = saved(Image.fromarray(noise(20, 10)))
    assert "limits.pixels" in errors(decode(data, "x", options(pixels=199)))[0]
    assert not errors(decode(data, "x", options(pixels=200)))


def test_a_header_that_lies_is_found_out() -> None:
    """Two frame headers: ours reads one, a decoder may believe the other."""
    data = saved(Image.fromarray(noise(8, 8)), "BMP")
    wide = data[:18] + (10**6).to_bytes(4, "little") + data[22:]
    (error,) = errors(decode(wide, "x", options()))
    assert "cannot be decoded" in error or "limits.pixels" in error


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_picture_is_a_bad_row_wherever_it_ends(kind: str) -> None:
    data = saved(Image.fromarray(noise(40, 30)), kind)
    for tenth in range(1, 10):
        (run,) = decode(data[: len(data) * tenth // 10], "x", options(format="image"))
        assert run.error, (kind, tenth)


def test_a_big_tiff_is_a_tiff() -> None:
    image = noise(4, 3)
    data = saved(Image.fromarray(image), "TIFF", big_tiff=True)
    assert data.startswith(b"II+\0")
    assert (pixels(data) == image).all()
    far = data[:8] + b"\xff" * 8 + data[16:]
    assert errors(decode(far, "x", options())) == ["the TIFF ends before it tells its size"]


@pytest.mark.parametrize("hotspot", [b"\0\0\0\0", b"\x07\0\x09\0"])
def test_a_bmp_of_os2(hotspot: bytes) -> None:
    """Version 1, as it is, and with the point of a pointer in its head; and version 2."""
    image = noise(4, 3)
    rows = b"".join(line.tobytes() for line in image[::-1, :, ::-1])
    core = struct.pack("<IHHHH", 12, 4, 3, 1, 24)
    second = struct.pack("<IiiHH", 64, 4, 3, 1, 24) + bytes(48)
    for header in (core, second):
        head = b"BM" + struct.pack("<I4sI", 14 + len(header) + 36, hotspot, 14 + len(header))
        assert (pixels(head + header + rows) == image).all()


@pytest.mark.parametrize(
    "tags",
    [{254: 1}, {50706: b"\1\4\0\0"}, {254: 1, 50706: b"\1\4\0\0"}],
    ids=["as NEF and ARW", "as DNG of one picture", "as DNG"],
)
def test_the_small_copy_in_a_raw_picture_is_not_taken_for_the_picture(
    tags: dict[int, object],
) -> None:
    data = saved(Image.fromarray(noise(4, 3)), "TIFF", tiffinfo=tags)
    (error,) = errors(decode(data, "x", options()))
    assert "a small copy of its picture, as a raw picture of a camera does" in error
    (run,) = decode(data, "x", RowOptions(form="bytes"))
    assert isinstance(run.payload, BytesRows)
    assert bytes(run.payload.row(0)) == data


def test_what_pillow_cannot_read_is_said_in_the_same_words_each_time() -> None:
    planes = np.random.default_rng(1).random((3, 4, 3)).astype(np.float32)
    strip = planes.tobytes()
    tags = ((256, 4), (257, 3), (258, 32), (259, 1), (262, 2), (273, 200), (277, 3), (279, 144))
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    data = b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + entries + bytes(4)
    data = data.ljust(200, b"\0") + strip
    said = errors(decode(data, "x", options())) + errors(decode(data, "x", options()))
    assert len(set(said)) == 1
    assert "Pillow does not read; write it with 8 bits a channel" in said[0]


def test_floating_point_pixels_are_a_bad_row() -> None:
    (error,) = errors(decode(saved(Image.new("F", (4, 3)), "TIFF"), "x", options()))
    assert "floating-point" in error


def config(**rows: str) -> Config:
    return Config(rows=Rows(**{"image_size": "4x3"} | rows), model=Model(request="float32"))  # type: ignore[arg-type]


def test_settings_become_options() -> None:
    assert row_options(config()).of(PictureOptions).image == SMALL
    found = row_options(config(image_scale="0.5,0.25,0.125/1,2,4", image_layout="nhwc"))
    assert found.of(PictureOptions).image == PixelOptions(
        4, 3, "nhwc", unit=True, mean=(0.5, 0.25, 0.125), std=(1, 2, 4)
    )
    assert row_options(Config()).of(PictureOptions).image is None


def test_pixels_of_uint8_are_a_byte_a_number() -> None:
    rows = Rows(image_size="4x3", dtype="uint8")
    found = row_options(Config(rows=rows, model=Model(request="raw"))).of(PictureOptions).image
    assert found is not None
    assert found.row_bytes("bytes") == 4 * 3 * 3


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: config(image_size="4"), "image_size"),
        (lambda: config(image_size="0x4"), "image_size"),
        (lambda: config(image_size="4x00"), "image_size"),
        (lambda: config(image_scale="0-255"), "image_scale"),
        (lambda: config(image_scale="1,1,1/1,0,1"), "image_scale"),
        (lambda: Config(rows=Rows(image_size="4x3")), "model.request"),
        (lambda: config(dtype="uint8"), "rows.dtype"),
        (
            lambda: Config(
                rows=Rows(image_size="4x3", image_scale="0-1"), model=Model(request="raw")
            ),
            "image_scale",
        ),
        (
            lambda: Config(
                rows=Rows(image_size="4x3"), model=Model(request="float32"),
                limits=Limits(row_bytes=143),
            ),
            "limits.row_bytes",
        ),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_end_the_start(make: Callable[[], Config], named: str) -> None:
    with pytest.raises(Fatal, match=named) as caught:
        row_options(make())
    assert caught.value.exit_code == EXIT_USAGE
