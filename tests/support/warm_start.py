"""`penstock` as a process of its own, at a twentieth of what a start costs: 0.05 s of a core in the
place of 1 s.

Rule: for tests that are about what a command does. What is started is a process in every respect, a
child of ours, but its libraries were loaded before. Tests of the start itself and of memory use
`python -m penstock`. Owner: the process that runs tests.
"""

import ctypes
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.warm_server import GO, MESSAGE_BYTES, Start, starting, told

# Begins a command line. Without us, Python ignores the option that it does not know.
PENSTOCK: Final = (sys.executable, "-X", "warm", "-m", "penstock")
ROOT: Final = Path(__file__).resolve().parents[2]
# Variables that Python and the C library look at while they are loaded begin so.
EARLY: Final = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_")
_SET_CHILD_SUBREAPER: Final = 36

_one_at_a_time = threading.Lock()


@cache
def _server() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Our end of it, and itself; it ends when our end is closed, as we end at the latest."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES)
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.warm_server", str(theirs.fileno())],
        cwd=ROOT, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # else it starts threads
        stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True,
    )  # fmt: skip
    theirs.close()
    return ours, server


def _take(start: Start, fds: Sequence[int]) -> int | None:
    """The process's id; None if the server would be another process than a new one."""
    if not _is_loaded_alike(start.environ):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    with _one_at_a_time:
        line, _ = _server()
        told(line, start, fds)
        number = line.recv(MESSAGE_BYTES)
        if not number:
            return None
        # Its parent ends now, and we are the next who take in such children.
        prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            line.send(GO)
            line.recv(MESSAGE_BYTES)
        finally:
            prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    return int(number)


def _is_loaded_alike(environ: Mapping[str, str]) -> bool:
    early = {name for name in {*environ, *os.environ} if name.startswith(EARLY)}
    return all(environ.get(name) == os.environ.get(name) for name in early)


if sys.platform == "linux":  # the only one that gives a process other children than its own
    starting(PENSTOCK, _take)
