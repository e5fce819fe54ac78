"""NDJSON: one JSON element per line, each a row. Blank lines are passed over.

Rule: a line that is not JSON is one bad row; the lines after it are read.
"""

from collections.abc import Iterable, Iterator

from consumers.errors import ErrorCode
from consumers.formats.base import RowOptions, Run
from consumers.formats.json_rows import JsonRowReader
from consumers.formats.lines import RawRows, RowSplitter
from consumers.formats.push import PLAIN_STEP_BYTES
from consumers.formats.rows import BadRow, bad_row, too_long


class NdjsonParser:
    """Push parser of one file."""

    step_bytes = PLAIN_STEP_BYTES
    damage: ErrorCode = "bad_format"

    def __init__(self, options: RowOptions) -> None:
        self._too_long = too_long(options.row_bytes)
        self._splitter = RowSplitter(options.row_bytes, quotes=False)
        self._reader = JsonRowReader(options, broken=BadRow)

    def feed(self, data: bytes) -> Iterator[Run]:
        return self._read(self._splitter.feed(data))

    def whole(self, data: bytes) -> Iterator[Run]:
        return self._read(self._splitter.whole(data))

    def close(self) -> Iterator[Run]:
        return self._read(self._splitter.close())

    def _read(self, blocks: Iterable[RawRows | None]) -> Iterator[Run]:
        for block in blocks:
            if block is None:
                yield bad_row(self._too_long)
            else:
                yield from self._reader.read(block)
