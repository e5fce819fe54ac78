"""The rows of one object, whatever its format and however it is packed.

Rule: this is the whole decoding of an object. It blocks and is lazy, so it runs outside the event
loop. Rows that were complete before the damage come first, then the object's `Poison`. Owner: the
process that decodes; tests, in their own process.
"""

from collections.abc import Callable, Iterator
from typing import Final

from penstock.core.rows.costs import BLOCK_COST_BYTES
from penstock.errors import Poison
from penstock.formats.base.format import WantsRanges
from penstock.formats.base.judging import PIECE_ROWS, Judge, add, cost_of
from penstock.formats.base.parser_chain import Parser
from penstock.formats.base.runs import RowOptions, Run
from penstock.formats.base.source import AtHand, Stream, Wanted
from penstock.formats.registry import open_parser, ranged_format

# As much as some Arrow batches; to hand over a piece costs a tenth of a millisecond.
PIECE_BYTES: Final = 2 << 20


def read_object(
    source: Stream,
    options: RowOptions,
    *,
    key: str,
    format: str | None = None,
    compression: str | None = None,
    wanted: Wanted = lambda start, stop: True,
) -> Iterator[Run]:
    """The object's rows; unwanted rows may come as runs without payload."""
    return Judge(options).passing(_read(source, options, key, format, compression, wanted))


def decoded(
    options: RowOptions,
    data: bytes,
    chunk_bytes: int,
    *,
    key: str,
    format: str | None = None,
    compression: str | None = None,
) -> Iterator[list[Run]]:
    """The runs of an object whose bytes are here, as a stream in chunks of this size."""
    ready: list[list[Run]] = []
    pieces = Pieces(ready.append)
    source = AtHand(data, chunk_bytes, pieces.flush)
    runs = read_object(source, options, key=key, format=format, compression=compression)
    failure: Poison | None = None
    try:
        for run in runs:
            pieces.add(run)
            yield from ready
            ready.clear()
    except Poison as poison:
        failure = poison
    pieces.flush()
    yield from ready
    if failure is not None:
        raise failure


class Pieces:
    """Hands on rows in pieces for which the byte budget is asked once, and all complete rows before
    it waits for more bytes. Neighbouring rows that are bad for the same reason are one run.
    """

    def __init__(self, give: Callable[[list[Run]], object]) -> None:
        self._give = give
        self._runs: list[Run] = []
        self._nbytes = self._bad_rows = 0

    def take(self, runs: Iterator[Run]) -> None:
        """Take all runs. Rows that were complete before an error are handed on before it."""
        try:
            for run in runs:
                self.add(run)
        finally:
            self.flush()

    def add(self, run: Run) -> None:
        add(self._runs, run)
        self._bad_rows += run.rows if run.error is not None else 0
        self._nbytes += cost_of(run)
        nbytes = self._nbytes + len(self._runs) * BLOCK_COST_BYTES
        if nbytes > PIECE_BYTES or self._bad_rows >= PIECE_ROWS:
            self.flush()

    def flush(self) -> None:
        if self._runs:
            runs, self._runs = self._runs, []
            self._nbytes = self._bad_rows = 0
            self._give(runs)


def _read(
    source: Stream,
    options: RowOptions,
    key: str,
    format: str | None,
    compression: str | None,
    wanted: Wanted,
) -> Iterator[Run]:
    named = ranged_format(options, key=key, format=format, compression=compression)
    if named is None:
        parser = open_parser(options, key=key, format=format, compression=compression)
        try:
            yield from _pushed(source.chunks(), parser)
            return
        except WantsRanges as wants:
            named = wants.format
    assert named.ranged is not None
    if source.size:
        yield from named.ranged(source, options, wanted)


def _pushed(chunks: Iterator[bytes], parser: Parser) -> Iterator[Run]:
    for chunk in chunks:
        start = 0
        while start < len(chunk):
            # Asked for every time: sniffing may find that the bytes expand.
            stop = start + parser.step_bytes
            yield from parser.feed(chunk[start:stop])
            start = stop
    yield from parser.close()
