"""The description of a format: its names, how it is recognised, its rows, and its reader.

Rule: the registry, the sniffing and the checks at the start know a format only by its `Format`, not
by its name. A user's package gives one by an entry point `penstock.formats`. Whether its rows fit
the request to the model is asked at the start for the configured format, and for each object when
its format is known; if not, the message says which request or setting would.
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
    """For a format that is plain whatever is asked of it."""
    return True


def never(_: object) -> bool:
    """For a format that is recognised by its name alone, or that is never plain."""
    return False


@dataclass(frozen=True, slots=True)
class Format:
    """A format is read either as a stream, by the parser that `open` returns (None: it cannot make
    these rows), or by ranges, by `ranged`.
    `extensions` in lower case, with the dot. `looks` is shown at most the first 512 bytes.
    `is_plain`: are these rows read by linear code, with no unpacking? Then the worker decodes small
    objects.
    `is_text`: UTF-8, so that a byte order mark is taken off and UTF-16 refused.
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
        """Can it make the rows that the request takes?"""
        return options.form in self.makes(options)

    def misfit(self, options: RowOptions) -> str | None:
        """Why not, in words, with the setting that mends it; None: it can."""
        if self.fits(options):
            return None
        made = " or ".join(_KINDS[form] for form in self.makes(options))
        # The format gives numbers only with the setting of a size.
        needs_size = options.form == "matrix" and self.makes is image.makes_pixels
        size = "rows.image_size, as 224x224, for rows of pixels, or " if needs_size else ""
        return (
            f"rows of {self.name} are {made}, but model.request takes {_KINDS[options.form]}; set "
            f"{size}model.request to what fits"
        )

    def check_fits(self, options: RowOptions) -> None:
        """Raises `Poison` for an object whose rows the model cannot take."""
        why = self.misfit(options)
        if why is not None:
            raise Poison("bad_format", why)


class WantsRanges(PenstockError):
    """The first bytes of an object tell that it cannot be read as a stream."""

    def __init__(self, format: Format) -> None:
        super().__init__(format.name)
        self.format = format


def makes(*forms: Form) -> Callable[[RowOptions], Collection[Form]]:
    """The same forms for all options."""
    return lambda _options: forms
