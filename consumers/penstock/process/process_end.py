"""How a process of ours ends: by its exit code, by a signal while it starts, or with its parent.

Rule: a process exits as Python does, unless a loaded library could abort it meanwhile. A process
that is to end with its parent has a pipe of the parent as standard input, which the system closes
when the parent dies, for whatever reason; it then ends at once, without a drain. This module
imports nothing that takes time, because `penstock` needs it before all else. Signals while an event
loop runs: signals.py.
"""

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Final, NoReturn

from penstock.errors import EXIT_DONE


def leave(code: int) -> NoReturn:
    """Flush all output and end this process with an exit code."""
    if needs_shortcut(sys.version_info[:2], obstore_is_loaded="obstore" in sys.modules):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def leave_when_asked() -> None:
    """From now on SIGTERM and SIGINT end this process with code 0, until it sets its own handlers:
    while a worker loads its libraries there is nothing to drain yet.

    The handler calls `os._exit` and does not raise an exception. In a callback of Python's import
    system, Python would only report the exception, and the process would go on starting.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(EXIT_DONE))


def needs_shortcut(python: tuple[int, int], *, obstore_is_loaded: bool) -> bool:
    """True if the interpreter could abort during its own exit.

    Before Python 3.13, a thread of obstore that releases its last result at that moment aborts the
    process: about one exit in ten had code 134 (obstore 0.12, Python 3.11).
    """
    return obstore_is_loaded and python < (3, 13)


# This option is for our own programs that start `penstock`, not for people.
END_WITH_PARENT: Final = "--end-with-parent"
# The option of a process that waits in reserve until its parent sends it its environment.
RESERVE: Final = "--reserve"


def wait_for_place() -> None:
    """Blocks until the parent writes a line to our standard input: a JSON object of environment
    variables, which this process then takes over. From then on this process ends with the parent.
    If the parent ends before it wrote the line, this process ends as well.
    """
    text = b""
    while not text.endswith(b"\n"):
        more = os.read(0, 1 << 16)
        if not more:
            os._exit(EXIT_DONE)
        text += more
    os.environ.update(json.loads(text))
    end_with_parent()


def end_with_parent() -> None:
    """Returns at once; from then on the end of standard input kills this process."""
    when_parent_ends(lambda: os.kill(os.getpid(), signal.SIGKILL))


def when_parent_ends(act: Callable[[], object]) -> None:
    """Returns at once. When standard input ends, `act` is called in a thread."""

    def watch() -> None:
        while os.read(0, 1024):
            pass
        act()

    # This thread is a daemon and reads the bare descriptor, so that it neither keeps the process
    # alive nor holds a lock of Python's standard input at the exit.
    threading.Thread(target=watch, daemon=True).start()
