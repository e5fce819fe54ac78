"""The format `image`: an object, or a member of an archive, is one row: the bytes of the file as
they are, or with `rows.image_size` the pixels of the picture.

Rule: data that is not a picture, or that claims more than `limits.pixels`, is a bad row, and is not
decoded. Of an animation, or a file of several pages, the pixels are those of the first picture.
"""

from collections.abc import Collection

from penstock.core.rows.payload import Form, Payload
from penstock.formats.base.runs import RowOptions
from penstock.formats.pictures import pillow
from penstock.formats.pictures.headers import kind_of, look_at
from penstock.formats.pictures.pixels import PictureOptions
from penstock.formats.text.opaque import OneRowParser, opaque

EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif")


def open_image(options: RowOptions) -> OneRowParser:
    own = options.of(PictureOptions)

    def row(data: bytes) -> Payload:
        if own.image is not None:
            rgb = pillow.decode(data, (own.image.width, own.image.height), own.pixels)
            return own.image.row(rgb, options.form)
        pillow.check_pixels(*look_at(data), own.pixels)
        return opaque(data)

    return OneRowParser(options, row)


def makes_pixels(options: RowOptions) -> Collection[Form]:
    """Rows of numbers are possible only if `rows.image_size` says how many pixels a row has; rows
    of bytes are always possible.
    """
    forms: tuple[Form, ...] = ("matrix", "bytes")
    return forms[1:] if stays_whole(options) else forms


def stays_whole(options: RowOptions) -> bool:
    """Is a row the bytes of the file, so that nothing is decoded?"""
    return options.of(PictureOptions).image is None


def looks(head: bytes) -> bool:
    return kind_of(head) is not None
