"""Processes that outlive the command which started them.

Rule: a process is identified by its id together with its start time. The system may later give the
same id to another process, and that process must not be stopped. Each process leads a session of
its own and is stopped together with all processes that it started.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import chdir, suppress
from dataclasses import dataclass
from pathlib import Path

# After this time a process is killed. A broker takes a second or two to close its log.
STOP_S = 20.0
POLL_S = 0.05


@dataclass(frozen=True)
class Process:
    pid: int
    started: str

    @property
    def running(self) -> bool:
        return _start_time(self.pid) == self.started


def _start_time(pid: int) -> str | None:
    """When this process began, in the system's own units; None if it is gone or a zombie."""
    if Path("/proc/self/stat").exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        # proc(5): the name is in brackets, and may hold any character. After it come the state
        # (field 3) and, as field 22, the start time.
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    answer = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() or None


def start(argv: list[str], *, log: Path, cwd: Path, env: Mapping[str, str]) -> Process:
    """Start a process in its own session; its output is appended to `log`."""
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    streams = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), append, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    # Popen would warn if this command ends before the process does.
    with chdir(cwd):
        return find(
            os.posix_spawnp(argv[0], argv, {**os.environ, **env}, file_actions=streams, setsid=True)
        )


def find(pid: int) -> Process:
    """The process with this id. If there is none, `running` of the result is False."""
    return Process(pid, _start_time(pid) or "")


def stop(process: Process) -> None:
    """Stop the process and its children: first ask them to end, then kill them after `STOP_S`."""
    if not process.running:
        return
    _signal_group(process, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while time.monotonic() < deadline and process.running:
        time.sleep(POLL_S)
    # The kill is needed even if the process has ended, because children that ignored the request
    # must not keep their ports.
    _signal_group(process, signal.SIGKILL)
    while process.running:
        time.sleep(POLL_S)


def _signal_group(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def tail(log: Path) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])
