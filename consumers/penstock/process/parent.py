"""Ends this process when its parent ends, for whatever reason.

Rule: the parent holds a pipe to this process's standard input. The system closes the pipe when the
parent dies, and this process then ends at once, without a drain: rows that it had not committed are
done again by another worker. Owner: the command line.
"""

import os
import signal
import threading
from collections.abc import Callable
from typing import Final

# An option for our own programs that start `penstock`, not for people.
OPTION: Final = "--end-with-parent"


def end_with_parent() -> None:
    """Returns at once; from then on the end of standard input kills this process."""
    when_parent_ends(lambda: os.kill(os.getpid(), signal.SIGKILL))


def when_parent_ends(act: Callable[[], object]) -> None:
    """Returns at once; `act` is called in a thread when standard input ends."""

    def watch() -> None:
        while os.read(0, 1024):
            pass
        act()

    # A daemon on the bare descriptor: it neither keeps the process alive nor holds a lock at exit.
    threading.Thread(target=watch, daemon=True).start()
