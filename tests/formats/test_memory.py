"""However large an object is, a decoder holds a chunk of it.

200 MB go through; the peak is what Python and numpy held at once, rows of the last feed included.
"""

import gc
import io
import tarfile
import tracemalloc
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import pytest

from penstock.errors import Poison
from penstock.formats.reading import read_object
from penstock.formats.registry import claim_of
from penstock.formats.runs import RowOptions, Run
from penstock.formats.text.csv_dialect import CsvOptions

MIB = 1 << 20
OBJECT_MIB = 200
PEAK_BYTES = 16 * MIB

LINE = b"-0.123456,1.250000,17.000001,3.141592\n"
TEXT = LINE * (MIB // len(LINE))  # nearly one MiB of rows
LINES = len(TEXT) // len(LINE)


def tar_member_header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.USTAR_FORMAT)


def tar_of_one_large_member() -> Iterator[bytes]:
    size = OBJECT_MIB * len(TEXT)
    yield tar_member_header("large.csv", size)
    yield from (TEXT for _ in range(OBJECT_MIB))
    yield b"\0" * (-size % 512 + 1024)


def gzip_of(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Stored, not deflated: as fast to make as to copy, and read in the same way."""
    packer = zlib.compressobj(0, zlib.DEFLATED, 31)
    for part in parts:
        yield packer.compress(part)
    yield packer.flush()


def peak_of(run: Callable[[], None]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class Passing:
    """An object whose chunks are made when they are asked for."""

    size = -1

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks

    def read(self, start: int, stop: int) -> bytes:
        raise AssertionError("it is no stream")

    def chunks(self) -> Iterator[bytes]:
        yield from self._chunks


def read(chunks: Iterable[bytes], options: RowOptions, key: str) -> Iterator[Run]:
    return read_object(Passing(chunks), options, claim_of(key))


def test_a_large_archive_is_read_in_the_memory_of_a_few_chunks() -> None:
    rows = 0

    def count() -> None:
        nonlocal rows
        runs = read(gzip_of(tar_of_one_large_member()), RowOptions(), "x.tar.gz")
        rows = sum(run.rows for run in runs)

    assert peak_of(count) < PEAK_BYTES
    assert rows == OBJECT_MIB * LINES


def test_a_row_that_never_ends_is_not_kept() -> None:
    def count() -> None:
        options = RowOptions(row_bytes=MIB, own=(CsvOptions(header="no"),))
        chunks = chain((b"1\n",), (b"1" * MIB for _ in range(OBJECT_MIB)))
        assert [run.error is None for run in read(chunks, options, "x.csv")] == [True, False]

    assert peak_of(count) < PEAK_BYTES


def test_a_bomb_is_stopped_before_it_fills_the_memory() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(b"\0" * MIB) for _ in range(OBJECT_MIB)) + packer.flush()

    def count() -> None:
        runs = read([bomb], RowOptions(row_bytes=MIB), "x.ndjson.gz")
        assert next(runs).error is not None
        with pytest.raises(Poison, match="expansion_ratio"):
            next(runs)

    assert peak_of(count) < PEAK_BYTES


def test_many_small_members_leave_nothing_behind() -> None:
    member = io.BytesIO()
    member.write(tar_member_header("small.csv", len(LINE)))
    member.write(LINE.ljust(512, b"\0"))
    members = member.getvalue() * 20
    rows = 0

    def count() -> None:
        nonlocal rows
        chunks = chain((members for _ in range(100)), (b"\0" * 1024,))
        rows = sum(run.rows for run in read(chunks, RowOptions(), "x.tar"))

    assert peak_of(count) < MIB
    assert rows == 2_000
