"""Rows of text to runs: many at once if that is exact, else one by one.

Rule: a bad row slows down only its neighbours, and is one run with its reason.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

import numpy as np

from penstock.core.rows.payload import Matrix, Payload
from penstock.errors import Poison
from penstock.formats.base.parser_chain import Parser
from penstock.formats.base.runs import RowOptions, Run
from penstock.formats.csv.numbers import to_float32
from penstock.formats.text.lines import RawRows, RowSplitter, count_rows, halves, rows_of

T = TypeVar("T")

# Fewer rows than this are read one by one: a call of pyarrow costs 220 us, a row read alone 2-4 us.
EXACT_ROWS = 64
# So many rows that are read one by one are a run: 1 to 3 ms, after which others may have a turn.
MOST_EXACT_ROWS = 512

_SHOWN_BYTES = 40  # of a bad cell or value in an error message


class BadRow(ValueError):
    """One row cannot be read; the message says why."""


class LinesParser(Parser):
    """Push parser of a file whose rows are lines; `read` makes runs of a block of them."""

    def __init__(
        self,
        options: RowOptions,
        read: Callable[[RawRows], Iterable[Run]],
        *,
        blanks: bool = False,
    ) -> None:
        """`blanks`: is a line of blanks only a row?"""
        self._limit_bytes = options.row_bytes
        self._splitter = RowSplitter(options.row_bytes, quotes=False, blanks=blanks)
        self._read_block = read

    def feed(self, data: bytes) -> Iterator[Run]:
        return self._read(self._splitter.feed(data))

    def whole(self, data: bytes) -> Iterator[Run]:
        return self._read(self._splitter.whole(data))

    def close(self) -> Iterator[Run]:
        return self._read(self._splitter.close())

    def _read(self, blocks: Iterable[RawRows | None]) -> Iterator[Run]:
        for block in blocks:
            if block is None:
                yield bad_row(too_long(self._limit_bytes))
            else:
                yield from self._read_block(block)


def parse_halving(
    block: RawRows,
    bulk: Callable[[RawRows], Run | None],
    exact: Callable[[list[bytes]], Iterator[Run]],
) -> Iterable[Run]:
    """Read a block at once. If that fails, halve it: a bad row slows down only its neighbours."""
    run = bulk(block)
    if run is not None:
        return (run,)
    rows = count_rows(block)
    if rows <= EXACT_ROWS:
        return exact(rows_of(block))
    both = halves(block, rows)
    return chain.from_iterable(parse_halving(half, bulk, exact) for half in both)


def read_rows(
    rows: Sequence[bytes],
    read: Callable[[bytes], T],
    join: Callable[[list[T]], Payload],
    most_rows: int = MOST_EXACT_ROWS,
) -> Iterator[Run]:
    """Read row by row; `read` raises `BadRow`, or `Poison`. Consecutive good rows are one run, of
    at most `most_rows`.
    """
    good: list[T] = []
    for row in rows:
        try:
            good.append(read(row))
            if len(good) == most_rows:
                yield Run(len(good), join(good))
                good = []
            continue
        except (BadRow, Poison) as found:
            error = found
        if good:
            yield Run(len(good), join(good))
            good = []
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
    """A piece of input in an error message."""
    return text[:_SHOWN_BYTES].decode(errors="replace") + ("…" if len(text) > _SHOWN_BYTES else "")


def join_floats(rows: list[list[float]]) -> Matrix:
    return Matrix(to_float32(np.array(rows, np.float64)))
