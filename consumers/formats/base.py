"""What every decoder is: a push parser from bytes to runs of rows, in bounded memory.

Rule: a decoder never does I/O, never waits, and holds at most its current chunk and one unfinished
row. It raises `Poison` only when the rest of the object cannot be read; one bad row is a run of its
own with its reason.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from consumers.core.kept import Kept
from consumers.core.payload import Form, Payload

log = logging.getLogger(__name__)

Own = TypeVar("Own")


class Run(NamedTuple):
    """Consecutive rows of one member. Either `payload`, or `error`: why they cannot be read;
    neither for rows that were not read because nobody wants them. `kept` stays with good rows;
    `since_ms` is their time in milliseconds after the reference's, which becomes their own.
    """

    rows: int
    payload: Payload | None
    error: str | None = None
    member: str | None = None
    kept: Kept | None = None
    since_ms: npt.NDArray[np.int64] | None = None


class Decoder(Protocol):
    """Fed from one task, in order. After `close` or an error it is not used again."""

    @property
    def pending(self) -> bool:
        """Are there more rows than the last `feed` returned? Then feed nothing, for those."""
        ...

    def feed(self, data: bytes) -> list[Run]:
        """Take the next bytes (any length, cut anywhere); return the rows now complete, or, of very
        many, the next ones.
        """
        ...

    def whole(self, data: bytes) -> list[Run]:
        """Take all bytes of a small object in the place of `feed`; `close` follows as ever."""
        ...

    def close(self) -> list[Run]:
        """No more bytes: return what is left; called again until that is nothing. Raises `Poison`
        if the data stops too early.
        """
        ...


# Whether a bad row ends its object, and how much is too much: under other values of these, reading
# stops elsewhere, but the rows before have the same numbers.
_LIMITS = frozenset(
    {"fail_on_bad_row", "rows", "expansion_ratio", "expanded_bytes", "members", "member_bytes"}
)


class Notices:
    """What decoders decided and a person may want otherwise: each said once, not per object."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            log.warning("%s", text)


@dataclass(frozen=True)
class RowOptions:
    """How bytes become rows; from the `rows` and `limits` sections of the configuration. `missing`
    is the number for an empty cell; None: such a row is bad. `own`: what only one kind of format
    asks for, each a frozen value that stands in the file of that format.
    """

    form: Form = "matrix"
    format: str = "auto"
    columns: Sequence[str | int] | None = None
    keep: Sequence[str] = ()
    time: str | None = None
    missing: float | None = None
    member: str | None = None
    fail_on_bad_row: bool = False
    row_bytes: int = 6_000_000
    max_columns: int = 250_000
    rows: int = 100_000_000
    expansion_ratio: int = 200
    expanded_bytes: int | None = None
    members: int = 100_000
    member_bytes: int | None = None
    own: tuple[object, ...] = ()
    notices: Notices = field(default_factory=Notices, compare=False)

    def of(self, kind: type[Own]) -> Own:
        """The format's own options, as they were given or else by default."""
        for one in self.own:
            if isinstance(one, kind):
                return one
        return kind()

    @cached_property
    def stays(self) -> frozenset[str]:
        """Columns that are not given to the model unless `columns` names them."""
        return frozenset(self.keep) | ({self.time} if self.time is not None else set())

    @property
    def as_numbers(self) -> bool:
        """Are rows of text to be read as numbers?"""
        return self.form in ("matrix", "columns")

    @cached_property
    def rules(self) -> str:
        """What tells options apart under which an object has other rows, or others of them are
        bad. An option that is added belongs to it unless it is named in `_LIMITS`.
        """
        named = [one.name for one in fields(self) if one.compare and one.name not in _LIMITS]
        return repr([(name, getattr(self, name)) for name in named])
