"""Reads the rows of one object, whatever its format and packing.

Rule: `read_object` blocks and may crash, so it runs in a decoder. By `open_inline` the worker
itself reads small opaque objects and small plain text, by linear code only, in turns of a few
milliseconds; every object that might be something else goes to a decoder.

If the object is damaged, the rows before come first, then its `Poison`. An unforeseen exception,
such as `MemoryError`, becomes `Poison`, too; an object of 900 bytes once asked for 8 GB.
"""

import zlib
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from penstock.core.rows.payload import BLOCK_COST_BYTES
from penstock.errors import PenstockError, Poison, Unforeseen
from penstock.formats.archives.unpacking import GZIP_WBITS
from penstock.formats.first_bytes import BOM, TEXT_BYTES, packed_by
from penstock.formats.format import WantsRanges
from penstock.formats.parser_chain import Parser
from penstock.formats.registry import Claim, open_parser, parser_of
from penstock.formats.runs import (
    FREE_BYTES,
    PIECE_ROWS,
    Pieces,
    RowOptions,
    Run,
    add,
    cost_of,
    most_weight,
    too_many,
)
from penstock.formats.source import AtHand, ObjectSource, Stream, Wanted

# The bytes of one turn. The slowest text, bad rows, is read at 10 MB/s, so a turn takes up to 3 ms
# of the event loop.
TURN_BYTES: Final = 32 << 10
# Rows are handed on when they have this size together; only then are more rows read. A single bulk
# read may give more than this size.
_TURN_PIECE_BYTES: Final = 16 << 10

# A format may recognise an object by this many first bytes.
_HEAD_BYTES: Final = 512
# Readers of these formats divide a whole line at once, so the width of lines is limited. A line of
# JSON, or the first line of a CSV, takes up to 4 ms if it has the largest allowed width. Most
# embeddings are half as wide.
_TAKEN_APART: Final = ("csv", "ndjson", "json")
_LINE_BYTES: Final = 64 << 10
_LINE_CELLS: Final = 2_048
_SEPARATORS: Final = (b",", b";", b"\t", b"|")
# Time goes by lines more than by bytes: a good line takes 0.5 to 4 us, a bad one up to 15 us. To
# hand an object to a decoder takes as long as to read 5,000 rows of a CSV. So above this size the
# worker itself reads objects of few lines only, which take 0.25 s at the worst.
_FEW_BYTES: Final = 256 << 10
_FEW_LINES: Final = 16_384
_OF_LINES: Final = ("csv", "ndjson", "text")
# What is plain of these is one row as it is, and takes no time.
_OF_ONE_ROW: Final = ("bytes", "image")


def read_object(
    source: Stream,
    options: RowOptions,
    claim: Claim,
    wanted: Wanted = lambda start, stop: True,
) -> Iterator[Run]:
    """The object's rows. Rows that are not `wanted` may come as runs without a payload."""
    return ObjectEnd(options, source).cut(_read(source, options, claim, wanted))


def decoded(
    options: RowOptions, data: bytes, chunk_bytes: int, claim: Claim
) -> Iterator[list[Run]]:
    """The runs of an object that is in memory, read as if it came in chunks of this size."""
    ready: list[list[Run]] = []
    pieces = Pieces(ready.append)
    source = AtHand(data, chunk_bytes, pieces.flush)
    runs = read_object(source, options, claim)
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
    """Decides where the rows of one object end: at a limit, at a bad row, or at an unforeseen
    exception. `source`: None if the object is so small that its size allows any rows.
    """

    def __init__(self, options: RowOptions, source: ObjectSource | None = None) -> None:
        self._options = options
        self._source = source
        self._rows = self._weight = 0

    def cut(self, runs: Iterable[Run]) -> Iterator[Run]:
        """The runs up to the place where the object must end. At that place `Poison` is raised.
        `cut` may be called several times, each time with the next runs of the same object.
        """
        try:
            for run in runs:
                if run.error is not None and self._options.fail_on_bad_row:
                    raise Poison("bad_row", self._described(run))
                left = self._options.rows - self._rows
                most = run.rows
                weight = self._weight + run.rows * run.weight
                size = -1 if self._source is None else self._source.size
                if weight > FREE_BYTES and size >= 0:
                    most = (most_weight(size, self._options) - self._weight) // run.weight
                if run.rows > min(left, most):
                    # If a run reaches beyond the limit, those of its rows that are below the limit
                    # are still answered.
                    if min(left, most):
                        yield _first(run, min(left, most))
                    if most < left:
                        raise too_many(size, self._options, run.weight)
                    message = f"it has more than {self._options.rows} rows (limits.rows)"
                    raise Poison("too_large", message)
                self._rows, self._weight = self._rows + run.rows, weight
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


def _read(source: Stream, options: RowOptions, claim: Claim, wanted: Wanted) -> Iterator[Run]:
    named = claim.ranged(options)
    if named is None:
        try:
            yield from _pushed(source.chunks(), open_parser(options, claim))
            return
        except WantsRanges as wants:
            named = wants.format
    assert named.ranged is not None
    if not source.size:
        claim.check_nothing()
    yield from named.ranged(source, options, wanted)


def _pushed(chunks: Iterator[bytes], parser: Parser) -> Iterator[Run]:
    for chunk in chunks:
        start = 0
        while start < len(chunk):
            # Look up `step_bytes` again before each step: when the parser has seen the first bytes,
            # it may want smaller steps, because the bytes expand.
            stop = start + parser.step_bytes
            yield from parser.feed(chunk[start:stop])
            start = stop
    yield from parser.close()


def open_inline(
    options: RowOptions, data: bytes, most_bytes: int | None, claim: Claim
) -> "Iterator[Turn] | None":
    """Begin to read a whole object. None: a separate process must decode it. Raises `Poison` if the
    object's name or first bytes show that it cannot be read. `most_bytes`: None for the rows of a
    message, which is bounded itself.
    """
    if most_bytes is not None and len(data) > most_bytes:
        return None
    if claim.packing != "none" and (codec := packed_by(data)) is not None:
        limit_bytes = min(
            most_bytes or _FEW_BYTES, options.expanded_bytes or _FEW_BYTES, _FEW_BYTES
        )
        unfolded = _unfolded(data, limit_bytes) if codec == "gzip" else None
        if unfolded is None or packed_by(unfolded) is not None:
            return None
        # Its content is plain now, so the parser must not want it to be packed.
        data, claim = unfolded, claim._replace(packing="none")
    known = claim.format_of(data[:_HEAD_BYTES], options)
    if known is None or _is_wide(data, known.name):
        return None
    if not options.has_plain(known):
        return None
    if most_bytes is not None and not _is_short(data, known.name):
        return None
    if not data:
        return turns(open_parser(options, claim), (data,), options)
    needs_proof = claim.packing == "sure"
    head = data[: _HEAD_BYTES if needs_proof or claim.format is None else TEXT_BYTES]
    parser = parser_of(known, claim, head.removeprefix(BOM), options, needs_proof=needs_proof)
    if parser is None:
        return None
    if known.is_text:
        data = data.removeprefix(BOM)
    starts = range(0, max(1, len(data)), TURN_BYTES)
    return turns(parser, (data[start : start + TURN_BYTES] for start in starts), options)


class Turn(NamedTuple):
    """The rows that were read in a few milliseconds. Then other objects may have a turn."""

    runs: list[Run]
    is_last: bool


def turns(parser: Parser, pieces: Iterable[bytes], options: RowOptions) -> Iterator[Turn]:
    """All rows of an object, in turns. Each piece of its bytes is one turn; if a piece makes many
    rows, it becomes several turns. If the object is damaged, the rows that were complete before the
    damage come first, then the object's `Poison`.
    """
    end, left, is_first = ObjectEnd(options), iter(pieces), True
    after: bytes | None = next(left)
    while after is not None:
        piece, after = after, next(left, None)
        is_last = after is None
        fed = _fed(parser, piece, is_whole=is_first and is_last, is_last=is_last)
        is_first = False
        runs: list[Run] = []
        nbytes = rows = 0
        try:
            for run in end.cut(fed):
                add(runs, run)
                nbytes += cost_of(run)
                rows += run.rows
                if nbytes + len(runs) * BLOCK_COST_BYTES > _TURN_PIECE_BYTES or rows >= PIECE_ROWS:
                    yield Turn(runs, is_last=False)
                    runs, nbytes, rows = [], 0, 0
        except PenstockError:
            if runs:
                yield Turn(runs, is_last=False)
            raise
        yield Turn(runs, is_last)


def _fed(parser: Parser, piece: bytes, *, is_whole: bool, is_last: bool) -> Iterator[Run]:
    yield from parser.whole(piece) if is_whole else parser.feed(piece)
    if is_last:
        yield from parser.close()


def _is_wide(data: bytes, format: str) -> bool:
    """True if the data has a line so wide that reading it takes more than a few milliseconds."""
    start = 0
    while format in _TAKEN_APART and start + _LINE_CELLS < len(data):
        end = data.rfind(b"\n", start, start + _LINE_CELLS)
        if end < start:
            end = data.find(b"\n", start)
            line = data[start : end if end > 0 else None]
            cells = max(map(line.count, _SEPARATORS)) if format == "csv" else 0
            if len(line) > _LINE_BYTES or cells >= _LINE_CELLS:
                return True
            end = start + len(line)
        start = end + 1
    return False


def _is_short(data: bytes, format: str) -> bool:
    """True if its bytes, or its lines, are few, or if it is one row."""
    if len(data) <= _FEW_BYTES or format in _OF_ONE_ROW:
        return True
    return format in _OF_LINES and data.count(b"\n") <= _FEW_LINES


def _unfolded(data: bytes, most_bytes: int) -> bytes | None:
    """The unpacked bytes. None: there are more than `most_bytes` of them, or the data is
    damaged.
    """
    unpacker = zlib.decompressobj(GZIP_WBITS)
    try:
        plain = unpacker.decompress(data, most_bytes + 1)
    except zlib.error:
        return None
    if len(plain) > most_bytes or not unpacker.eof or unpacker.unused_data:
        return None
    return plain
