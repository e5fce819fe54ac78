"""What every reading of an object does with its runs, in the worker and in a decoder.

Rule: an object ends at its first bad row, if bad rows end it, and at the limit of rows. An
unforeseen exception becomes the object's `Poison`, also if memory runs out: one of 900 bytes asked
for 8 GB. Neighbouring rows that are bad for the same reason are one run. Owner: one reading of one
object.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from penstock.core.rows.costs import ROW_COST_BYTES
from penstock.errors import PenstockError, Poison, Unforeseen
from penstock.formats.base.runs import RowOptions, Run

# So many rows that were read one by one are handed on before others are read.
PIECE_ROWS: Final = 128


class Judge:
    """Lets the runs of one object pass that may be handed on."""

    def __init__(self, options: RowOptions) -> None:
        self._options = options
        self._rows = 0

    def passing(self, runs: Iterable[Run]) -> Iterator[Run]:
        """The next runs. Raises `Poison` where the object ends."""
        try:
            for run in runs:
                if run.error is not None and self._options.fail_on_bad_row:
                    raise Poison("bad_row", self._described(run))
                left = self._options.rows - self._rows
                if run.rows > left:
                    # However the rows lie in runs, those below the limit are answered.
                    if left:
                        yield _first(run, left)
                    said = f"it has more than {self._options.rows} rows (limits.rows)"
                    raise Poison("too_large", said)
                self._rows += run.rows
                yield run
        except PenstockError:
            raise
        except Exception as error:
            raise Unforeseen.of("bad_format", error) from error

    def _described(self, run: Run) -> str:
        where = f' of member "{run.member}"' if run.member is not None else ""
        return f"row {self._rows}{where}: {run.error} (rows.on_bad_row is fail_object)"


def _first(run: Run, rows: int) -> Run:
    return run._replace(
        rows=rows,
        payload=None if run.payload is None else run.payload.cut(0, rows),
        kept=None if run.kept is None else run.kept.cut(0, rows),
        since_ms=None if run.since_ms is None else run.since_ms[:rows],
    )


def add(piece: list[Run], run: Run) -> None:
    """Append the run, or join it to the one before."""
    before = piece[-1] if piece and run.error is not None else None
    if before is not None and (before.error, before.member) == (run.error, run.member):
        piece[-1] = before._replace(rows=before.rows + run.rows)
    else:
        piece.append(run)


def cost_of(run: Run) -> int:
    """The bytes of its rows as the byte budget counts them; what bad rows cost is not in it."""
    if run.payload is None:
        return 0
    kept_bytes = run.kept.nbytes if run.kept is not None else 0
    return run.payload.nbytes + run.rows * ROW_COST_BYTES + kept_bytes
