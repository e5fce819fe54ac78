"""However large an object is, a decoder holds a chunk of it.

200 MB go through; the peak is what Python and numpy held at once, rows of the last feed included.
"""

import gc
import io
import tarfile
import tracemalloc
import zlib
from collections.abc import Callable, Iterator

import pytest

from penstock.errors import Poison
from penstock.formats.base.parser_chain import EXPANDING_STEP_BYTES
from penstock.formats.base.runs import RowOptions
from penstock.formats.csv.dialect import CsvOptions
from penstock.formats.registry import open_decoder

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


def test_a_large_archive_is_read_in_the_memory_of_a_few_chunks() -> None:
    rows = 0

    def read() -> None:
        nonlocal rows
        decoder = open_decoder(RowOptions(), key="x.tar.gz")
        for part in gzip_of(tar_of_one_large_member()):
            for start in range(0, len(part), EXPANDING_STEP_BYTES):
                runs = decoder.feed(part[start : start + EXPANDING_STEP_BYTES])
                rows += sum(run.rows for run in runs)
        rows += sum(run.rows for run in decoder.close())

    assert peak_of(read) < PEAK_BYTES
    assert rows == OBJECT_MIB * LINES


def test_a_row_that_never_ends_is_not_kept() -> None:
    def read() -> None:
        decoder = open_decoder(
            RowOptions(row_bytes=MIB, own=(CsvOptions(header="no"),)), key="x.csv"
        )
        runs = decoder.feed(b"1\n")
        runs += [run for _ in range(OBJECT_MIB) for run in decoder.feed(b"1" * MIB)]
        assert [run.error is None for run in runs] == [True, False]

    assert peak_of(read) < PEAK_BYTES


def test_a_bomb_is_stopped_before_it_fills_the_memory() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(b"\0" * MIB) for _ in range(OBJECT_MIB)) + packer.flush()

    def read() -> None:
        decoder = open_decoder(RowOptions(row_bytes=MIB), key="x.ndjson.gz")
        [too_long] = decoder.feed(bomb)
        assert too_long.error is not None
        with pytest.raises(Poison, match="expansion_ratio"):
            decoder.feed(b"")

    assert peak_of(read) < PEAK_BYTES


def test_many_small_members_leave_nothing_behind() -> None:
    member = io.BytesIO()
    member.write(tar_member_header("small.csv", len(LINE)))
    member.write(LINE.ljust(512, b"\0"))
    members = member.getvalue() * 20

    def read() -> None:
        decoder = open_decoder(RowOptions(), key="x.tar")
        for _ in range(100):
            assert sum(run.rows for run in decoder.feed(members)) == 20

    assert peak_of(read) < MIB
