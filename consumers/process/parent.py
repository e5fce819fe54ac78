"""A process that ends with the one that started it, however that one ends.

Rule: the parent holds a pipe, which is this process's standard input. The system closes the pipe
when the parent dies, and this process then ends at once. It needs no farewell: what a worker
leaves undone, the next worker does again. Owner: the command line.
"""

import os
import signal
import threading
from collections.abc import Callable
from typing import Final

# For our own programs that start `penstock`; people have no use for it.
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
