"""Do the rows that a format makes fit the request to the model?

Rule: asked at the start for the configured format, and for each object when its format is known. If
they do not fit, the message says which request or setting would. Pure. Owner: the registry.
"""

from typing import Final

from penstock.errors import Poison
from penstock.formats.base.format import Format
from penstock.formats.base.runs import RowOptions
from penstock.formats.pictures import image

_KINDS: Final = {
    "matrix": "numbers (float32)",
    "json": "JSON elements (json, instances)",
    "bytes": "opaque bytes (bytes, raw)",
    "columns": "columns (arrow)",
}


def check_fit(format: Format, options: RowOptions) -> None:
    """Raises `Poison` for an object whose rows the model cannot take."""
    why = misfit(format, options)
    if why is not None:
        raise Poison("bad_format", why)


def misfit(format: Format, options: RowOptions) -> str | None:
    """The misfit in words, with the setting that mends it; None: they fit."""
    if format.fits(options):
        return None
    made = " or ".join(_KINDS[form] for form in format.makes(options))
    # The format gives numbers only with the setting of a size.
    needs_size = options.form == "matrix" and format.makes is image.makes_pixels
    mend = "set rows.image_size, as 224x224, for rows of pixels, or " if needs_size else "set "
    return (
        f"rows of {format.name} are {made}, but model.request takes {_KINDS[options.form]}; {mend}"
        "model.request to what fits"
    )
