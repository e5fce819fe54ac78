"""A process that has loaded what another needs, and becomes that one by a fork when it is asked.

Rule: it starts no thread and runs nothing else, so that a fork finds everything at rest. What it
forks is a child of the process that asked. It ends with that one. Owner: `warm_start`, which asks.
"""

import array
import ctypes
import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

MESSAGE_BYTES: Final = 1 << 20
MOST_FDS: Final = 16
# Above those that a process is given which is not started from one with many files.
HIGH_FD: Final = 200
GO: Final = b"go"
# Variables that Python and the C library look at while they are loaded begin so.
EARLY: Final = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_")
_SET_CHILD_SUBREAPER: Final = 36


class Start(NamedTuple):
    """A process as `subprocess` would start it; `fds` are those of its standard streams, then
    those of `numbers`.
    """

    arguments: Sequence[str]
    environ: Mapping[str, str]
    folder: str
    is_session: bool
    numbers: Sequence[int]


def told(line: socket.socket, start: Start, fds: Sequence[int]) -> None:
    """Ask the process at the other end."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
    line.sendmsg([json.dumps(start).encode()], rights)


def fork_of(line: socket.socket, start: Start, fds: Sequence[int]) -> int | None:
    """Ask the process at the other end, and take in what it forks. The id of the new process; None
    if there was none.
    """
    told(line, start, fds)
    number = line.recv(MESSAGE_BYTES)
    if not number:
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    # Its parent ends now, and we are the next who take in such children.
    prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        line.send(GO)
        line.recv(MESSAGE_BYTES)
    finally:
        prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    return int(number)


def early_of(environ: Mapping[str, str]) -> Mapping[str, str]:
    """What a process obeys only while it is loaded."""
    return {name: value for name, value in environ.items() if name.startswith(EARLY)}


def heard(line: socket.socket) -> tuple[Start, list[int]] | None:
    """What the process is asked for; None if nobody can ask any more."""
    message, fds, _, _ = socket.recv_fds(line, MESSAGE_BYTES, MOST_FDS)
    return (Start(*json.loads(message)), fds) if message else None


def serve(line: socket.socket, become: Callable[[Start, Sequence[int]], object]) -> None:
    """Each that is asked for is a fork of this process that does `become`."""
    while (asked := heard(line)) is not None:
        start, fds = asked
        alive, dead = os.pipe()
        between = os.fork()
        if not between:
            # Between us and what was asked for, which has its parent by the end of this one.
            number = os.fork()
            if not number:
                os.close(dead)
                os.read(alive, 1)
                line.close()
                os.close(alive)
                become(start, fds)
                return
            line.send(b"%d" % number)
            line.recv(len(GO))
            os._exit(0)
        for fd in (alive, dead, *fds):
            os.close(fd)
        os.waitpid(between, 0)
        line.send(GO)


def settle(start: Start, fds: Sequence[int]) -> None:
    """Be as a new process would be."""
    above = max(HIGH_FD, *fds, *start.numbers) + 1
    high = [os.dup2(fd, above + at) for at, fd in enumerate(fds)]
    for fd in fds:
        os.close(fd)
    for fd, number in zip(high, (0, 1, 2, *start.numbers), strict=True):
        os.dup2(fd, number)
        os.close(fd)
    if start.is_session:
        os.setsid()
    os.chdir(start.folder)
    os.environ.clear()
    os.environ.update(start.environ)
    sys.path[0] = start.folder
    sys.argv = list(start.arguments)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
    sys.stdout = stream(1, "strict")
    sys.stderr = stream(2, "backslashreplace")


def stream(fd: int, errors: str) -> io.TextIOWrapper:
    raw = io.FileIO(fd, "w", closefd=False)
    is_by_line = fd == 2 or os.isatty(fd)
    return io.TextIOWrapper(io.BufferedWriter(raw), errors=errors, line_buffering=is_by_line)


def starting(words: Sequence[str], take: Callable[[Start, Sequence[int]], int | None]) -> None:
    """From now on in this process: what is a command line that begins with these words is started
    by `take`, which returns its process id, or None if it cannot.
    """
    usual = subprocess.Popen._execute_child  # type: ignore[attr-defined]

    def execute(
        popen: Any, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any,
        cwd: Any, env: Any, startupinfo: Any, creationflags: Any, shell: Any, *rest: Any,
    ) -> None:  # fmt: skip
        pipes, (*_, is_session, _group) = rest[:6], rest[6:]
        is_ours = isinstance(args, list | tuple) and tuple(args[: len(words)]) == tuple(words)
        if is_ours and not shell and preexec_fn is None:
            given = (pipes[0], pipes[3], pipes[5])
            fds = [usual_fd if fd == -1 else fd for usual_fd, fd in enumerate(given)]
            arguments = ["penstock", *args[len(words) :]]
            environ = os.environ if env is None else env
            start = Start(arguments, dict(environ), str(cwd or Path.cwd()), is_session, pass_fds)
            number = take(start, [*fds, *pass_fds])
            if number is not None:
                popen.pid, popen._child_created = number, True
                popen._close_pipe_fds(*pipes)
                return
        usual(
            popen, args, executable, preexec_fn, close_fds, pass_fds,
            cwd, env, startupinfo, creationflags, shell, *rest,
        )  # fmt: skip

    subprocess.Popen._execute_child = execute  # type: ignore[attr-defined]
