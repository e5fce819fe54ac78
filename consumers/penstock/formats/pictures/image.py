"""Images: one object, or one member of an archive, is one row: its bytes as they are, or with
`rows.image_size` its pixels.

Rule: data that is not a picture, or that claims more than `limits.pixels`, is a bad row without
being decoded. For pixels the first picture of an animation or of several pages counts; as bytes the
model gets the whole file.
"""

from collections.abc import Collection

from penstock.core.rows.payload import Form, Payload
from penstock.formats.base.runs import RowOptions
from penstock.formats.pictures import pillow
from penstock.formats.pictures.headers import kind_of, look_at
from penstock.formats.pictures.pixels import PictureOptions
from penstock.formats.text.opaque import OneRowParser, opaque

EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif")


class ImageParser(OneRowParser):
    """Push parser of one picture."""

    def __init__(self, options: RowOptions) -> None:
        super().__init__(options, self._row)
        self._form = options.form
        self._own = options.of(PictureOptions)

    def _row(self, data: bytes) -> Payload:
        most, image = self._own.pixels, self._own.image
        if image is not None:
            rgb = pillow.decode(data, (image.width, image.height), most)
            return image.row(rgb, self._form)
        pillow.check_pixels(*look_at(data), most)
        return opaque(data)


def makes_pixels(options: RowOptions) -> Collection[Form]:
    """Numbers only where their count is asked for."""
    forms: tuple[Form, ...] = ("matrix", "bytes")
    return forms if options.of(PictureOptions).image is not None else forms[1:]


def looks(head: bytes) -> bool:
    return kind_of(head) is not None
