"""The end of a command's process.

Rule: a process leaves as Python does, unless a library that it loaded would abort that way. Owner:
the command line.
"""

import logging
import os
import signal
import sys
from typing import NoReturn

from consumers.errors import EXIT_DONE


def leave(code: int) -> NoReturn:
    """End this process with an exit code, everything written."""
    if needs_shortcut(sys.version_info[:2], obstore_is_loaded="obstore" in sys.modules):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def leave_when_asked() -> None:
    """SIGTERM and SIGINT end this process with code 0, until it sets handlers of its own: while a
    worker loads its libraries there is nothing yet to drain.

    At once, not by an exception: Python only reports one that is raised in a callback of its import
    system, and the process would go on starting.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(EXIT_DONE))


def needs_shortcut(python: tuple[int, int], *, obstore_is_loaded: bool) -> bool:
    """Would the interpreter abort while it finalises?

    Before Python 3.13, a thread of obstore that lets go of its last result at that moment aborts
    the process: about one exit in ten then had code 134 (obstore 0.12, Python 3.11).
    """
    return obstore_is_loaded and python < (3, 13)
