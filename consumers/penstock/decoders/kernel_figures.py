"""What the kernel tells of a decoder's process: its memory, what it does, the name of its signal.

Rule: of a process that has ended it tells nothing, and that is no error.
"""

import os
import re
import resource
import signal
from typing import Final

_PAGE_TABLES: Final = re.compile(rb"^VmPTE:\s+(\d+) kB$", re.MULTILINE)
# Those of a user with thousands of groups, too.
_MOST_BYTES: Final = 64 << 10


def anonymous_bytes(process: int) -> int:
    """The process' memory; what a decoder shares with the zygote counts in full. 0: the process, or
    its first thread, has ended.
    """
    pages = _told_of(process, "statm").split()
    return (int(pages[1]) - int(pages[2])) * resource.getpagesize() if pages else 0


def page_table_bytes(process: int) -> int:
    """What the kernel holds to know where the process' memory is: two pages for each, if it is
    scattered. Not every system tells it.
    """
    told = _PAGE_TABLES.search(_told_of(process, "status"))
    return int(told[1]) << 10 if told else 0


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
