"""The description of a format: its names, how it is recognised, its rows, and its reader.

Rule: all other code knows a format only by its `Format`, never by its name, so that a user's
package can add a format, by an entry point `penstock.formats`. Whether the rows of a format fit the
request to the model is checked at the start for the configured format, and for each object when its
format is known. If the rows do not fit, the error says which request or setting to choose.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from penstock.core.rows.payload import Form
from penstock.errors import PenstockError, Poison
from penstock.formats.base.parser_chain import Parser
from penstock.formats.base.runs import RowOptions
from penstock.formats.base.source import Read
from penstock.formats.pictures import image

_KINDS: Final = {
    "matrix": "numbers (float32)",
    "json": "JSON elements (json, instances)",
    "bytes": "opaque bytes (bytes, raw)",
    "columns": "columns (arrow)",
}


def always(_: object) -> bool:
    """The `is_plain` of a format that is plain with all options."""
    return True


def never(_: object) -> bool:
    """The `looks` of a format that cannot be recognised by first bytes, or the `is_plain` of a
    format that is never plain.
    """
    return False


@dataclass(frozen=True, slots=True)
class Format:
    """One format. The parser that `open` returns reads an object as a stream; the function `ranged`
    reads an object by ranges of its bytes. If a format has both, `open` is used for members of
    archives and for packed objects. `open` returns None if it cannot make the rows that the options
    want. `makes`: from the options to the forms of rows that the format can give. `extensions`: in
    lower case, with the dot. `looks`: True if an object's first bytes, at most 512, look like this
    format. `is_plain`: True if with these options rows are read by linear code, without unpacking
    anything; then the worker itself decodes small objects. `is_text`: True if the bytes are UTF-8;
    then a byte order mark is taken off and UTF-16 is refused.
    """

    name: str
    makes: Callable[[RowOptions], Collection[Form]]
    open: Callable[[RowOptions], Parser | None] | None = None
    ranged: Read | None = None
    extensions: tuple[str, ...] = ()
    looks: Callable[[bytes], bool] = never
    is_plain: Callable[[RowOptions], bool] = never
    is_text: bool = False

    def fits(self, options: RowOptions) -> bool:
        """Can the format make the rows that the request takes?"""
        return options.form in self.makes(options)

    def misfit(self, options: RowOptions) -> str | None:
        """Why the rows do not fit, in words, with the setting that mends it. None: they fit."""
        if self.fits(options):
            return None
        made = " or ".join(_KINDS[form] for form in self.makes(options))
        # Formats of pictures give numbers only if rows.image_size is set.
        needs_size = options.form == "matrix" and self.makes is image.makes_pixels
        size = "rows.image_size, as 224x224, for rows of pixels, or " if needs_size else ""
        return (
            f"rows of {self.name} are {made}, but model.request takes {_KINDS[options.form]}; set "
            f"{size}model.request to what fits"
        )

    def check_fits(self, options: RowOptions) -> None:
        """Raises `Poison` if the request cannot take the format's rows."""
        why = self.misfit(options)
        if why is not None:
            raise Poison("bad_format", why)


class WantsRanges(PenstockError):
    """The first bytes of an object show that it must be read by ranges, not as a stream."""

    def __init__(self, format: Format) -> None:
        super().__init__(format.name)
        self.format = format


def makes(*forms: Form) -> Callable[[RowOptions], Collection[Form]]:
    """The `makes` of a format that gives these forms with all options."""
    return lambda _options: forms
