"""The exit of a command's process.

Rule: the process exits as Python does, unless a loaded library could abort it on that way. Owner:
the command line.
"""

import logging
import os
import signal
import sys
from typing import NoReturn

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
    """SIGTERM and SIGINT end this process with code 0 until it sets its own handlers: while a
    worker loads its libraries there is nothing to drain yet.

    The handler calls `os._exit`. It does not raise an exception: in a callback of Python's import
    system, Python would only report the exception, and the process would go on starting.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(EXIT_DONE))


def needs_shortcut(python: tuple[int, int], *, obstore_is_loaded: bool) -> bool:
    """True if the interpreter could abort while it finalises.

    Before Python 3.13, a thread of obstore that releases its last result at that moment aborts the
    process: about one exit in ten had code 134 (obstore 0.12, Python 3.11).
    """
    return obstore_is_loaded and python < (3, 13)
