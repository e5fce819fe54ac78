"""How much CPU time and memory processes have used, and how often they woke up; waits until the
machine is quiet.

Rule: counts come from /proc; the services' process ids from the stack's own record. Figures that
are not available (containers) are left out, never guessed. A wake-up is a voluntary context switch.
"""

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import orjson

from penstock import config

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
_STACK = Path(__file__).parents[4] / "scripts" / "stack"
# The machine counts as quiet if other processes use no more cores than this. The kernel and idle
# services use about 0.1.
QUIET_CORES = 0.25
QUIET_LOOK_S = 1.0
# If other processes, such as a compiler or a test suite, are busy for longer than this, they will
# probably go on for very long.
QUIET_WAIT_S = 60.0


class Usage(NamedTuple):
    """What a process has used, together with its threads and living children. CPU time is counted
    in steps of 10 ms.
    """

    cpu_s: float
    peak_rss_bytes: int
    wakeups: int = 0


def usage(pid: int) -> Usage:
    """What the process has used so far; all zero if the process is gone."""
    cpu_ticks = peak_rss = wakeups = 0
    for member in family(pid):
        try:
            fields = _stat(member)
            # These are the fields utime and stime. The two fields after them are left out, because
            # they count children that have ended.
            cpu_ticks += int(fields[11]) + int(fields[12])
            peak_rss += _peak_rss_bytes(member)
            wakeups += _wakeups(member)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return Usage(cpu_ticks / _TICKS_PER_S, peak_rss, wakeups)


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on (proc(5)). The name of the process stands
    before them in brackets, and may itself have brackets, so the fields begin after the last
    bracket.
    """
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def _peak_rss_bytes(pid: int) -> int:
    for line in (_PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _wakeups(pid: int) -> int:
    """Wake-ups of the process's living threads."""
    return sum(
        int(text.partition("\nvoluntary_ctxt_switches:")[2].split(maxsplit=1)[0])
        for text in _of_threads(pid, "status")
    )


def family(pid: int) -> list[int]:
    """The process and all its living children, their children included."""
    pids = [pid]
    for member in pids:
        for children in _of_threads(member, "children"):
            pids += map(int, children.split())
    return pids


def _of_threads(pid: int, name: str) -> Iterator[str]:
    """For each living thread, the text of its file `name`. There are none if the process has just
    ended.
    """
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


def service_pids(cfg: config.Config) -> dict[str, int]:
    """For the name of each service (kafka, minio, torchserve), its process id. Empty if `cfg` names
    other services than those of the stack.
    """
    if not _STACK.exists():
        return {}
    answer = subprocess.run([_STACK, "status", "--json"], capture_output=True, check=False)
    try:
        services = orjson.loads(answer.stdout)["services"]
    except orjson.JSONDecodeError:
        return {}
    if "kafka" not in services or services["kafka"]["address"] != cfg.kafka.bootstrap_servers:
        return {}
    return {
        name: service["pid"] for name, service in services.items() if service["pid"] is not None
    }


def cpu_by_name(pids: Mapping[str, int]) -> dict[str, float]:
    """For the name of each process, the CPU seconds that it has used so far. The entry "machine"
    has those of the whole machine.
    """
    return {name: usage(pid).cpu_s for name, pid in pids.items()} | {"machine": machine_cpu_s()}


def wakeups_by_name(pids: Mapping[str, int]) -> dict[str, int]:
    """For the name of each process, how often its threads woke up so far."""
    return {name: usage(pid).wakeups for name, pid in pids.items()}


def others_s(used_s: Mapping[str, float]) -> float:
    """CPU time of the processes that are not a part of the measurement. `used_s`: for the name of
    each process of the measurement, its CPU time; the entry "machine" has the CPU time of all
    processes.
    """
    measured_s = sum(used_s.values()) - used_s["machine"]
    # CPU time is counted in steps, so the difference may come out negative.
    return max(0.0, used_s["machine"] - measured_s)


async def quiet(pids: Mapping[str, int], wait_s: float, tell: Callable[[str], None]) -> None:
    """Wait until other processes are quiet. If that takes longer than `wait_s`, say so and
    go on.
    """
    if not pids or not wait_s:
        return
    deadline_s = time.monotonic() + wait_s
    while True:
        before = cpu_by_name(pids)
        await asyncio.sleep(QUIET_LOOK_S)
        after = cpu_by_name(pids)
        others = others_s({name: after[name] - before[name] for name in after}) / QUIET_LOOK_S
        if others <= QUIET_CORES:
            return
        if time.monotonic() > deadline_s:
            tell(
                f"other processes use {others:.1f} cores: figures will be worse than they could be"
            )
            return
