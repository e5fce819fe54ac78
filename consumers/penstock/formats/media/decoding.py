"""What the decoding of recordings and of videos has in common: it checks that the libraries are
installed, and gathers rows to runs.

Rule: the libraries are an extra. They are loaded when an object needs them, and only in a decoder,
which may crash. The rows come one by one, and are gathered to runs. A run is handed on when it has
`RUN_BYTES`. Unwanted rows are counted, not made. Owner: one reading of one object.
"""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Final, Literal

import numpy as np

from penstock.core.rows.payload import BytesRows, Form, Matrix, Payload
from penstock.errors import Poison
from penstock.formats.base.runs import RowOptions, Run, too_long
from penstock.formats.base.source import Read, Source, Wanted
from penstock.packages import missing_extra

Kind = Literal["audio", "video"]

_LIBRARIES: Final[dict[Kind, tuple[str, ...]]] = {
    "audio": ("soundfile",),
    "video": ("av", "PIL"),
}

# Runs of this size are so few that the cost of a run itself does not matter.
RUN_BYTES: Final = 256 << 10
# A run stands for at most this many unwanted rows.
SKIPPED_ROWS: Final = 1_000


def need_media(format: str, form: Form) -> None:
    """Raises `Fatal` if the format needs the extra `media` for rows of this form, and the extra is
    not installed.
    """
    is_decoded = format == "video" or (format == "audio" and form != "bytes")
    if is_decoded and _is_missing(format):
        raise missing_extra(format, "media")


def _is_missing(kind: str) -> bool:
    return not all(find_spec(name) for name in _LIBRARIES["audio" if kind == "audio" else "video"])


def reader(kind: Kind, decode: "Decode") -> Read:
    """Returns a function that reads objects of this kind. `decode`: a function that decodes an
    object and adds its rows to a `Gathered`.
    """

    def read(source: Source, options: RowOptions, wanted: Wanted) -> Iterator[Run]:
        if _is_missing(kind):
            raise Poison("bad_format", str(missing_extra(kind, "media")))
        gathered = Gathered(options, wanted)
        try:
            yield from decode(source, options, gathered)
        except Poison:
            yield from gathered.rest()
            raise

    return read


class Gathered:
    """Takes each row by `add`, and returns the runs that are complete."""

    def __init__(self, options: RowOptions, wanted: Wanted) -> None:
        self._options = options
        self._wanted = wanted
        self._row = self._skipped = 0
        self._rows: list[Payload] = []
        self._times: list[int] = []
        self._nbytes = 0

    def add(self, make: Callable[[], Payload], time_ms: int) -> Iterator[Run]:
        """`make`: a function that makes the next row; it is called only if this row is wanted.
        `time_ms`: the time from the first row to this one.
        """
        self._row += 1
        if not self._wanted(self._row - 1, self._row):
            if self._rows or self._skipped == SKIPPED_ROWS:
                yield from self.rest()
            self._skipped += 1
            return
        if self._skipped:
            yield from self.rest()
        row = make()
        nbytes = len(row.row(0)) if isinstance(row, BytesRows) else row.nbytes
        if nbytes > self._options.row_bytes:
            said = too_long(self._options.row_bytes)
            raise Poison("too_large", f"{said}; set rows.image_size, or a higher limit")
        self._rows.append(row)
        self._times.append(time_ms)
        self._nbytes += row.nbytes
        if self._nbytes >= RUN_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[Run]:
        """The runs of the rows that are still held."""
        if self._skipped:
            skipped, self._skipped = self._skipped, 0
            yield Run(skipped, None)
        if self._rows:
            rows, times = self._rows, np.array(self._times, np.int64)
            self._rows, self._times, self._nbytes = [], [], 0
            yield Run(len(rows), _joined(rows), since_ms=times)


Decode = Callable[[Source, RowOptions, Gathered], Iterator[Run]]


def _joined(rows: list[Payload]) -> Payload:
    """Join rows of one kind and width. Before the user of a `Gathered` adds rows of another width,
    it calls `rest`.
    """
    matrices = [row for row in rows if isinstance(row, Matrix)]
    if matrices:
        return Matrix(np.concatenate([row.values for row in matrices]))
    return BytesRows.of([bytes(row.row(0)) for row in rows if isinstance(row, BytesRows)])
