"""Which processes of this machine are the services: the stack's own record of what it started.

Rule: a figure that cannot be had (services in containers, or started by somebody else) is left out,
never guessed.
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from consumers import config
from consumers.bench.usage import usage

_STACK = Path(__file__).parents[2] / "scripts" / "stack"


class _Service(Struct):
    address: str | None = None
    pid: int | None = None


class _Status(Struct):
    services: dict[str, _Service]


def service_pids(cfg: config.Config) -> dict[str, int]:
    """By name (kafka, minio, torchserve); empty unless the stack is what `cfg` points at."""
    if not _STACK.exists():
        return {}
    answer = subprocess.run([_STACK, "status", "--json"], capture_output=True, check=False)
    try:
        status = msgspec.json.decode(answer.stdout, type=_Status)
    except msgspec.DecodeError:
        return {}
    kafka = status.services.get("kafka", _Service())
    if kafka.address != cfg.kafka.bootstrap_servers:
        return {}
    return {name: found.pid for name, found in status.services.items() if found.pid is not None}


def cpu_by_name(pids: Mapping[str, int]) -> dict[str, float]:
    """CPU seconds used so far."""
    return {name: usage(pid).cpu_s for name, pid in pids.items()}
