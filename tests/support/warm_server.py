"""A Python that has loaded what `penstock` needs, and becomes a command of it by a fork.

Rule: it runs no command itself and starts no thread, so that a fork finds everything at rest. What
it forks is a child of the process that asked: its own parent. It ends with that one. Owner:
`warm_start`, which starts it.
"""

import array
import gc
import importlib
import io
import json
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow

from penstock.decoders import decoder_process
from penstock.decoders.zygote_client import COMMAND

# What a worker, a replay and most other commands load.
LOADED: Final = (
    "penstock.commands.root",
    "penstock.adapters.confluent.source",
    "penstock.adapters.kafka.announcer",
    "penstock.tools.dlq.list_and_resume",
    "penstock.tools.dlq.redrive",
    "penstock.tools.doctor.examine",
    "penstock.tools.jobs.produce",
    "penstock.tools.jobs.progress",
    "penstock.tools.jobs.until_end",
    "penstock.library.model_and_shard",
    "penstock.tools.lint",
    "penstock.ops.supervisor",
    "penstock.tools.replay.run_replay",
    "penstock.tools.replay.run_replay",
    "penstock.tools.verify.answer_lines",
    "penstock.tools.verify.trace",
    "penstock.tools.verify.read_topics",
    "penstock.worker.run_worker",
    "penstock.worker.dry_run",
    "penstock.worker.rekey",
)
MESSAGE_BYTES: Final = 1 << 20
MOST_FDS: Final = 16
# Above all descriptors that a started process is given.
HIGH_FD: Final = 200
GO: Final = b"go"


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


def heard(line: socket.socket) -> tuple[Start, list[int]] | None:
    """What the process is asked for; None if nobody can ask any more."""
    message, fds, _, _ = socket.recv_fds(line, MESSAGE_BYTES, MOST_FDS)
    return (Start(*json.loads(message)), fds) if message else None


def serve(line: socket.socket) -> None:
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


def become(start: Start, fds: Sequence[int]) -> None:
    """This process is the command from here on."""
    # With several members the command itself decodes nothing, and its children are its members.
    spare = None if "--processes" in start.arguments else Spare()
    settle(start, fds)
    if spare is not None:
        spare.takes_the_place()
    runpy.run_module("penstock", run_name="__main__", alter_sys=True)


def settle(start: Start, fds: Sequence[int]) -> None:
    """Be as a new process would be."""
    high = [os.dup2(fd, HIGH_FD + at) for at, fd in enumerate(fds)]
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


class Spare:
    """A process in the place of the one that decoders are forked from: it has loaded all of that,
    too. Made before the command begins, as a process at work cannot be forked.
    """

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._number: int | None = os.fork()
        if not self._number:
            self._line.close()
            self._wait(theirs)
        theirs.close()

    @staticmethod
    def _wait(line: socket.socket) -> None:
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(nothing, fd)
        os.closerange(3, line.fileno())
        os.closerange(line.fileno() + 1, HIGH_FD)
        asked = heard(line)
        line.close()
        if asked is not None:
            settle(*asked)
            # As if it were loaded with these variables: a decoder may make few threads.
            pyarrow.set_cpu_count(int(os.environ["OMP_NUM_THREADS"]))
            pyarrow.set_io_thread_count(int(os.environ["ARROW_IO_THREADS"]))
            decoder_process.main()
        os._exit(0)

    def takes_the_place(self) -> None:
        """From now on, of the first such process that is started."""

        def take(start: Start, fds: Sequence[int]) -> int | None:
            number, self._number = self._number, None
            if number is not None:
                told(self._line, start, fds)
                self._line.close()
            return number

        starting(COMMAND, take)


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


def main() -> None:
    for name in LOADED:
        importlib.import_module(name)
    gc.freeze()  # the collector leaves what exists now alone: it stays shared
    serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
