"""The memory of our own processes: one heap of glibc, no pandas, large pages; hidden from other
processes of the user, because credentials are in it.

Rule: only for a process that is wholly ours, at its start: a program that uses our library may need
pandas, a debugger or a core dump.
"""

import ctypes
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_SMAPS: Final = Path("/proc/self/smaps")
# A mapping without a file, which may be read and written: where it begins and ends, and how much of
# it is in memory (proc(5)).
_ANONYMOUS: Final = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) rw-p 0+ 00:00 0 +(?:\[heap\])?\n(?:\w+: .*\n)*?Rss: +(\d+) kB$",
    re.MULTILINE,
)
LARGE_BYTES: Final = 2 << 20
# madvise(2): from Linux 6.1 on.
_COLLAPSE: Final = 25
# Of a mapping, this share must be filled. The stacks of threads are nearly empty.
FILLED_SHARE: Final = 0.95


def move_to_large_pages(smaps: Path = _SMAPS) -> None:
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    try:
        mappings = smaps.read_text()
    except OSError:
        return  # another system, or a sandbox that forbids it
    if madvise is None:
        return
    for begin, nbytes in filled(mappings):
        madvise(ctypes.c_void_p(begin), ctypes.c_size_t(nbytes), _COLLAPSE)


def filled(smaps: str) -> Iterator[tuple[int, int]]:
    """The parts of filled mappings that large pages can hold: where each begins, and its size."""
    for begin, end, resident_kib in _ANONYMOUS.findall(smaps):
        start, stop = int(begin, 16), int(end, 16)
        if int(resident_kib) << 10 < FILLED_SHARE * (stop - start):
            continue
        start = -(-start // LARGE_BYTES) * LARGE_BYTES
        nbytes = (stop - start) // LARGE_BYTES * LARGE_BYTES
        if nbytes > 0:
            yield start, nbytes


_PR_SET_DUMPABLE: Final = 4


def hide_memory() -> None:
    """With a kernel other than Linux this does nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


# Options of mallopt(3) and their values: M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD, the
# last two in bytes.
_ARENA_MAX = (-8, 1)
_MMAP_THRESHOLD = (-3, 4 << 20)
_TRIM_THRESHOLD = (-1, 32 << 20)


def keep_heap_small() -> None:
    """Make glibc's allocator use one heap for all threads, and keep freed memory for later use.
    Call this before the first thread starts. With a C library other than glibc this does nothing.

    With a heap for each thread, freed buffers pile up in each heap: 366 MB were seen instead of 277
    MB. With the default thresholds, buffers of a few hundred KiB are returned to the system and
    faulted in again page by page: 0.5 page faults a row, which took a fifth of all CPU time,
    instead of 0.05 page faults a row.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for knob, value in (_ARENA_MAX, _MMAP_THRESHOLD, _TRIM_THRESHOLD):
            mallopt(knob, value)


def give_back() -> None:
    """Return to the system what glibc and pyarrow keep for later use."""
    import pyarrow as pa  # noqa: PLC0415 (large, and this module is imported at each start)

    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


_PANDAS: Final = "pandas"
_PLUGINS: Final = "penstock."


class _Absent:
    """While an object of this class is in `sys.meta_path`, importing pandas fails as if it were not
    installed.
    """

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == _PANDAS:
            raise ModuleNotFoundError(name)


def without_pandas() -> None:
    """pyarrow imports pandas when it makes its first array (0.4 s and 32 MB a process), and does
    not try again if that fails. We do not need pandas, so make the first array while pandas cannot
    be imported.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 (it takes half the time of `penstock --help`)

    import pyarrow as pa  # noqa: PLC0415 (large, and this module is imported at each start)

    if any(group.startswith(_PLUGINS) for group in entry_points().groups):
        return
    absent = _Absent()
    sys.meta_path.insert(0, absent)
    try:
        pa.array([0]).to_numpy()
    finally:
        sys.meta_path.remove(absent)
