"""What a process and its children have used so far, from /proc (Linux).

Rule: a wake-up is a voluntary context switch: a thread waited and was woken. A thread that was only
interrupted for another one does not count. Owner: the bench.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


class Usage(NamedTuple):
    """Of a process with its threads and living children. CPU time comes in steps of 10 ms."""

    cpu_s: float
    peak_rss_bytes: int
    wakeups: int = 0


def usage(pid: int) -> Usage:
    """All zero for a process that is gone."""
    cpu_ticks = peak_rss = wakeups = 0
    for member in family(pid):
        try:
            fields = _stat(member)
            # utime and stime. Fields 15 and 16 are of children that have ended.
            cpu_ticks += int(fields[11]) + int(fields[12])
            peak_rss += _peak_rss_bytes(member)
            wakeups += _wakeups(member)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return Usage(cpu_ticks / _TICKS_PER_S, peak_rss, wakeups)


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from field 3 on (proc(5)). The name before them is in brackets and
    may hold any character.
    """
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def _peak_rss_bytes(pid: int) -> int:
    for line in (_PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _wakeups(pid: int) -> int:
    """Wake-ups of its living threads."""
    return sum(
        int(text.partition("\nvoluntary_ctxt_switches:")[2].split(maxsplit=1)[0])
        for text in _of_threads(pid, "status")
    )


def family(pid: int) -> list[int]:
    """The process and all its living children, their children included."""
    found = [pid]
    for member in found:
        for children in _of_threads(member, "children"):
            found += map(int, children.split())
    return found


def _of_threads(pid: int, name: str) -> Iterator[str]:
    """This file of each of its living threads; none if the process has just ended."""
    tasks = _PROC / str(pid) / "task"
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in tasks.iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                yield (thread / name).read_text()


def machine_cpu_s() -> float:
    """CPU seconds that all processes of the machine and the kernel have used so far."""
    fields = (_PROC / "stat").read_text().partition("\n")[0].split()[1:]
    # proc(5): user nice system idle iowait irq softirq steal. Guest time is a part of user.
    user, nice, system, _, _, irq, softirq = map(int, fields[:7])
    return (user + nice + system + irq + softirq) / _TICKS_PER_S
