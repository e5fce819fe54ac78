"""All rows of an object whose bytes are here, for tests and the simulation.

Rule: the same reading as in a decoder, without waiting; it raises the same errors.
"""

from collections.abc import Iterator

from penstock.errors import Poison
from penstock.formats.base.format import Format
from penstock.formats.base.ranged import TAIL_BYTES, Need, Ranges
from penstock.formats.base.reading import Pieces, judged, read_object
from penstock.formats.base.runs import RowOptions, Run
from penstock.formats.base.source import AtHand, Wanted


def decoded(
    options: RowOptions,
    data: bytes,
    chunk_bytes: int,
    *,
    key: str,
    format: str | None = None,
    compression: str | None = None,
) -> Iterator[list[Run]]:
    """The runs of an object whose stream is cut into chunks of this size."""
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


def by_ranges(
    options: RowOptions,
    format: Format,
    data: bytes,
    wanted: Wanted = lambda start, stop: True,
    fetched: list[Need] | None = None,
) -> Iterator[list[Run]]:
    """The runs of an object that is read by ranges; these are added to `fetched`."""
    if not data:
        return

    def ask(need: Need) -> bytes:
        if fetched is not None:
            fetched.append(need)
        return data[need.start : need.stop]

    assert format.ranged is not None
    source = Ranges(len(data), data[-TAIL_BYTES:], ask)
    for run in judged(format.ranged(source, options, wanted), options):
        yield [run]
