"""The format `image`. An object, or a member of an archive, is one row. The row is the bytes of the
file as they are; if `rows.image_size` is set, it is the pixels of the picture. Only this module
uses Pillow, pillow-heif, which adds HEIC to it, and simplejpeg.

Rule: data that is no picture, that is provably damaged, or that claims more than `limits.pixels` is
a bad row. The picture's first bytes show its kind, and only Pillow's decoder for that kind is
tried. Any exception of Pillow about a damaged picture becomes `BadRow`. If a file is an animation
or has several pages, the pixels are those of its first picture.

What a container can prove (checksums, lengths, ends) is checked without decoding, for pictures that
the model takes undecoded, too.
"""

import io
import re
import struct
import zlib
from collections.abc import Callable, Collection
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from penstock.core.rows.payload import ROW_COST_BYTES, Form, Payload
from penstock.formats.pictures.headers import check_shown, jpeg_frame, kind_of, look_at, tiff_tags
from penstock.formats.pictures.pixels import PictureOptions, Rgb
from penstock.formats.runs import BadRow, RowOptions
from penstock.formats.text.text_and_bytes import OneRowParser, opaque
from penstock.packages import missing_extra

if TYPE_CHECKING:
    from PIL import Image

_PNG_HEAD_BYTES: Final = 8
_JPEG_END, _JPEG_SCAN, _JPEG_RESTARTS = b"\xff\xd9", b"\xff\xda", b"\xff\xdd"
_JPEG_FIRST_RESTART: Final = 0xD0
# In the data of pixels, 0xff is followed by 0 if it is no marker.
_JPEG_MARKERS: Final = re.compile(rb"\xff[\x01-\xfe]")
# Behind its last box, a HEIC may have bytes that are no box.
_HEIF_BOXES: Final = frozenset((b"ftyp", b"meta", b"mdat", b"moov", b"free", b"skip", b"mpvd"))
_TIFF_COMPRESSION, _TIFF_DEFLATE = 259, (8, 32_946)
_TIFF_STRIPS, _TIFF_STRIP_BYTES, _TIFF_TILES, _TIFF_TILE_BYTES = 273, 279, 324, 325
_STEP_BYTES: Final = 1 << 20
# What libjpeg says of a JPEG in which data is missing or wrong, and goes on. What else it says is
# of writers that are careless, and so is a little padding at the end of the data of the pixels:
# damage leaves more there, some 50 bytes in half of the cases.
_JPEG_DAMAGE: Final = re.compile(r"(?i)premature end|huffman code|instead of RST|resync")
_JPEG_EXTRA: Final = re.compile(r"\b(\d+) extraneous bytes before marker 0x(?:d[0-9a]|c4)")
_JPEG_PADDING_BYTES: Final = 16


def check_container(kind: str, data: bytes) -> None:
    """Raises `BadRow` if this picture is damaged, or is not all there."""
    check = _CHECKS.get(kind)
    if check is None:
        return
    try:
        damage = check(data)
    except (struct.error, OverflowError):
        damage = "it breaks off"
    if damage is not None:
        raise BadRow(f"the {kind} is damaged: {damage}")


def is_damage(reason: str) -> bool:
    """True if libjpeg's warning means that data of the picture is missing or wrong."""
    extra = _JPEG_EXTRA.search(reason)
    if extra is not None:
        return int(extra[1]) > _JPEG_PADDING_BYTES
    return _JPEG_DAMAGE.search(reason) is not None


def check_deflated(data: bytes, pixels: int) -> None:
    """Raises `BadRow` if a checksum in a TIFF of deflate's compression is wrong. libtiff does not
    look at the checksums. `pixels`: how many pixels the TIFF has.
    """
    tags = tiff_tags(
        data,
        *(_TIFF_COMPRESSION, _TIFF_STRIPS, _TIFF_STRIP_BYTES, _TIFF_TILES, _TIFF_TILE_BYTES),
    )
    if tags[_TIFF_COMPRESSION][0] not in _TIFF_DEFLATE:
        return
    # No pixel has more than four numbers of four bytes. At the edges, tiles hold more than the
    # picture.
    left_bytes = 64 * pixels + _STEP_BYTES
    pieces = [
        *zip(tags[_TIFF_STRIPS], tags[_TIFF_STRIP_BYTES], strict=False),
        *zip(tags[_TIFF_TILES], tags[_TIFF_TILE_BYTES], strict=False),
    ]
    for at, nbytes in pieces:
        packed = data[at : at + nbytes]
        unpacking = zlib.decompressobj()
        while packed and not unpacking.eof and left_bytes > 0:
            try:
                left_bytes -= len(unpacking.decompress(packed, _STEP_BYTES))
            except zlib.error as error:
                raise BadRow(f"the TIFF is damaged: {error}") from None
            packed = unpacking.unconsumed_tail


def _png(data: bytes) -> str | None:
    """By the checksum of each chunk, up to the last chunk (PNG, 5.3)."""
    view = memoryview(data)
    at, name = _PNG_HEAD_BYTES, b""
    while name != b"IEND":
        nbytes, name = struct.unpack_from(">I4s", data, at)
        end = at + 8 + nbytes
        (wanted,) = struct.unpack_from(">I", data, end)
        if zlib.crc32(view[at + 4 : end]) != wanted:
            return f"the checksum of a chunk {name.decode('ascii', 'replace')} is wrong"
        at = end + 4
    return None


def _jpeg(data: bytes) -> str | None:
    """By its end, whose two bytes are never in the data of its pixels, and by the numbers of the
    markers between parts of this data, if it has such markers (T.81, B.1.1.5 and F.1.1.5.2).
    """
    frame = jpeg_frame(data)
    if data.rfind(_JPEG_END, frame) < 0:
        return "it breaks off"
    begin = data.find(_JPEG_SCAN, frame)
    if data.find(_JPEG_RESTARTS, 0, begin) < 0:
        return None
    for number, marker in enumerate(_JPEG_MARKERS.finditer(data, begin + 2)):
        restart = data[marker.start() + 1] - _JPEG_FIRST_RESTART
        if not 0 <= restart < 8:
            break
        if restart != number % 8:
            return "a part of its data is missing"
    return None


def _webp(data: bytes) -> str | None:
    return _short(struct.unpack_from("<I", data, 4)[0] + 8, data)


def _heif(data: bytes) -> str | None:
    """By the lengths of its boxes. A box of the length 0 reaches to the end."""
    at = 0
    while at + 8 <= len(data):
        nbytes, name = struct.unpack_from(">I4s", data, at)
        if nbytes == 1:
            (nbytes,) = struct.unpack_from(">Q", data, at + 8)
        if nbytes < 8 or name not in _HEIF_BOXES:
            return None
        at += nbytes
    return _short(at, data)


def _short(wanted: int, data: bytes) -> str | None:
    return f"it should have {wanted} bytes and has {len(data)}" if wanted > len(data) else None


_CHECKS: Final[dict[str, Callable[[bytes], str | None]]] = {
    "PNG": _png,
    "JPEG": _jpeg,
    "WebP": _webp,
    "HEIC": _heif,
    "AVIF": _heif,
}


EXTENSIONS: Final = (
    *(".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif"),
    *(".heic", ".heif", ".hif", ".avif", ".jfif", ".jpe", ".mpo", ".apng"),
)
# The modules of the extra that a kind needs beside Pillow.
_NEEDED: Final = {"HEIC": "pillow_heif", "JPEG": "simplejpeg"}
# TIFF's tags of the bits of a number and of its meaning as light (TIFF 6.0, section 8).
_TIFF_BITS: Final = 258
_TIFF_LIGHT, _TIFF_WHITE_IS_0 = 262, 0
# EXIF's tag of how a picture is turned, and the values for which width and height change places.
_EXIF_TURN: Final = 274
_ON_THEIR_SIDE: Final = frozenset((5, 6, 7, 8))
# libjpeg decodes to these parts of a picture's sides for little more than their share of the time.
_SCALES: Final = (8, 4, 2)
# A frame of a video may become a JPEG; this is the quality of the JPEG.
JPEG_QUALITY: Final = 95


def open_image(options: RowOptions) -> OneRowParser:
    own = options.of(PictureOptions)

    def row(data: bytes) -> Payload:
        if own.image is not None:
            size = own.image.width, own.image.height
            rgb = decode(data, size, own.pixels, is_draft=own.draft)
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


def decode(data: bytes, size: tuple[int, int], most_pixels: int, *, is_draft: bool = False) -> Rgb:
    """The picture in RGB, turned upright, and scaled to exactly `size` (width, height). `is_draft`:
    True if a JPEG may be decoded to a half, a quarter or an eighth that is not smaller than `size`.
    Raises `BadRow` if the picture cannot be decoded.
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
            least = size if is_draft else None
            loaded = _strictly(data, image, least) if kind == "JPEG" else image
            loaded.load()
            # libheif has turned a HEIC already, by what the file itself says.
            if kind != "HEIC":
                ImageOps.exif_transpose(loaded, in_place=True)
            return scaled(_as_rgb(loaded), size)
    except BadRow:
        raise
    except UnidentifiedImageError:
        message = "it is of a form that Pillow does not read; write it with 8 bits a channel"
        raise BadRow(f"the {kind} cannot be decoded: {message}") from None
    # For damaged files Pillow raises OSError, SyntaxError, ValueError, struct.error, KeyError,
    # TypeError, DecompressionBombError and more.
    except Exception as error:
        message = str(error).partition("\n")[0] or type(error).__name__
        raise BadRow(f"the {kind} cannot be decoded: {message}") from error


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


def _strictly(data: bytes, image: "Image.Image", least: tuple[int, int] | None) -> "Image.Image":
    """A JPEG as Pillow decodes it. Pillow does not tell what libjpeg says of damage, so the JPEG is
    decoded by another library, which does. It decodes to the same pixels, also if it may scale the
    JPEG to at least this size.
    """
    from PIL import Image  # noqa: PLC0415
    from simplejpeg import decode_jpeg  # noqa: PLC0415

    if image.mode not in ("RGB", "L"):
        return image
    width, height = (0, 0) if least is None else _drafted(image, least)
    try:
        rgb = decode_jpeg(data, "RGB", strict=True, min_width=width, min_height=height)
        loaded = Image.fromarray(rgb)
    except ValueError as error:
        if is_damage(str(error)):
            raise BadRow(f"the JPEG is damaged: {error}") from None
        return image
    loaded.info = image.info
    return loaded


def _drafted(image: "Image.Image", least: tuple[int, int]) -> tuple[int, int]:
    """The size of the smallest of the four scales that is not smaller than `least`, as Pillow's own
    `draft` chooses it. Pictures that lie on their side are turned later.
    """
    width, height = image.size
    if image.getexif().get(_EXIF_TURN, 1) in _ON_THEIR_SIDE:
        least = least[::-1]
    times = min(width // least[0], height // least[1])
    scale = next((factor for factor in _SCALES if times >= factor), 1)
    return -(-width // scale), -(-height // scale)


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
