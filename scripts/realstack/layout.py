"""Where the stack's files are, which ports it takes, and the record of what was started.

Rule: builds are in the cache, which all checkouts of the user share. Data, logs and ports of the
running services are in the state folder, which `down` empties. A user has one stack.
"""

import fcntl
import json
import os
import random
import shutil
import socket
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from realstack.processes import Process

ROOT = Path(__file__).resolve().parents[2]
# These ports are below those that a system takes for outgoing connections (from 32768 on Linux,
# 49152 on macOS). Otherwise a client that tries to reach a stopped service again and again could be
# given the service's port as its own port, and would connect to itself.
PORTS = range(20000, 30000)
How = Literal["docker", "local"]
PORT_NAMES = (
    "kafka",
    "kafka_controller",
    "kafka_oauth",
    "minio",
    "torchserve",
    "torchserve_metrics",
    "torchserve_grpc",
    "torchserve_grpc_management",
    "torchserve_worker",
)


def _xdg(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / default) / "penstock"


def cache() -> Path:
    return _xdg("XDG_CACHE_HOME", ".cache")


def home() -> Path:
    return _xdg("XDG_STATE_HOME", ".local/state") / "stack"


@dataclass
class State:
    """The services that `up` started. `archive`: the fingerprint of the archive that TorchServe
    loaded. `missing`: for each optional model server that was asked for but is not there, the
    reason.
    """

    how: How
    ports: dict[str, int]
    processes: dict[str, Process] = field(default_factory=dict)
    archive: str = ""
    missing: dict[str, str] = field(default_factory=dict)

    def save(self) -> None:
        draft = home() / "state.json.new"
        draft.write_text(json.dumps(asdict(self), indent=2))
        draft.rename(home() / "state.json")


def load() -> State | None:
    path = home() / "state.json"
    if not path.exists():
        return None
    document = json.loads(path.read_text())
    document["processes"] = {
        name: Process(**process) for name, process in document["processes"].items()
    }
    return State(**document)


def forget() -> None:
    """Remove everything but the lock's file: another command may be waiting for the lock."""
    for path in home().iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "lock":
            path.unlink()


@contextmanager
def locked() -> Iterator[None]:
    """Lets one `up`, `down` or `restart` run at a time. A second command waits, and then finds the
    work done.
    """
    home().mkdir(parents=True, exist_ok=True)
    with (home() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def free_ports(names: Collection[str] = PORT_NAMES) -> dict[str, int]:
    """Chooses for each name a port on which nothing listens."""
    chosen: dict[str, int] = {}
    candidates = iter(random.sample(PORTS, len(PORTS)))
    for name in names:
        chosen[name] = next(port for port in candidates if _is_free(port))
    return chosen


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def build_once(target: Path, make: Callable[[Path], None]) -> None:
    """Have `make` fill a folder, which then becomes `target`. If `make` fails, the folder is
    removed. If several checkouts build at the same time, one of them builds, and the others wait
    and use its build.
    """
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _build(target, make)


def _build(target: Path, make: Callable[[Path], None]) -> None:
    scratch = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        make(scratch)
        scratch.chmod(0o755)  # mkdtemp's mode 0700 would keep other users out of a shared cache
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
