"""How parsers are chained, and how the outermost one becomes a `Decoder`.

Rule: inside, a parser is lazy: it yields runs while it reads, so that one inflated piece is parsed
before the next one is made. Outside, `feed` returns lists of bounded length. Rows that were
complete before the damage are returned first; the error is raised by the next call, which may be a
second `close`.
Every reading, here and by ranges, ends an object at its first bad row, if bad rows end it, and at
the limit of rows. Owner: the stage that expands objects, one decoder per object.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Protocol

from penstock.core.rows.costs import BLOCK_COST_BYTES, ROW_COST_BYTES
from penstock.errors import ErrorCode, Poison
from penstock.formats.base.runs import RowOptions, Run
from penstock.formats.unexpected_errors import foreseen

# A feed is about 1 ms of the event loop: text is read at 100-400 MB/s.
PLAIN_STEP_BYTES = 256 << 10
# At the default expansion_ratio of 200 this is 25 MB of text.
EXPANDING_STEP_BYTES = 128 << 10

# One call reads this many bytes, in 1 to 3 ms, before other tasks have a turn. Bulk reads are
# larger.
PIECE_BYTES = 16 << 10
PIECE_ROWS = 128


class Parser(Protocol):
    """A lazy decoder: `feed` must be exhausted before the next call."""

    step_bytes: int
    damage: ErrorCode
    """What it is called when the bytes break off or the wrapper around them is broken."""

    def feed(self, data: bytes) -> Iterator[Run]:
        """Take the next bytes; yield the rows now complete."""
        ...

    def close(self) -> Iterator[Run]:
        """There are no more bytes: yield the remaining rows."""
        ...


def feed_whole(parser: Parser, data: bytes) -> Iterator[Run]:
    """Feed all bytes of an object. A parser of text with a method `whole` reads the last row
    together with the others, although no newline ends it.
    """
    feed: Callable[[bytes], Iterator[Run]] = getattr(parser, "whole", parser.feed)
    return feed(data)


class Judge:
    """Lets the runs of one object pass that may be handed on."""

    def __init__(self, options: RowOptions) -> None:
        self._options = options
        self._rows = 0

    def passing(self, runs: Iterable[Run]) -> Iterator[Run]:
        """The next runs. Raises `Poison` where the object ends."""
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


class PushDecoder:
    """The `Decoder` around a chain of parsers."""

    def __init__(self, parser: Parser, options: RowOptions) -> None:
        self._parser = parser
        self._judge = Judge(options)
        self._runs: Iterator[Run] | None = None
        self._failure: Poison | None = None
        self._closed = False

    @property
    def pending(self) -> bool:
        return self._runs is not None

    def feed(self, data: bytes) -> list[Run]:
        if self._failure is None and (data or self._runs is None):
            self._then(self._parser.feed(data))
        return self._piece()

    def whole(self, data: bytes) -> list[Run]:
        self._closed = True
        self._then(self._whole(data))
        return self._piece()

    def _whole(self, data: bytes) -> Iterator[Run]:
        yield from feed_whole(self._parser, data)
        yield from self._parser.close()

    def close(self) -> list[Run]:
        if self._failure is None and not self._closed:
            self._closed = True
            self._then(self._parser.close())
        return self._piece()

    def _then(self, runs: Iterator[Run]) -> None:
        passing = self._judge.passing(runs)
        self._runs = passing if self._runs is None else chain(self._runs, passing)

    def _piece(self) -> list[Run]:
        runs: list[Run] = []
        if self._runs is not None:
            try:
                self._take(self._runs, runs)
            except Exception as error:
                failure = foreseen(error)
                if not isinstance(failure, Poison):
                    raise failure from None
                self._failure, self._runs = failure, None
        if self._failure is not None and not runs:
            raise self._failure
        return runs

    def _take(self, found: Iterator[Run], runs: list[Run]) -> None:
        """Take runs until they are enough for one piece."""
        nbytes = rows = 0
        for run in found:
            add(runs, run)
            nbytes += cost_of(run)
            rows += run.rows
            if nbytes + len(runs) * BLOCK_COST_BYTES > PIECE_BYTES or rows >= PIECE_ROWS:
                return
        self._runs = None
