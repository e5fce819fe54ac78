"""Which memory of a process moves into large pages. The texts are the kernel's own."""

import ctypes
import mmap
from pathlib import Path

import pytest

from penstock.process.memory import LARGE_BYTES, filled, move_to_large_pages

SMAPS = Path("/proc/self/smaps")
pytestmark = pytest.mark.skipif(not SMAPS.exists(), reason="the system has no /proc")


def _holds(memory: mmap.mmap) -> list[tuple[int, int]]:
    """The parts to be moved that lie in this memory."""
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return [
        (at, nbytes)
        for at, nbytes in filled(SMAPS.read_text())
        if begin <= at < begin + len(memory)
    ]


def test_filled_memory_moves_in_whole_large_pages() -> None:
    memory = mmap.mmap(-1, 6 * LARGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # Its ends are closed, so that the kernel does not make it one mapping with what lies beside it.
    begin, end = ctypes.addressof(ctypes.c_char.from_buffer(memory)), mmap.PAGESIZE
    for at in (begin, begin + len(memory) - end):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(at), ctypes.c_size_t(end), 0) == 0
    memory[end:-end] = b"x" * (len(memory) - 2 * end)
    assert all(at % LARGE_BYTES == nbytes % LARGE_BYTES == 0 for at, nbytes in _holds(memory))
    assert sum(nbytes for _, nbytes in _holds(memory)) >= 4 * LARGE_BYTES


@pytest.mark.parametrize("filled_pages", [1, 58])
def test_memory_that_is_not_filled_stays_as_it_is(filled_pages: int) -> None:
    memory = mmap.mmap(-1, 64 * LARGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[: filled_pages * LARGE_BYTES] = b"x" * filled_pages * LARGE_BYTES
    assert _holds(memory) == []


def test_a_system_that_does_not_tell_of_its_memory_stops_nobody(tmp_path: Path) -> None:
    move_to_large_pages(tmp_path)  # a folder cannot be read


def test_a_file_in_memory_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 4 * LARGE_BYTES)
    with path.open("r+b") as file:
        memory = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE)
        assert memory.find(b"y") < 0  # reads all of it
        assert _holds(memory) == []


def test_what_is_moved_holds_what_it_held() -> None:
    memory = mmap.mmap(-1, 4 * LARGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(bytes(range(256)) * (len(memory) // 256))
    move_to_large_pages()
    assert memory[:] == bytes(range(256)) * (len(memory) // 256)
