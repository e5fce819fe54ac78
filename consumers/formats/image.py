"""Images: one object, or one member of an archive, is one row; its bytes go to the model as they
are.

Rule: what is no picture, or claims more than `limits.pixels`, is a bad row before anybody decodes
it. Of an animation it is the model that chooses the frame; most take the first.
"""

from consumers.core.payload import BytesRows
from consumers.formats.base import RowOptions
from consumers.formats.opaque import OneRowParser, opaque
from consumers.formats.picture import kind_of, look_at
from consumers.formats.rows import BadRow

EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif")


class ImageParser(OneRowParser):
    """Push parser of one picture."""

    def __init__(self, options: RowOptions) -> None:
        super().__init__(options, self._row)
        self._pixels = options.pixels

    def _row(self, data: bytes) -> BytesRows:
        picture = look_at(data)
        if picture.width * picture.height > self._pixels:
            raise BadRow(
                f"the {picture.kind} has {picture.width} x {picture.height} pixels, more than "
                f"{self._pixels} (limits.pixels)"
            )
        return opaque(data)


def looks(head: bytes) -> bool:
    return kind_of(head) is not None
