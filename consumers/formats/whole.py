"""All rows of an object that is at hand: what the stages do, for tests and the simulation.

Rule: the same readers, asked in the same way, without waiting for anything. Raises what they raise.
"""

from collections.abc import Iterator

from consumers.formats.base import RowOptions, Run
from consumers.formats.format import Format, WantsRanges
from consumers.formats.ranged import TAIL_BYTES, Need, RangedDecoder, Wanted
from consumers.formats.registry import open_decoder, ranged_format


def decoded(
    options: RowOptions,
    data: bytes,
    chunk_bytes: int,
    *,
    key: str,
    format: str | None = None,
    compression: str | None = None,
) -> Iterator[list[Run]]:
    """The runs of each step, fed in such chunks."""
    ranged = ranged_format(options, key=key, format=format, compression=compression)
    if ranged is None:
        decoder = open_decoder(options, key=key, format=format, compression=compression)
        try:
            for start in range(0, len(data), chunk_bytes):
                yield decoder.feed(data[start : start + chunk_bytes])
                while decoder.pending:
                    yield decoder.feed(b"")
            while runs := decoder.close():
                yield runs
            return
        except WantsRanges as wants:
            ranged = wants.format
    yield from by_ranges(options, ranged, data)


def by_ranges(
    options: RowOptions,
    format: Format,
    data: bytes,
    wanted: Wanted = lambda start, stop: True,
    fetched: list[Need] | None = None,
) -> Iterator[list[Run]]:
    """Of an object that is read here and there; what was asked for is added to `fetched`."""
    if not data:
        return
    assert format.ranged is not None
    decoder = RangedDecoder(format.ranged, options, len(data), data[-TAIL_BYTES:], wanted)
    try:
        found = decoder.advance()
        while found is not None:
            if isinstance(found, Need):
                if fetched is not None:
                    fetched.append(found)
                found = decoder.advance(data[found.start : found.stop])
            else:
                yield found
                found = decoder.advance()
    finally:
        decoder.abandon()
