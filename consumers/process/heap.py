"""One heap instead of one per thread, and freed memory that is used again.

Rule: only for a process of our own, at its start. glibc alone has these knobs; elsewhere nothing is
done. Without one heap, freed buffers of the loop and of the threads that inflate pile up: 366 MB
were seen where 277 MB do. Without the two thresholds buffers of a few hundred KiB go back to the
system and come again page by page: 0.5 page faults a row, a fifth of all CPU time, instead of 0.05.
"""

import ctypes

# mallopt(3): M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD, the last two in bytes.
_ARENA_MAX = (-8, 1)
_MMAP_THRESHOLD = (-3, 4 << 20)
_TRIM_THRESHOLD = (-1, 32 << 20)


def keep_small() -> None:
    """Call before the first thread starts."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for knob, value in (_ARENA_MAX, _MMAP_THRESHOLD, _TRIM_THRESHOLD):
            mallopt(knob, value)
