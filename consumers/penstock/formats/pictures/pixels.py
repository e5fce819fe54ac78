"""Turns pictures into rows of numbers, and a row back into a small picture for the page.

Rule: a row is the whole picture, in the size that the model takes. No picture is decoded for a
page: the browser decodes a file, in its own sandbox; of a row of pixels it gets a PNG of every nth.
"""

import re
import struct
import zlib
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from penstock.core.rows.payload import (
    ROW_COST_BYTES,
    BytesRows,
    Float32Matrix,
    Form,
    Matrix,
    Payload,
)
from penstock.errors import usage
from penstock.formats.pictures.headers import kind_of

# The pixels of a picture, of the shape (height, width, 3), from 0 to 255.
Rgb = npt.NDArray[np.uint8]
Layout = Literal["nchw", "nhwc"]
Number = TypeVar("Number", bound=np.generic)

_NUMBER: Final = r"\d+(?:\.\d+)?"
_THREE: Final = rf"({_NUMBER}),({_NUMBER}),({_NUMBER})"
_SIZE: Final = re.compile(r"(\d{1,5})x(\d{1,5})")
_MEAN_STD: Final = re.compile(rf"{_THREE}/{_THREE}")
_CHANNELS: Final = 3
_FLOAT32_BYTES: Final = 4
# The longer side of a PNG that is made here has at most this many pixels.
MOST_PIXELS: Final = 128
# A row of pixels counts as at most this much where the rows of an object are compared with its
# size, so any 256 bytes may be one (see `most_weight`). The smallest pictures that people store
# have as many: the digits of MNIST 275 as PNG. So have frames of films in which something moves.
_MOST_WEIGHT: Final = 64 << 10
# Kinds of pictures that every browser shows.
_TYPES: Final = {"JPEG": "image/jpeg", "PNG": "image/png", "GIF": "image/gif"}
_HEAD_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class PixelOptions:
    """The size of a row's picture, and the order and scale of its numbers. `unit`: True if the
    numbers are divided by 255. After that, `mean` is subtracted from each channel, and the
    difference is divided by `std`; if they are None, these two steps are left out.
    """

    width: int
    height: int
    layout: Layout = "nchw"
    unit: bool = False
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def row_bytes(self, form: Form) -> int:
        return self.width * self.height * _CHANNELS * (_FLOAT32_BYTES if form == "matrix" else 1)

    def row(self, rgb: Rgb, form: Form) -> Matrix | BytesRows:
        """The row of a picture that already has the size of these options. In a row of opaque bytes
        the numbers are not scaled: they go from 0 to 255, one byte each.
        """
        if form == "bytes":
            return BytesRows.of([self._in_layout(rgb).tobytes()])
        return Matrix(self.numbers(rgb))

    def numbers(self, rgb: Rgb) -> Float32Matrix:
        """The numbers of one row. They are the same as those of torchvision's ToTensor and
        Normalize.
        """
        values: Float32Matrix = rgb.astype("<f4")
        if self.unit:
            values /= np.float32(255)
        if self.mean is not None:
            values -= np.array(self.mean, "<f4")
            values /= np.array(self.std, "<f4")
        return self._in_layout(values).reshape(1, -1)

    def rgb(self, row: npt.NDArray[np.uint8] | npt.NDArray[np.float32], step: int) -> Rgb:
        """The pixels of the picture, computed back from the numbers of its row and rounded to the
        range 0 to 255. Only every `step`th pixel is computed.
        """
        if self.layout == "nchw":
            whole = row.reshape(_CHANNELS, self.height, self.width).transpose(1, 2, 0)
        else:
            whole = row.reshape(self.height, self.width, _CHANNELS)
        small = whole[::step, ::step]
        if small.dtype == np.uint8:
            return np.ascontiguousarray(small, np.uint8)
        if self.mean is not None:
            small = small * np.array(self.std, "<f4") + np.array(self.mean, "<f4")
        if self.unit:
            small = small * np.float32(255)
        return np.nan_to_num(small).round().clip(0, 255).astype(np.uint8)

    def _in_layout(self, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        return np.ascontiguousarray(values.transpose(2, 0, 1) if self.layout == "nchw" else values)


@dataclass(frozen=True, slots=True)
class PictureOptions:
    """The options for pictures and for frames of videos. `pixels`: a picture with more pixels is
    not decoded. `image`: how a picture becomes a row of pixels; None: the row of a picture is its
    file as it is, and the row of a frame is a JPEG. `draft`: True if a JPEG may be scaled while it
    is decoded.
    """

    # Pillow's own limit. So many pixels, of three bytes each, take a quarter of a gigabyte.
    pixels: int = 89_478_485
    image: PixelOptions | None = None
    draft: bool = False

    def weight(self, form: Form) -> int:
        """The weight of a row of pixels or of a JPEG, and of such a row that nobody wants."""
        if self.image is None:
            return _MOST_WEIGHT
        return max(ROW_COST_BYTES, min(_MOST_WEIGHT, self.image.row_bytes(form)))


def pixel_options(
    size: str | None, layout: Layout, scale: str, form: Form, most_row_bytes: int
) -> PixelOptions | None:
    """Checks the settings, and returns them as `PixelOptions`. None: there is no `size`, so
    pictures are not decoded. Raises `Fatal` if a setting is wrong.
    """
    unit, mean, std = _scale(scale)
    if size is None:
        return None
    match = _SIZE.fullmatch(size)
    width, height = map(int, match.groups()) if match is not None else (0, 0)
    if not width or not height:
        raise usage(f"rows.image_size = {size!r} is no size; write width x height, as 224x224")
    options = PixelOptions(width, height, layout, unit, mean, std)
    if form not in ("matrix", "bytes"):
        raise usage(
            "rows.image_size makes rows of numbers; set model.request to float32, or to bytes or "
            "raw for a byte a number"
        )
    if form == "bytes" and unit:
        raise usage(
            f"rows.image_scale = {scale!r} needs model.request = 'float32': in rows of bytes "
            "numbers stay 0 to 255"
        )
    if options.row_bytes(form) > most_row_bytes:
        raise usage(
            f"rows.image_size = {size!r} makes rows of {options.row_bytes(form)} bytes, more than "
            f"limits.row_bytes ({most_row_bytes})"
        )
    return options


def _scale(scale: str) -> tuple[bool, tuple[float, ...] | None, tuple[float, ...] | None]:
    if scale in ("none", "0-1"):
        return scale == "0-1", None, None
    match = _MEAN_STD.fullmatch(scale.replace(" ", ""))
    numbers = tuple(map(float, match.groups())) if match else ()
    mean, std = numbers[:_CHANNELS], numbers[_CHANNELS:]
    if not std or min(std) <= 0:
        raise usage(
            f"rows.image_scale = {scale!r} is not known; write none, 0-1, or mean and standard "
            "deviation of red, green and blue: 0.485,0.456,0.406/0.229,0.224,0.225"
        )
    return True, mean, std


class EncodedPicture(NamedTuple):
    """The bytes of a picture's file, with their media type."""

    type: str
    body: bytes


def thumbnail(
    row: Payload, pixels: PixelOptions | None, most_bytes: int
) -> EncodedPicture | Rgb | None:
    """The picture of one row: its file, or its pixels, which the function `png` turns into a file.
    None: the row is not a picture, or its file has more than `most_bytes`.
    """
    if isinstance(row, BytesRows):
        data = row.row(0)
        type = _TYPES.get(kind_of(bytes(data[:_HEAD_BYTES])) or "")
        if type is not None:
            return EncodedPicture(type, bytes(data)) if len(data) <= most_bytes else None
    if pixels is None:
        return None
    size = pixels.width * pixels.height * 3
    step = -(-max(pixels.width, pixels.height) // MOST_PIXELS)
    if isinstance(row, Matrix) and row.values.shape[1] == size:
        return pixels.rgb(row.values[0], step)
    if isinstance(row, BytesRows) and len(row.row(0)) == size:
        return pixels.rgb(np.frombuffer(row.row(0), np.uint8), step)
    return None


def png(rgb: Rgb) -> EncodedPicture:
    height, width, _ = rgb.shape
    # In a PNG each line begins with the number of its filter. The number 0 stands for no filter.
    lines = np.zeros((height, 1 + 3 * width), np.uint8)
    lines[:, 1:] = rgb.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 1)), (b"IEND", b""))
    body = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)
    return EncodedPicture("image/png", body)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
