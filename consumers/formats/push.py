"""How parsers are chained, and how the outermost one becomes a `Decoder`.

Rule: inside, a parser is lazy: it yields runs while it reads, so that one inflated piece is parsed
before the next one is made. Outside, `feed` returns lists. Rows that were complete before the
object broke are returned first; the error follows with the next call, be it a second `close`.
Owner: the stage that expands objects, one decoder per object.
"""

from collections.abc import Iterator
from typing import Protocol

from consumers.errors import ErrorCode, Poison
from consumers.formats.base import Run

# A feed is about 1 ms of the event loop: text is read at 100-400 MB/s.
PLAIN_STEP_BYTES = 256 << 10
# At the default expansion_ratio of 200 this is 25 MB of text.
EXPANDING_STEP_BYTES = 128 << 10


class Parser(Protocol):
    """A lazy decoder: `feed` must be exhausted before the next call."""

    step_bytes: int
    damage: ErrorCode
    """What it is called when the bytes break off or the wrapper around them is broken."""

    def feed(self, data: bytes) -> Iterator[Run]:
        """Take the next bytes; yield the rows now complete."""
        ...

    def close(self) -> Iterator[Run]:
        """No more bytes: yield what is left."""
        ...


class PushDecoder:
    """The `Decoder` around a chain of parsers; applies `on_bad_row`."""

    def __init__(self, parser: Parser, *, fail_on_bad_row: bool) -> None:
        self._parser = parser
        self._fail_on_bad_row = fail_on_bad_row
        self._rows = 0
        self._failure: Poison | None = None
        self._closed = False

    @property
    def step_bytes(self) -> int:
        return self._parser.step_bytes

    @property
    def expands(self) -> bool:
        return self._parser.step_bytes == EXPANDING_STEP_BYTES

    def feed(self, data: bytes) -> list[Run]:
        runs: list[Run] = []
        if self._failure is None:
            self._take(self._parser.feed(data), runs)
        if self._failure is not None and not runs:
            raise self._failure
        return runs

    def close(self) -> list[Run]:
        runs: list[Run] = []
        if self._failure is None and not self._closed:
            self._closed = True
            self._take(self._parser.close(), runs)
        if self._failure is not None and not runs:
            raise self._failure
        return runs

    def _take(self, rows: Iterator[Run], runs: list[Run]) -> None:
        try:
            for run in rows:
                if run.error is not None and self._fail_on_bad_row:
                    raise Poison("bad_row", self._describe(run))
                self._rows += run.rows
                runs.append(run)
        except Poison as failure:
            self._failure = failure

    def _describe(self, run: Run) -> str:
        where = f' of member "{run.member}"' if run.member is not None else ""
        return f"row {self._rows}{where}: {run.error} (rows.on_bad_row is fail_object)"
