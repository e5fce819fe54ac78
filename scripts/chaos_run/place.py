"""Where a run happens: services, topics and a bucket, and the only things it may do to services.

Rule: what makes a place has made its topics (with `plan.PARTITIONS` partitions) and its bucket.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from consumers import config
from realstack import layout, stack


@dataclass(frozen=True)
class Place:
    """`environ`: all variables of a worker. `model_worker_pid`: the process that serves the model
    now, if there is one. `restart` stops one of Kafka, MinIO, TorchServe and starts it again;
    `crash` freezes it for so many seconds, kills it, and starts it after so many more.
    """

    environ: Mapping[str, str]
    bucket: str
    folder: Path
    model_worker_pid: Callable[[], int | None]
    restart: Callable[[str], object]
    crash: Callable[[str, float, float], object]

    @cached_property
    def config(self) -> config.Config:
        return config.load(environ=self.environ)

    @property
    def is_exactly_once(self) -> bool:
        return self.config.delivery.guarantee == "exactly_once"

    @property
    def isolation(self) -> str:
        """How readers of the output topic read."""
        return "read_committed" if self.is_exactly_once else "read_uncommitted"


def model_worker_pid() -> int | None:
    """Of the local stack: TorchServe's Python process, the child of its Java one."""
    state = layout.load()
    server = state.processes.get("torchserve") if state else None
    if server is None:
        return None
    answer = subprocess.run(
        ["pgrep", "-P", str(server.pid)], capture_output=True, text=True, check=False
    )
    children = answer.stdout.split()
    return int(children[0]) if children else None


def crash(service: str, hangs_s: float, away_s: float) -> None:
    """Of the local stack. Blocks."""
    state = layout.load()
    assert state is not None
    pid = state.processes[service].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(hangs_s)
    finally:
        os.kill(pid, signal.SIGKILL)
    time.sleep(away_s)
    stack.restart(service)
