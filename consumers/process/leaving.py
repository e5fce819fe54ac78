"""The end of a command's process.

Rule: a process leaves as Python does, unless a library that it loaded would abort that way. Owner:
the command line.
"""

import logging
import os
import sys
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """End this process with an exit code, everything written."""
    if needs_shortcut(sys.version_info[:2], obstore_is_loaded="obstore" in sys.modules):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def needs_shortcut(python: tuple[int, int], *, obstore_is_loaded: bool) -> bool:
    """Would the interpreter abort while it finalises?

    Before Python 3.13, a thread of obstore that lets go of its last result at that moment aborts
    the process: about one exit in ten then had code 134 (obstore 0.12, Python 3.11).
    """
    return obstore_is_loaded and python < (3, 13)
