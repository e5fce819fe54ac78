"""Pillow, the only place that knows it: the bytes of a picture to its pixels, and back to a JPEG.

Rule: a picture is measured before it is decoded, and only the decoder of the kind that its first
bytes tell is tried. Whatever a damaged one makes Pillow do ends as `BadRow`.
"""

import io
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import numpy as np

from consumers.errors import EXIT_USAGE, Fatal
from consumers.formats.picture import look_at
from consumers.formats.pixels import Rgb
from consumers.formats.rows import BadRow

if TYPE_CHECKING:
    from PIL import Image

# Of a frame that becomes an opaque row.
JPEG_QUALITY: Final = 95


def need_pillow(wanted_by: str) -> None:
    """Raises `Fatal` where it is not installed."""
    if find_spec("PIL") is None:
        raise Fatal(
            f"{wanted_by} needs Pillow: pip install 'penstock-stream[images]'",
            exit_code=EXIT_USAGE,
        )


def decode(data: bytes, size: tuple[int, int], most_pixels: int) -> Rgb:
    """The picture, upright, in RGB, scaled to exactly `size` (width, height). Raises `BadRow`."""
    picture = look_at(data)
    check_pixels(picture.kind, picture.width, picture.height, most_pixels)
    return _decode(data, picture.kind, size, most_pixels)


def check_pixels(kind: str, width: int, height: int, most_pixels: int) -> None:
    if width * height > most_pixels:
        raise BadRow(
            f"the {kind} has {width} x {height} pixels, more than {most_pixels} (limits.pixels)"
        )


def _decode(data: bytes, kind: str, size: tuple[int, int], most_pixels: int) -> Rgb:
    from PIL import Image, ImageOps  # noqa: PLC0415 (an extra, loaded when it is asked for)

    try:
        with Image.open(io.BytesIO(data), formats=[kind.upper()]) as image:
            # Of what Pillow itself read; where the two disagree, the header lies.
            check_pixels(kind, *image.size, most_pixels)
            image.load()
            upright = ImageOps.exif_transpose(image)
            return scaled(_as_rgb(upright), size)
    except BadRow:
        raise
    # The readers of damaged files raise what their parsing stumbles over: OSError, SyntaxError,
    # ValueError, struct.error, KeyError, TypeError, DecompressionBombError and more.
    except Exception as error:
        said = str(error).partition("\n")[0] or type(error).__name__
        raise BadRow(f"the {kind} cannot be decoded: {said}") from error


def scaled(image: "Image.Image", size: tuple[int, int]) -> Rgb:
    """Bilinear, over all pixels that fall together; the sides' ratio is not kept."""
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
    """Transparency is dropped: what lies under it counts, as with `convert("RGB")`."""
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I;16"):  # which `convert` would clip
        return _from_16_bits(image)
    if image.mode == "I":
        raise BadRow("the picture has pixels of 32 bits, which are not read")
    if image.mode == "F":
        raise BadRow("the picture has floating-point pixels, which have no fixed range")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def _from_16_bits(image: "Image.Image") -> "Image.Image":
    from PIL import Image  # noqa: PLC0415

    values = np.asarray(image).astype(np.uint16)
    return Image.fromarray((values >> 8).astype(np.uint8)).convert("RGB")
