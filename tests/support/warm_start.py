"""`penstock` as a process of its own, at a twentieth of what a start costs: 0.05 s of a core in the
place of 1 s; so are the process that decoders are forked from, and a member that stands in for one.

Rule: for tests that are about what a process does. What is started is a process in every respect, a
child of ours, but its libraries were loaded before. Tests of the start itself and of memory use
`python -m penstock`. Owner: the process that runs tests.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tests.support.forks import MESSAGE_BYTES, Start, early_of, fork_of, starting

# Begins a command line. Without us, Python ignores the option that it does not know.
PENSTOCK: Final = (sys.executable, "-X", "warm", "-m", "penstock")
STUB: Final = (sys.executable, "-X", "warm", "-m", "tests.support.stub_worker")
# `zygote_client.COMMAND`, whose module loads more than most tests need.
ZYGOTE: Final = (sys.executable, "-P", "-m", "penstock.decoders.decoder_process")
ROOT: Final = Path(__file__).resolve().parents[2]

_one_at_a_time = threading.Lock()


class _Server:
    """It ends when our end of its line is closed, as we end at the latest. `late`: the variables
    among the early ones that its forks obey, too.
    """

    def __init__(self, *command: str, environ: Mapping[str, str], late: Sequence[str] = ()) -> None:
        self._late = frozenset(late)
        self._early = self._early_of(environ)
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES)
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                cwd=ROOT, env={**environ, "OPENBLAS_NUM_THREADS": "1"},  # else it starts threads
                stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip

    def _early_of(self, environ: Mapping[str, str]) -> Mapping[str, str]:
        return early_of({name: environ[name] for name in environ.keys() - self._late})

    def is_what_starts(self, environ: Mapping[str, str]) -> bool:
        return self._early_of(environ) == self._early


_servers: dict[Sequence[str], _Server] = {}


def _take(words: Sequence[str], start: Start, fds: Sequence[int]) -> int | None:
    """The process's id; None if the server would be another process than a new one."""
    # A new one would ignore what we ignore.
    if signal.getsignal(signal.SIGCHLD) != signal.SIG_DFL:
        return None
    with _one_at_a_time:
        server = _servers.get(words) or _servers.setdefault(words, _started(words, start))
        if not server.is_what_starts(start.environ):
            return None
        return fork_of(server.line, start, fds)


def _started(words: Sequence[str], start: Start) -> _Server:
    if words == ZYGOTE:
        module = "tests.support.warm_zygote"
        return _Server(*words[:-1], module, environ=start.environ, late=["PYTHONPATH"])
    module = "tests.support.warm_server"
    return _Server(sys.executable, "-m", module, words[-1], environ=os.environ)


def start_warm() -> None:
    """From now on, in this process."""
    if sys.platform == "linux":  # the only one that gives a process other children than its own
        for words in (PENSTOCK, STUB, ZYGOTE):
            starting(words, partial(_take, words))
