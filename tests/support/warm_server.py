"""A Python that has loaded what a module needs, and becomes `python -m` of it by a fork (`forks`).

Owner: `warm_start`, which starts it.
"""

import gc
import importlib
import os
import runpy
import socket
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

import pyarrow

from penstock.decoders import decoder_process
from penstock.decoders.zygote_client import COMMAND
from tests.support.forks import (
    HIGH_FD,
    MESSAGE_BYTES,
    Start,
    early_of,
    fork_of,
    heard,
    serve,
    settle,
    starting,
    told,
)

COMMANDS: Final = "penstock"
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
# A command that starts many processes, all by `python -m` and all of ours.
STARTS_OTHERS: Final = "bench"


def become(module: str, start: Start, fds: Sequence[int]) -> None:
    """This process is the command from here on."""
    nursery = Nursery() if start.arguments[1:2] == [STARTS_OTHERS] else None
    # With several members the command itself decodes nothing, and its children are its members.
    decodes = module == COMMANDS and "--processes" not in start.arguments
    spare = Spare() if decodes and nursery is None else None
    settle(start, fds)
    if nursery is not None:
        nursery.takes_the_place()
    if spare is not None:
        spare.takes_the_place()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


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
        has_only(line)
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


class Nursery:
    """A process at rest that has loaded all of that, too: what the command starts by `python -m` is
    forked from it. It ends with the command.
    """

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES)
        if not os.fork():
            self._line.close()
            has_only(theirs)
            serve(theirs, become_named)
            sys.exit()
        theirs.close()

    def takes_the_place(self) -> None:
        early = early_of(os.environ)

        def take(start: Start, fds: Sequence[int]) -> int | None:
            return fork_of(self._line, start, fds) if early_of(start.environ) == early else None

        starting((sys.executable, "-m"), take)


def become_named(start: Start, fds: Sequence[int]) -> None:
    """The first argument names the module."""
    _, module, *arguments = start.arguments
    sys.modules.pop(module, None)  # it is run, not imported
    become(module, start._replace(arguments=[module, *arguments]), fds)


def has_only(line: socket.socket) -> None:
    """Of all that is open; the pipes of a command must end with the command."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(nothing, fd)
    os.closerange(3, line.fileno())
    os.closerange(line.fileno() + 1, HIGH_FD)


def main() -> None:
    module = sys.argv[1]
    for name in LOADED if module == COMMANDS else [module]:
        importlib.import_module(name)
    if module != COMMANDS:
        del sys.modules[module]  # it is run, not imported
    gc.freeze()  # the collector leaves what exists now alone: it stays shared
    serve(socket.socket(fileno=int(sys.argv[2])), partial(become, module))


if __name__ == "__main__":
    main()
