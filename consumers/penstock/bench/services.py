"""How CPU time is shared out: the worker, each service, the bench, and all other processes.

Rule: the stack's own record says which processes are the services'. A figure that is not available
(services in containers, or started by other means) is left out, never guessed. Owner: the bench.
"""

import asyncio
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import orjson

from penstock import config
from penstock.bench.usage import machine_cpu_s, usage

_STACK = Path(__file__).parents[3] / "scripts" / "stack"
# In cores. The kernel, and services with nothing to do, take about 0.1.
QUIET_CORES = 0.25
QUIET_LOOK_S = 1.0
# A compiler or a test suite of the same user has ended by then, or goes on for very long.
QUIET_WAIT_S = 60.0


def service_pids(cfg: config.Config) -> dict[str, int]:
    """By name (kafka, minio, torchserve); empty unless the stack is what `cfg` points at."""
    if not _STACK.exists():
        return {}
    answer = subprocess.run([_STACK, "status", "--json"], capture_output=True, check=False)
    try:
        found = orjson.loads(answer.stdout)["services"]
    except orjson.JSONDecodeError:
        return {}
    if "kafka" not in found or found["kafka"]["address"] != cfg.kafka.bootstrap_servers:
        return {}
    return {name: one["pid"] for name, one in found.items() if one["pid"] is not None}


def cpu_by_name(pids: Mapping[str, int]) -> dict[str, float]:
    """CPU seconds used so far by each, and by the whole machine."""
    return {name: usage(pid).cpu_s for name, pid in pids.items()} | {"machine": machine_cpu_s()}


def wakeups_by_name(pids: Mapping[str, int]) -> dict[str, int]:
    """Wake-ups of all threads so far, by process."""
    return {name: usage(pid).wakeups for name, pid in pids.items()}


def others_s(used_s: Mapping[str, float]) -> float:
    """CPU time of the processes that are not a part of the measurement."""
    # CPU time is counted in steps, so the difference may come out negative.
    return max(0.0, 2 * used_s["machine"] - sum(used_s.values()))


async def quiet(pids: Mapping[str, int], wait_s: float, tell: Callable[[str], None]) -> None:
    """Wait until other processes are quiet. If that takes too long, go on, and say so."""
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
