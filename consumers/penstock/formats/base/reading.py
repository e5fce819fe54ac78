"""The rows of one object, whatever its format and however it is packed, and what ends them early.

Rule: this is the whole decoding of an object. It blocks and is lazy, so it runs outside the event
loop. If the object is damaged, the rows that were complete before the damage come first, then the
object's `Poison`. An object ends at its limit of rows, and at its first bad row if bad rows end
objects. An unforeseen exception, such as `MemoryError`, becomes the object's `Poison`. (An object
of 900 bytes once asked for 8 GB.) Neighbouring rows that are bad for the same reason are one run.
Owner: the process that decodes.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from penstock.core.rows.costs import BLOCK_COST_BYTES, ROW_COST_BYTES
from penstock.errors import PenstockError, Poison, Unforeseen
from penstock.formats.base.format import WantsRanges
from penstock.formats.base.parser_chain import Parser
from penstock.formats.base.runs import RowOptions, Run
from penstock.formats.base.source import AtHand, Stream, Wanted
from penstock.formats.registry import open_parser, ranged_format

# Some Arrow batches have this size. To hand over a piece costs a tenth of a millisecond.
PIECE_BYTES: Final = 2 << 20
# After this many rows that were read one by one, the rows so far are handed on.
PIECE_ROWS: Final = 128


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
    return ObjectEnd(options).cut(_read(source, options, key, format, compression, wanted))


def decoded(
    options: RowOptions,
    data: bytes,
    chunk_bytes: int,
    *,
    key: str,
    format: str | None = None,
    compression: str | None = None,
) -> Iterator[list[Run]]:
    """The runs of an object that is in memory, read as if it came in chunks of this size."""
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


class ObjectEnd:
    """Where the rows of one object end: at a limit, at a bad row, or at an unforeseen exception."""

    def __init__(self, options: RowOptions) -> None:
        self._options = options
        self._rows = 0

    def cut(self, runs: Iterable[Run]) -> Iterator[Run]:
        """The runs up to the place where the object must end; there `Poison` is raised. `cut` may
        be called again, with more runs of the same object.
        """
        try:
            for run in runs:
                if run.error is not None and self._options.fail_on_bad_row:
                    raise Poison("bad_row", self._described(run))
                left = self._options.rows - self._rows
                if run.rows > left:
                    # If a run reaches beyond the limit, its rows below the limit are still
                    # answered.
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
    """Append the run. If it and the last run are bad for the same reason, make them one run."""
    before = piece[-1] if piece and run.error is not None else None
    if before is not None and (before.error, before.member) == (run.error, run.member):
        piece[-1] = before._replace(rows=before.rows + run.rows)
    else:
        piece.append(run)


def cost_of(run: Run) -> int:
    """The bytes of the run's good rows, as the byte budget counts them. Bad rows cost nothing."""
    if run.payload is None:
        return 0
    kept_bytes = run.kept.nbytes if run.kept is not None else 0
    return run.payload.nbytes + run.rows * ROW_COST_BYTES + kept_bytes


class Pieces:
    """Gathers runs to pieces and hands each piece on by `give`, so that the byte budget is asked
    once for each piece. Its owner calls `flush` before it waits for more bytes, so that complete
    rows do not wait.
    """

    def __init__(self, give: Callable[[list[Run]], object]) -> None:
        self._give = give
        self._runs: list[Run] = []
        self._nbytes = self._bad_rows = 0

    def take(self, runs: Iterator[Run]) -> None:
        """Take all runs. If they end by an error, the runs before it are handed on first."""
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
            # Read `step_bytes` before each step: once the parser has seen the first bytes, it may
            # want smaller steps, because the bytes expand.
            stop = start + parser.step_bytes
            yield from parser.feed(chunk[start:stop])
            start = stop
    yield from parser.close()
