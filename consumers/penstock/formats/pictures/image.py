"""The format `image`. An object, or a member of an archive, is one row. The row is the bytes of the
file as they are; if `rows.image_size` is set, it is the pixels of the picture. Only this module
uses Pillow, pillow-heif, which adds HEIC to it, and simplejpeg.

Rule: data that is no picture, that is provably damaged, or that claims more than `limits.pixels`
is a bad row. The picture's first bytes show its kind, and only Pillow's decoder for that kind is
tried. Any exception of Pillow about a damaged picture becomes `BadRow`. If a file is an animation
or has several pages, the pixels are those of its first picture.
"""

import io
from collections.abc import Collection
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from penstock.core.rows.payload import ROW_COST_BYTES, Form, Payload
from penstock.formats.base.runs import BadRow, RowOptions
from penstock.formats.pictures.damage import check_container, check_deflated, is_damage
from penstock.formats.pictures.headers import check_shown, kind_of, look_at
from penstock.formats.pictures.pixels import PictureOptions, Rgb
from penstock.formats.text.text_and_bytes import OneRowParser, opaque
from penstock.packages import missing_extra

if TYPE_CHECKING:
    from PIL import Image


EXTENSIONS: Final = (
    *(".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif"),
    *(".heic", ".heif", ".hif", ".avif", ".jfif", ".jpe", ".mpo", ".apng"),
)
# The modules of the extra that a kind needs beside Pillow.
_NEEDED: Final = {"HEIC": "pillow_heif", "JPEG": "simplejpeg"}
# TIFF's tags of the bits of a number and of its meaning as light (TIFF 6.0, section 8).
_TIFF_BITS: Final = 258
_TIFF_LIGHT, _TIFF_WHITE_IS_0 = 262, 0
# A frame of a video may become a JPEG; this is the quality of the JPEG.
JPEG_QUALITY: Final = 95


def open_image(options: RowOptions) -> OneRowParser:
    own = options.of(PictureOptions)

    def row(data: bytes) -> Payload:
        if own.image is not None:
            rgb = decode(data, (own.image.width, own.image.height), own.pixels)
            return own.image.row(rgb, options.form)
        kind, width, height = look_at(data)
        check_pixels(kind, width, height, own.pixels)
        check_container(kind, data)
        return opaque(data)

    # If the row is the file as it is, nothing grows.
    whole = own.image is None
    return OneRowParser(options, row, ROW_COST_BYTES if whole else own.weight(options.form))


def makes_pixels(options: RowOptions) -> Collection[Form]:
    """Rows of numbers are possible only if `rows.image_size` says how many pixels a row has; rows
    of bytes are always possible.
    """
    forms: tuple[Form, ...] = ("matrix", "bytes")
    return forms[1:] if stays_whole(options) else forms


def stays_whole(options: RowOptions) -> bool:
    """True if a row is the bytes of the file, so that nothing is decoded."""
    return options.of(PictureOptions).image is None


def looks(head: bytes) -> bool:
    return kind_of(head) is not None


def need_pillow(wanted_by: str) -> None:
    """Raises `Fatal` if Pillow is not installed."""
    if find_spec("PIL") is None:
        raise missing_extra(wanted_by, "images")


def decode(data: bytes, size: tuple[int, int], most_pixels: int) -> Rgb:
    """The picture in RGB, turned upright, and scaled to exactly `size` (width, height). Raises
    `BadRow` if the picture cannot be decoded.
    """
    from PIL import ImageOps, UnidentifiedImageError  # noqa: PLC0415 (an extra, loaded when it is asked for)

    kind, width, height = look_at(data)
    check_pixels(kind, width, height, most_pixels)
    if _is_missing(kind):
        raise BadRow(str(missing_extra(kind, "images")))
    check_container(kind, data)
    try:
        check_shown(kind, data)
        if kind == "TIFF":
            check_deflated(data, width * height)
        with _opened(kind, data) as image:
            # Check the size again, because in a forged header Pillow may find another size than our
            # own code has found.
            check_pixels(kind, *image.size, most_pixels)
            loaded = _strictly(data, image) if kind == "JPEG" else image
            loaded.load()
            # libheif has turned a HEIC already, by what the file itself says.
            if kind != "HEIC":
                ImageOps.exif_transpose(loaded, in_place=True)
            return scaled(_as_rgb(loaded), size)
    except BadRow:
        raise
    except UnidentifiedImageError:
        said = "it is of a form that Pillow does not read; write it with 8 bits a channel"
        raise BadRow(f"the {kind} cannot be decoded: {said}") from None
    # For damaged files Pillow raises OSError, SyntaxError, ValueError, struct.error, KeyError,
    # TypeError, DecompressionBombError and more.
    except Exception as error:
        said = str(error).partition("\n")[0] or type(error).__name__
        raise BadRow(f"the {kind} cannot be decoded: {said}") from error


def _opened(kind: str, data: bytes) -> "Image.Image":
    """The picture as Pillow's decoder of its kind opens it; the other decoders are not tried."""
    from PIL import AvifImagePlugin, Image  # noqa: PLC0415

    file = io.BytesIO(data)
    if kind == "HEIC":
        from pillow_heif import HeifImageFile, options  # noqa: PLC0415

        options.DECODE_THREADS = 1
        return cast("Image.Image", HeifImageFile(file))  # type: ignore[no-untyped-call]
    if kind == "AVIF":
        AvifImagePlugin.DEFAULT_MAX_THREADS = 1
        return AvifImagePlugin.AvifImageFile(file)
    return Image.open(file, formats=[kind.upper()])


def _strictly(data: bytes, image: "Image.Image") -> "Image.Image":
    """A JPEG as Pillow decodes it. Pillow does not tell what libjpeg says of damage, so the JPEG is
    decoded by another library, which does. It decodes to the same pixels.
    """
    from PIL import Image  # noqa: PLC0415
    from simplejpeg import decode_jpeg  # noqa: PLC0415

    if image.mode not in ("RGB", "L"):
        return image
    try:
        loaded = Image.fromarray(decode_jpeg(data, "RGB", strict=True))
    except ValueError as error:
        if is_damage(str(error)):
            raise BadRow(f"the JPEG is damaged: {error}") from None
        return image
    loaded.info = image.info
    return loaded


def _is_missing(kind: str) -> bool:
    """True if this kind needs more than the Pillow that is installed."""
    if kind == "AVIF":
        from PIL import features  # noqa: PLC0415

        return not features.check("avif")
    return kind in _NEEDED and find_spec(_NEEDED[kind]) is None


def check_pixels(kind: str, width: int, height: int, most_pixels: int) -> None:
    if width * height > most_pixels:
        raise BadRow(
            f"the {kind} has {width} x {height} pixels, more than {most_pixels} (limits.pixels)"
        )


def scaled(image: "Image.Image", size: tuple[int, int]) -> Rgb:
    """Scale the picture bilinearly to exactly `size`. Even if the picture becomes smaller, all its
    pixels count.
    """
    from PIL import Image  # noqa: PLC0415

    if image.size != size:
        image = image.resize(size, Image.Resampling.BILINEAR)
    return np.asarray(image)


def scaled_frame(rgb: Rgb, size: tuple[int, int]) -> Rgb:
    from PIL import Image  # noqa: PLC0415

    return scaled(Image.fromarray(rgb), size)


def jpeg(rgb: Rgb) -> bytes:
    from PIL import Image  # noqa: PLC0415

    out = io.BytesIO()
    Image.fromarray(rgb).save(out, "JPEG", quality=JPEG_QUALITY)
    return out.getvalue()


def _as_rgb(image: "Image.Image") -> "Image.Image":
    """The picture in RGB. Transparency is dropped and the colours stay, as `convert("RGB")` does
    it.
    """
    from PIL import Image  # noqa: PLC0415

    if image.mode == "RGB":
        return image
    # If a pixel has 16 bits, `convert` would make all values above 255 white.
    if image.mode.startswith("I;16"):
        # Of a TIFF, 12 bits may be used, and white may be 0; Pillow heeds neither.
        tags = getattr(image, "tag_v2", {})
        bits = tags.get(_TIFF_BITS, (16,))[0]
        values = (np.asarray(image).astype(np.uint16) >> bits - 8).astype(np.uint8)
        if tags.get(_TIFF_LIGHT) == _TIFF_WHITE_IS_0:
            values = 255 - values
        return Image.fromarray(values).convert("RGB")
    if image.mode == "I":
        raise BadRow("the picture has pixels of 32 bits, which are not read")
    if image.mode == "F":
        raise BadRow("the picture has floating-point pixels, which have no fixed range")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")
