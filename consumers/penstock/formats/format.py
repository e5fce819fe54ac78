"""Describes a format: its names, how it is recognised, its rows, and its reader.

Rule: all other code uses a format only through its `Format`, and never asks for its name, so a
user's package can add one (`penstock.formats`). Whether rows fit the request is checked at the
start for the configured format, and for each object when its format is known; the error says what
to choose.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from penstock.core.rows.payload import Form
from penstock.errors import PenstockError, Poison
from penstock.formats.parser_chain import Parser
from penstock.formats.pictures import image
from penstock.formats.runs import RowOptions
from penstock.formats.source import Read

KINDS: Final = {
    "matrix": "numbers (float32)",
    "json": "JSON elements (json, instances)",
    "bytes": "opaque bytes (bytes, raw)",
    "columns": "columns (arrow)",
}


def always(_: object) -> bool:
    """Serves as the `is_plain` of a format that is plain with all options."""
    return True


def never(_: object) -> bool:
    """Serves as the `looks` of a format that cannot be recognised by first bytes, and as the
    `is_plain` of a format that is never plain.
    """
    return False


@dataclass(frozen=True, slots=True)
class Format:
    """One format. `open`: a function that returns a parser, which reads an object as a stream. If
    the format cannot make the rows that the options want, the function returns None. `ranged`: a
    function that reads an object by ranges of its bytes. If a format has both, `open` is used for
    members of archives and for packed objects. `makes`: a function that returns the forms of rows
    that the format can give with these options. `extensions`: the extensions of names, in lower
    case and with the dot. `looks`: a function that gets an object's first bytes, at most 512, and
    returns True if they look like this format. `is_plain`: a function that returns True if, with
    these options, rows are read by linear code and nothing is unpacked; if so, the worker itself
    decodes small objects. `is_text`: True if the format's bytes are UTF-8; if so, a byte order mark
    is taken off, and UTF-16 is refused. `may_be_empty`: True if an object of no bytes has no rows;
    otherwise it is an error.
    """

    name: str
    makes: Callable[[RowOptions], Collection[Form]]
    open: Callable[[RowOptions], Parser | None] | None = None
    ranged: Read | None = None
    extensions: tuple[str, ...] = ()
    looks: Callable[[bytes], bool] = never
    is_plain: Callable[[RowOptions], bool] = never
    is_text: bool = False
    may_be_empty: bool = False

    def fits(self, options: RowOptions) -> bool:
        """True if the format can make rows of the form that the request to the model takes."""
        return options.form in self.makes(options)

    def misfit(self, options: RowOptions) -> str | None:
        """Why the format's rows do not fit the request, as a text that names the setting to change.
        None: they fit.
        """
        if self.fits(options):
            return None
        made = " or ".join(KINDS[form] for form in self.makes(options))
        # Formats of pictures give numbers only if rows.image_size is set.
        needs_size = options.form == "matrix" and self.makes is image.makes_pixels
        size = "rows.image_size, as 224x224, for rows of pixels, or " if needs_size else ""
        return (
            f"rows of {self.name} are {made}, but model.request takes {KINDS[options.form]}; set "
            f"{size}model.request to what fits"
        )

    def check_fits(self, options: RowOptions) -> None:
        """Raises `Poison` if the request to the model cannot take the format's rows."""
        why = self.misfit(options)
        if why is not None:
            raise Poison("bad_format", why)


class WantsRanges(PenstockError):
    """The first bytes of an object show that it must be read by ranges, not as a stream."""

    def __init__(self, format: Format) -> None:
        super().__init__(format.name)
        self.format = format


def makes(*forms: Form) -> Callable[[RowOptions], Collection[Form]]:
    """Returns the `makes` of a format that can give these forms with all options."""
    return lambda _options: forms
