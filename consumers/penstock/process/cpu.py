"""How much of a processor the event loop's thread gets, and what keeps it from more.

Rule: counters only, which cost some small files of Linux a look. What the system does not tell
stays 0 or None.
"""

import os
import time
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

# Two times in nanoseconds: the work of the calling thread, and its wait for a processor.
SCHEDULED: Final = Path("/proc/thread-self/schedstat")
CGROUPS: Final = Path("/sys/fs/cgroup")
STAT: Final = Path("/proc/stat")
# How often `BusyShare` looks, and the time constant of its average.
LOOK_S: Final = 0.2
MEMORY_S: Final = 1.0


class Cpu(NamedTuple):
    """`worked_s`: how long the calling thread has worked; `waited_s`: how long it has waited for a
    processor. A thread that waits is as busy as one that works. `periods`, `throttled`: in how many
    periods of the container's CPU limit its processes ran, and in how many they were stopped
    because they had reached it. `stolen`, `ticks`: how much of the machine's time its host took.
    """

    worked_s: float
    waited_s: float = 0.0
    periods: int = 0
    throttled: int = 0
    stolen: int = 0
    ticks: int = 0


def cpu_now() -> Cpu:
    """Of the calling thread."""
    worked_s, waited_s = _scheduled()
    limits = _counts(_cgroup() / "cpu.stat")
    machine = [int(ticks) for ticks in _text(STAT).split("\n", 1)[0].split()[1:9]]
    return Cpu(
        worked_s,
        waited_s,
        limits.get("nr_periods", 0),
        limits.get("nr_throttled", 0),
        machine[7] if len(machine) > 7 else 0,
        sum(machine),
    )


class BusyShare:
    """Which share of the time the calling thread works or waits for a processor, over some
    `MEMORY_S`.
    """

    def __init__(self) -> None:
        self._next_look_s = self._looked_s = 0.0
        self._spent_s = self._share = 0.0

    def share(self, now_s: float) -> float:
        if now_s >= self._next_look_s:
            spent_s = sum(_scheduled())
            passed_s = now_s - self._looked_s
            if self._looked_s:
                latest = (spent_s - self._spent_s) / passed_s
                self._share += min(1.0, passed_s / MEMORY_S) * (latest - self._share)
            self._looked_s, self._next_look_s, self._spent_s = now_s, now_s + LOOK_S, spent_s
        return self._share


def quota() -> float | None:
    """How many cores the container may use; None: as many as there are."""
    folder = _cgroup()
    both = _text(folder / "cpu.max").split()
    if not both:
        both = [_text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    if len(both) == 2 and both[0].isdecimal() and both[1].isdecimal():
        return int(both[0]) / int(both[1])
    return None


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _scheduled() -> tuple[float, float]:
    try:
        worked_ns, waited_ns, *_ = SCHEDULED.read_text().split()
    except (OSError, ValueError):
        return time.thread_time(), 0.0
    return int(worked_ns) / 1e9, int(waited_ns) / 1e9


@cache
def _cgroup() -> Path:
    """The folder of this process' group that has the limits of the CPU, in either version."""
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        for root in (CGROUPS / controllers, CGROUPS / "cpu"):
            # Inside a container the path may be that of the host.
            for folder in (root / path.lstrip("/"), root):
                if (folder / "cpu.stat").is_file():
                    return folder
    return CGROUPS


def _counts(file: Path) -> dict[str, int]:
    pairs = (line.split() for line in _text(file).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
