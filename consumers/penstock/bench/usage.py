"""What a process and its children have used so far, from /proc (Linux).

Rule: a thread that waited and was woken is a wake-up (a voluntary context switch); one that was put
aside for another is none.
"""

import os
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


class Usage(NamedTuple):
    """Of a process, its threads and its living children. CPU time is counted in steps of 10 ms."""

    cpu_s: float
    peak_rss_bytes: int
    wakeups: int = 0


def usage(pid: int) -> Usage:
    """Zeros for a process that is gone."""
    cpu_ticks = peak_rss = wakeups = 0
    for member in _family(pid):
        try:
            fields = _stat(member)
            # utime and stime; the children's share (fields 15 and 16) is of those that ended.
            cpu_ticks += int(fields[11]) + int(fields[12])
            peak_rss += _peak_rss_bytes(member)
            wakeups += _wakeups(member)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return Usage(cpu_ticks / _TICKS_PER_S, peak_rss, wakeups)


def _stat(pid: int) -> list[str]:
    """proc(5), from field 3 on: the name before it is in brackets and may hold anything."""
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def _peak_rss_bytes(pid: int) -> int:
    for line in (_PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _wakeups(pid: int) -> int:
    """Of its living threads."""
    total = 0
    for status in (_PROC / str(pid) / "task").glob("*/status"):
        try:
            text = status.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread that has just ended
        total += int(text.partition("\nvoluntary_ctxt_switches:")[2].split(maxsplit=1)[0])
    return total


def _family(pid: int) -> list[int]:
    found = [pid]
    for member in found:
        for children in (_PROC / str(member) / "task").glob("*/children"):
            try:
                found += map(int, children.read_text().split())
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def machine_cpu_s() -> float:
    """What all processes of the machine have used so far, the kernel included."""
    fields = (_PROC / "stat").read_text().partition("\n")[0].split()[1:]
    # proc(5): user nice system idle iowait irq softirq steal; guest time is within user.
    user, nice, system, _, _, irq, softirq = map(int, fields[:7])
    return (user + nice + system + irq + softirq) / _TICKS_PER_S
