"""A whole object, or a whole member of an archive, as one row: its bytes as they are.

Rule: an object above `limits.row_bytes` is one bad row, and is not held. An empty member of an
archive is a bad row, because a frame is missing in the archive. An empty object has no row, as in
every format.
"""

from collections.abc import Callable, Iterator

from penstock.core.rows.payload import BytesRows, Payload
from penstock.formats.base.parser_chain import Parser
from penstock.formats.base.runs import BadRow, RowOptions, Run, bad_row, too_long

# A function that makes the row from all bytes. It raises `BadRow`.
MakeRow = Callable[[bytes], Payload]


class OneRowParser(Parser):
    """Push parser of an object from whose bytes `make` makes the one row."""

    def __init__(self, options: RowOptions, make: MakeRow) -> None:
        self._limit_bytes = options.row_bytes
        self._make = make
        self._parts: list[bytes] = []
        self._nbytes = 0

    def feed(self, data: bytes) -> Iterator[Run]:
        self._nbytes += len(data)
        if self._nbytes > self._limit_bytes:
            self._parts.clear()
        else:
            self._parts.append(data)
        return iter(())

    def close(self) -> Iterator[Run]:
        if self._nbytes > self._limit_bytes:
            yield bad_row(too_long(self._limit_bytes))
            return
        if not self._nbytes:
            yield bad_row("the file is empty")
            return
        try:
            row = self._make(b"".join(self._parts))
        except BadRow as bad:
            yield bad_row(str(bad))
            return
        self._parts.clear()
        yield Run(1, row)


def opaque(data: bytes) -> BytesRows:
    return BytesRows.of([data])


class UnreadParser(Parser):
    """For a member of an archive that cannot be read: passes over its bytes, and gives one bad row
    that says why. The other members are read.
    """

    def __init__(self, why: str) -> None:
        self._why = why

    def feed(self, data: bytes) -> Iterator[Run]:
        return iter(())

    def close(self) -> Iterator[Run]:
        yield bad_row(self._why)


def open_bytes(options: RowOptions) -> OneRowParser:
    return OneRowParser(options, opaque)
