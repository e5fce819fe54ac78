"""What the kernel tells of a decoder's process: its memory, what it does, the name of its signal.

Rule: of a process that has ended it tells nothing, and that is no error.
"""

import os
import re
import resource
import signal
from typing import Final

_PAGE_TABLES: Final = re.compile(rb"^VmPTE:\s+(\d+) kB$", re.MULTILINE)
_THREADS: Final = re.compile(rb"^Threads:\s+(\d+)$", re.MULTILINE)
# A thread counts so much, since a container may have some 1,000 processes and threads. Without a
# free one the worker ends.
_THREAD_BYTES: Final = 8 << 20
# Those of a user with thousands of groups, too.
_MOST_BYTES: Final = 64 << 10


def anonymous_bytes(process: int) -> int:
    """The process' memory; what a decoder shares with the zygote counts in full. 0: the process, or
    its first thread, has ended.
    """
    pages = _told_of(process, "statm").split()
    return (int(pages[1]) - int(pages[2])) * resource.getpagesize() if pages else 0


def bytes_in_kernel(process: int) -> int:
    """What the kernel holds to know where the process' memory is: two pages for each, if it is
    scattered; and what its threads count, but for the first. Not every system tells it.
    """
    status = _told_of(process, "status")
    tables, threads = _PAGE_TABLES.search(status), _THREADS.search(status)
    more_threads = max(1, int(threads[1])) - 1 if threads else 0
    return (int(tables[1]) << 10 if tables else 0) + more_threads * _THREAD_BYTES


def state_and_ticks(process: int) -> tuple[bytes, int]:
    """What it does, by the kernel's letter, and how long it has computed, in clock ticks."""
    words = _told_of(process, "stat").rpartition(b")")[2].split()
    # state, utime and stime of proc_pid_stat(5)
    return (words[0], sum(map(int, words[11:13]))) if words else (b"", 0)


def signal_name(number: int) -> str:
    """The name of a signal; most of those for programs' own use have none."""
    return signal.Signals(number).name if number in {*signal.Signals} else "another"


def _told_of(process: int, what: str) -> bytes:
    """A file of the kernel about a process; empty: it has ended."""
    try:
        file = os.open(f"/proc/{process}/{what}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(file, _MOST_BYTES)
    except ProcessLookupError:
        return b""
    finally:
        os.close(file)
