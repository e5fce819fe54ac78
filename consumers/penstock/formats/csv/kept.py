"""The cells of a CSV that stay with their row: `rows.keep` and `rows.time`.

Rule: as in `kept_columns`, a cell that cannot be kept is null and makes no row bad. Owner: the CSV
parser, which makes it once the header says where the columns are.
"""

from collections.abc import Callable, Mapping
from json.encoder import encode_basestring as json_string

from penstock.core.rows.kept import Kept
from penstock.formats.base.kept_columns import moment_ms
from penstock.formats.csv.cells import OutOfRange, split_cells


class CsvKept:
    """Called with good rows."""

    def __init__(
        self,
        kept: Mapping[str, int],
        time: int | None,
        max_columns: int,
        json_cell: Callable[[bytes], bytes],
        original: Callable[[bytes], bytes],
    ) -> None:
        """`original` gives a cell as it stands in the file."""
        self._kept = [(json_string(name).encode(), at) for name, at in kept.items()]
        self._time = time
        self._max_columns = max_columns
        self._json_cell = json_cell
        self._original = original

    def __call__(self, rows: list[bytes]) -> Kept:
        found = [split_cells(row, self._max_columns) for row in rows]
        at = self._time
        times = None if at is None else [moment_ms(self._text(cells[at])) for cells in found]
        return Kept.of([self._object(cells) for cells in found] if self._kept else None, times)

    def _object(self, cells: list[bytes]) -> bytes:
        return b"{%b}" % b",".join(
            b"%b:%b" % (key, self._cell(cells[at])) for key, at in self._kept
        )

    def _cell(self, cell: bytes) -> bytes:
        try:
            return self._json_cell(cell)
        except (OutOfRange, UnicodeDecodeError):
            return b"null"

    def _text(self, cell: bytes) -> str:
        return self._original(cell).decode(errors="replace")
