"""The push parser of CSV (RFC 4180). It finds the dialect, the header and the columns; after that,
`CsvRows` reads the rows.

Rule: nothing is read before the first row is complete, because it tells the dialect. If it has no
number, the second row may be needed to tell whether the first is a header; until then, it waits.
The header or, if there is none, the first row fixes how many cells a row has.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from penstock.errors import Poison
from penstock.formats.base.parser_chain import Parser
from penstock.formats.base.runs import BadRow, RowOptions, Run, bad_row, shown, too_long
from penstock.formats.csv.dialect import COMMON, CsvOptions, Dialect, is_header
from penstock.formats.csv.finder import Finder, is_common
from penstock.formats.csv.grammar import TooManyCells
from penstock.formats.csv.row_reader import CsvRows
from penstock.formats.magic import named_by_magic
from penstock.formats.text.lines import RawRows, join_blocks, split_first

LONE_LINE: Final = (
    "the only line of a CSV is taken for a header, since it has no number; if it is a row, set "
    'rows.header = "no"'
)
OLD_MAC: Final = (
    "the lines of the CSV end with carriage returns alone; write it with newlines (a spreadsheet's "
    '"CSV", not its "CSV (Macintosh)")'
)
# The sign is an integer and not bytes, because at each `b"\r" in row` Python would internally raise
# an exception and drop it.
_RETURN: Final = ord(b"\r")
_QUOTED: Final = re.compile(rb'"[^"]*+"')
# Bytes that binary files have and text files do not have: NUL to BS, vertical feeds, SO to US, DEL.
_BINARY: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class CsvParser(Parser):
    def __init__(self, options: RowOptions) -> None:
        self._options = options
        self._own = options.of(CsvOptions)
        self._dialect = COMMON
        self._splitter = COMMON.splitter(options.row_bytes)
        self._finder: Finder | None = None
        self._is_settled = False  # the dialect will not change any more
        self._waiting: RawRows = b""  # a first row that may be a header or not
        self._rows: CsvRows | None = None  # made when the columns are known

    def feed(self, data: bytes) -> Iterator[Run]:
        data = self._translated(data, is_all=False)
        return self._read(self._splitter.feed(data))

    def whole(self, data: bytes) -> Iterator[Run]:
        data = self._translated(data, is_all=True)
        return self._read(self._splitter.whole(data))

    def close(self) -> Iterator[Run]:
        if not self._is_settled:
            data = self._translated(b"", is_all=True)
            yield from self._read(self._splitter.feed(data))
        yield from self._read(self._splitter.close())
        if self._waiting and self._rows is None:
            first, _ = split_first(self._waiting)
            check_text(self._dialect, self._dialect.cells(first, self._options.max_columns))
            self._options.notices.once(LONE_LINE)

    def _translated(self, data: bytes, *, is_all: bool) -> bytes:
        """The text with commas, points and double quotes; empty as long as the file's dialect is
        unknown.
        """
        if not self._is_settled:
            if self._finder is None and is_common(self._own, data, is_all=is_all):
                self._is_settled = True
                return data
            finder = self._finder = self._finder or Finder(self._own)
            data = finder.take(data, is_all=is_all)
            self._is_settled = finder.is_done
            if finder.dialect not in (None, self._dialect):
                self._set(finder.dialect)
        return self._dialect.read(data)

    def _set(self, dialect: Dialect) -> None:
        """Read on in this dialect. So far, only complete lines were read, which are the same in all
        dialects with this separator.
        """
        self._dialect = dialect
        self._splitter = dialect.splitter(self._options.row_bytes)
        if self._rows is not None:
            self._rows.dialect = dialect

    def _read(self, blocks: Iterable[RawRows | None]) -> Iterator[Run]:
        for block in blocks:
            if block is None:
                yield self._too_long()
                continue
            rows = block
            if self._dialect.comments is not None:
                rows = without(self._dialect.comments, block)
            if rows and self._rows is None:
                rows = self._begin(join_blocks(self._waiting, rows))
            if rows and self._rows is not None:
                yield from self._rows.read(rows)

    def _too_long(self) -> Run:
        message = too_long(self._options.row_bytes)
        if self._rows is None:
            raise Poison("too_large", f"the first {message}: is this CSV?")
        return bad_row(message)

    def _begin(self, block: RawRows) -> RawRows:
        """Find the header and the columns by the first rows. Returns the rows that are data. If the
        second row is needed to decide but has not come yet, there are none.
        """
        first, rest = split_first(block)
        if _RETURN in first and is_old_mac(first):
            raise Poison("bad_format", OLD_MAC)
        try:
            cells = self._dialect.cells(first, self._options.max_columns)
            header = is_header(cells, rest, self._options, self._dialect)
        except TooManyCells as bad:
            raise Poison("too_large", f"the first {bad}") from None
        except BadRow as bad:
            raise Poison("bad_format", f"the CSV has no first row: {bad}") from None
        if header is None:
            self._waiting = block
            return b""
        if header:
            check_text(self._dialect, cells)
        self._rows = CsvRows(self._options, self._dialect, cells if header else [], len(cells))
        return rest if header else block


def check_text(dialect: Dialect, names: Sequence[bytes]) -> None:
    """Raises `Poison` if the header is binary data, or has two equal names. Without this check,
    binary data could pass for a header without rows.
    """
    header = dialect.back(b" ".join(names))
    if _BINARY.search(header):
        unknown = f'binary data begins with "{shown(header)}": is this CSV?'
        raise Poison("bad_format", named_by_magic(header) or unknown)
    stripped = list(map(bytes.strip, names))
    if len(set(stripped)) < len(stripped):
        for name, times in Counter(stripped).items():
            if times > 1 and name:  # columns without names may be many
                text = shown(dialect.back(name))
                raise Poison("bad_format", f'two columns of the CSV have the name "{text}"')


def is_old_mac(row: bytes) -> bool:
    """True if the row has line ends of old Macs (lone carriage returns) outside quotes."""
    return b"\r" in _QUOTED.sub(b"", row).rstrip(b"\r")


def without(comments: re.Pattern[bytes], block: RawRows) -> RawRows:
    """The rows of the block without the comments."""
    if isinstance(block, bytes):
        return comments.sub(b"", block)
    return [row for row in block if not comments.match(row + b"\n")]
