"""The runs into which the rows of an object are gathered, and the options that decide which rows it
has.

Rule: a bad row is a run of its own, with the reason; neighbours that are bad for the same reason
are one run.
"""

import logging
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from penstock.core.rows.payload import BLOCK_COST_BYTES, ROW_COST_BYTES, Form, Kept, Payload
from penstock.errors import Poison

log = logging.getLogger(__name__)

# A decoder gathers runs to pieces of this size, because to hand over a piece costs a tenth of a
# millisecond. Some Arrow batches already have this size.
PIECE_BYTES: Final = 2 << 20
# A decoder hands on its rows after this many bad rows, because bad rows are read one by one. The
# worker hands on its rows after this many rows of any kind, because any rows may be read one by
# one; and others have a turn when it has taken so many runs from a decoder, which takes 5 ms.
PIECE_ROWS: Final = 128

Own = TypeVar("Own")
Item = TypeVar("Item", bound=Sized)

# A run holds at most this many rows that were read one by one. Reading them takes 1 to 3 ms; then
# other objects may have a turn.
MOST_EXACT_ROWS = 512

# An object may always have this many rows, whatever its size.
FREE_ROWS: Final = 1 << 20
FREE_BYTES: Final = FREE_ROWS * ROW_COST_BYTES

# A film whose frames have so many bytes is honest. Of a black one of 64 x 64 ffmpeg makes 14.4 with
# x264 without B frames and later key frames, 18 to 30 with other encoders or as they are set.
FRAME_BYTES: Final = 14
# What a frame of a film counts at least, and so any row of the largest size.
LEAST_FRAME_WEIGHT: Final = FRAME_BYTES * ROW_COST_BYTES

# Notices are about kinds of members, too, and strangers name these.
_MOST_NOTICES: Final = 1_000
_SHOWN_BYTES = 40  # an error message shows this much of a bad cell or value


class Run(NamedTuple):
    """Consecutive rows of one member, all of one kind. Good rows have a `payload`; rows that cannot
    be read have an `error`; unwanted rows have neither. `kept`: the kept values of good rows.
    `since_ms`: the times of good rows, in milliseconds after the time of the reference. `weight`:
    as how many bytes each row counts where the rows of an object are compared with its size.
    """

    rows: int
    payload: Payload | None
    error: str | None = None
    member: str | None = None
    kept: Kept | None = None
    since_ms: npt.NDArray[np.int64] | None = None
    weight: int = ROW_COST_BYTES


# Options that only decide where the reading stops: at a bad row, or at a limit. They change neither
# the rows before that place nor the numbers of these rows.
_LIMITS = frozenset(
    {"fail_on_bad_row", "rows", "expansion_ratio", "expanded_bytes", "members", "member_bytes"}
)


def _warn(text: str) -> None:
    log.warning("%s", text)


class Notices:
    """Texts for people about choices that a decoder has made and that a setting could change. Each
    text is said only once, and not for each object.
    """

    def __init__(self, say: Callable[[str], object] = _warn) -> None:
        self._say = say
        self._noticed: set[str] = set()

    def once(self, text: str, *, about: str = "") -> None:
        """`about`: of all texts about the same thing, only the first is said; by default, of all
        texts that are equal.
        """
        about = about or text
        if about not in self._noticed and len(self._noticed) < _MOST_NOTICES:
            self._noticed.add(about)
            self._say(text)

    def __reduce__(self) -> tuple[type["Notices"], tuple[()]]:
        """What was said stays here: a decoder must not know of other objects."""
        return Notices, ()


class Plain(Protocol):
    """A `Format`, of which only this is asked here."""

    @property
    def name(self) -> str: ...

    @property
    def is_plain(self) -> Callable[["RowOptions"], bool]: ...


@dataclass(frozen=True)
class RowOptions:
    """How bytes become rows, from the sections `rows` and `limits` of the configuration. `missing`:
    the number that stands for an empty cell; None: a row with an empty cell is bad. `own`: the
    options that only one format has; each is a frozen value, whose class is in the file of its
    format.
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
        """The options of this class, as they were given; if none were given, its defaults."""
        # Defaults are made once, because to make a frozen value takes 0.5 us.
        options: Own = self._by_kind.get(kind) or self._by_kind.setdefault(kind, kind())
        return options

    @cached_property
    def _by_kind(self) -> dict[type, Any]:
        return {type(options): options for options in self.own}

    def __getstate__(self) -> dict[str, Any]:
        """A decoder must not know which formats other objects had."""
        return {name: value for name, value in vars(self).items() if name != "fitting"}

    @cached_property
    def fitting(self) -> dict[str, bool]:
        """Formats whose rows are known to fit these options: by name, whether each is plain."""
        return {}

    def has_plain(self, format: "Plain") -> bool:
        """Are rows of this format plain with these options? It is decided once for all objects."""
        is_plain = self.fitting.get(format.name)
        return format.is_plain(self) if is_plain is None else is_plain

    @cached_property
    def stays(self) -> frozenset[str]:
        """The columns that stay with the row. The model gets such a column only if `columns` names
        it, too.
        """
        return frozenset(self.keep) | ({self.time} if self.time is not None else set())

    @property
    def as_numbers(self) -> bool:
        """True if rows of text are to be read as numbers."""
        return self.form in ("matrix", "columns")

    @cached_property
    def rules(self) -> str:
        """All options except those of `_LIMITS`, as one text. If the texts of two `RowOptions` are
        equal, both make the same good and bad rows of an object.
        """
        named = [
            option.name for option in fields(self) if option.compare and option.name not in _LIMITS
        ]
        return repr([(name, getattr(self, name)) for name in named])


class BadRow(ValueError):
    """Raised if one row cannot be read; the message says why."""


def read_rows(
    rows: Sequence[bytes],
    read: Callable[[bytes], Item],
    join: Callable[[list[Item]], Payload],
    most_rows: int = MOST_EXACT_ROWS,
) -> Iterator[Run]:
    """Read row by row. Consecutive good rows are one run, of at most `most_rows`, which ends once
    it has `PIECE_BYTES` (or as many numbers). A row for which `read` raises `BadRow` is a run of
    its own. If `read` raises `Poison`, the rows before are given first, and then `Poison` is
    raised.
    """
    good: list[Item] = []
    length = 0
    for row in rows:
        try:
            item = read(row)
            good.append(item)
            length += len(item)
            if len(good) == most_rows or length >= PIECE_BYTES:
                yield Run(len(good), join(good))
                good, length = [], 0
            continue
        except (BadRow, Poison) as found:
            error = found
        if good:
            yield Run(len(good), join(good))
            good, length = [], 0
        if isinstance(error, Poison):
            raise error
        yield bad_row(str(error))
    if good:
        yield Run(len(good), join(good))


def bad_row(error: str) -> Run:
    return Run(rows=1, payload=None, error=error)


def too_long(limit_bytes: int) -> str:
    return f"row is longer than {limit_bytes} bytes (limits.row_bytes)"


def shown(text: bytes) -> str:
    """The beginning of a bad cell or value, for an error message."""
    return text[:_SHOWN_BYTES].decode(errors="replace") + ("…" if len(text) > _SHOWN_BYTES else "")


def most_weight(stored_bytes: int, options: RowOptions) -> int:
    """As how many bytes the rows of an object of this size may count. A row causes a record,
    however small the row is, so each row counts as a record at least. If each row has a byte of its
    own, as in a `.npy` of labels, nothing expands.
    """
    return max(FREE_BYTES, stored_bytes * max(options.expansion_ratio, ROW_COST_BYTES))


def most_rows(stored_bytes: int, options: RowOptions) -> int:
    """How many rows an object of this size may have, if they are small."""
    return most_weight(stored_bytes, options) // ROW_COST_BYTES


def check_rows(
    rows: int, stored_bytes: int, options: RowOptions, weight: int = ROW_COST_BYTES
) -> None:
    """Raises `Poison` if an object of this size may not have so many rows of this weight."""
    if rows * weight > most_weight(stored_bytes, options):
        raise too_many(stored_bytes, options, weight)


def too_many(stored_bytes: int, options: RowOptions, weight: int) -> Poison:
    return Poison(
        "too_large",
        f"{stored_bytes} bytes become rows of more than {most_weight(stored_bytes, options)} bytes "
        f"in sum, as each row counts as {weight} bytes. Set limits.expansion_ratio above "
        f"{max(options.expansion_ratio, ROW_COST_BYTES)} if they are right",
    )


def cost_of(run: Run) -> int:
    """The bytes of the run's good rows, as the byte budget counts them. Bad rows cost nothing."""
    return nbytes_of(run) + run.rows * ROW_COST_BYTES if run.payload is not None else 0


def nbytes_of(run: Run) -> int:
    """The bytes of the run's values."""
    kept_bytes = run.kept.nbytes if run.kept is not None else 0
    return kept_bytes + (run.payload.nbytes if run.payload is not None else 0)


def add(piece: list[Run], run: Run) -> None:
    """Append the run to the piece. If this run and the piece's last run are bad for the same
    reason, make them one run.
    """
    before = piece[-1] if piece and run.error is not None else None
    if before is not None and (before.error, before.member) == (run.error, run.member):
        piece[-1] = before._replace(rows=before.rows + run.rows)
    else:
        piece.append(run)


class Pieces:
    """Gathers runs to pieces, and hands each piece on by the function `give`, so that the byte
    budget is asked only once for each piece. The owner of the `Pieces` calls `flush` before it
    waits for more bytes, so that complete rows do not wait.
    """

    def __init__(self, give: Callable[[list[Run]], object]) -> None:
        self._give = give
        self._runs: list[Run] = []
        self._nbytes = self._bad_rows = 0

    def take(self, runs: Iterator[Run]) -> list[Run]:
        """Take all runs. Returns the last ones, which are not handed on. If an error ends the runs,
        those before it are handed on.
        """
        try:
            for run in runs:
                self.add(run)
        except BaseException:
            self.flush()
            raise
        return self._runs

    def add(self, run: Run) -> None:
        add(self._runs, run)
        self._bad_rows += run.rows if run.error is not None else 0
        self._nbytes += cost_of(run) + len(run.member or "") + len(run.error or "")
        nbytes = self._nbytes + len(self._runs) * BLOCK_COST_BYTES
        if nbytes > PIECE_BYTES or self._bad_rows >= PIECE_ROWS:
            self.flush()

    def flush(self) -> None:
        if self._runs:
            runs, self._runs = self._runs, []
            self._nbytes = self._bad_rows = 0
            self._give(runs)
