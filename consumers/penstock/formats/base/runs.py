"""What objects become: runs of rows; and the options that decide how.

Rule: one bad row is a run of its own, with its reason. Owner: one reading of one object.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from penstock.core.rows.kept import Kept
from penstock.core.rows.payload import Form, Payload

log = logging.getLogger(__name__)

Own = TypeVar("Own")


class Run(NamedTuple):
    """Consecutive rows of one member, with a `payload`, or an `error` if they cannot be read, or
    neither if they are unwanted. `kept`: the kept values of good rows. `since_ms`: their times, in
    milliseconds after the reference's.
    """

    rows: int
    payload: Payload | None
    error: str | None = None
    member: str | None = None
    kept: Kept | None = None
    since_ms: npt.NDArray[np.int64] | None = None


# Options that only decide where reading stops (at a bad row, at a limit): with other values the
# rows before that place have the same numbers.
_LIMITS = frozenset(
    {"fail_on_bad_row", "rows", "expansion_ratio", "expanded_bytes", "members", "member_bytes"}
)


def _warn(text: str) -> None:
    log.warning("%s", text)


class Notices:
    """Choices of decoders that a person may want to change: each is said once, not per object."""

    def __init__(self, say: Callable[[str], object] = _warn) -> None:
        self._say = say
        self._said: set[str] = set()

    def once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)


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
        """Columns that the model gets only if `columns` names them."""
        return frozenset(self.keep) | ({self.time} if self.time is not None else set())

    @property
    def as_numbers(self) -> bool:
        """Are rows of text to be read as numbers?"""
        return self.form in ("matrix", "columns")

    @cached_property
    def rules(self) -> str:
        """A text that differs for options under which an object has other rows, or other bad ones.
        Every option is part of it except those named in `_LIMITS`.
        """
        named = [one.name for one in fields(self) if one.compare and one.name not in _LIMITS]
        return repr([(name, getattr(self, name)) for name in named])
