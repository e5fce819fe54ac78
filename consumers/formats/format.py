"""What a format says of itself: its names, how it is recognised, its rows, and its reader.

Rule: everything that the registry, the sniffing and the checks at the start know of a format
stands in its `Format`; nothing else of ours knows it by name. A user's package has one behind an
entry point `penstock.formats`.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from consumers.core.payload import Form
from consumers.errors import PenstockError
from consumers.formats.base import RowOptions
from consumers.formats.push import Parser
from consumers.formats.source import Read


def never(_head: bytes) -> bool:
    """Known by its name alone."""
    return False


@dataclass(frozen=True, slots=True)
class Format:
    """Read either as a stream, by what `open` returns (None: not these rows), or here and there, by
    `ranged`.
    `extensions` in lower case, with the dot. `looks` is shown at most the first 512 bytes.
    `is_streamed`: `ranged` asks for `chunks`: the object is fetched from its first byte on.
    `is_plain`: linear code in which nothing unfolds: small ones are decoded in the worker.
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
    """Whatever the options."""
    return lambda _options: forms
