"""The description of a format: its names, how it is recognised, its rows, and its reader.

Rule: the registry, the sniffing and the checks at the start know a format only by its `Format`, not
by its name. A user's package gives one by an entry point `penstock.formats`.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from penstock.core.rows.payload import Form
from penstock.errors import PenstockError
from penstock.formats.base.parser_chain import Parser
from penstock.formats.base.runs import RowOptions
from penstock.formats.base.source import Read


def never(_head: bytes) -> bool:
    """For a format that is recognised by its name alone."""
    return False


@dataclass(frozen=True, slots=True)
class Format:
    """A format is read either as a stream, by the parser that `open` returns (None: it cannot make
    these rows), or by ranges, by `ranged`.
    `extensions` in lower case, with the dot. `looks` is shown at most the first 512 bytes.
    `is_streamed`: `ranged` asks for `chunks`: the object is fetched from its first byte on.
    `is_plain`: read by linear code, with no unpacking: small objects are decoded in the worker.
    `is_text`: UTF-8, so that a byte order mark is taken off and UTF-16 refused.
    """

    name: str
    makes: Callable[[RowOptions], Collection[Form]]
    open: Callable[[RowOptions], Parser | None] | None = None
    ranged: Read | None = None
    extensions: tuple[str, ...] = ()
    looks: Callable[[bytes], bool] = never
    is_streamed: bool = False
    is_plain: bool = False
    is_text: bool = False

    def fits(self, options: RowOptions) -> bool:
        """Can it make the rows that the request takes?"""
        return options.form in self.makes(options)


class WantsRanges(PenstockError):
    """The first bytes of an object tell that it cannot be read as a stream."""

    def __init__(self, format: Format) -> None:
        super().__init__(format.name)
        self.format = format


def makes(*forms: Form) -> Callable[[RowOptions], Collection[Form]]:
    """The same forms for all options."""
    return lambda _options: forms
