"""Ends this process when its parent ends, for whatever reason.

Rule: the parent holds a pipe to this process's standard input. The system closes the pipe when the
parent dies, and this process then ends at once, without a drain: rows that it had not committed are
done again by another worker. Owner: the command line.
"""

import json
import os
import signal
import threading
from collections.abc import Callable
from typing import Final

from penstock.errors import EXIT_DONE

# This option is for our own programs that start `penstock`, not for people.
OPTION: Final = "--end-with-parent"
# The option of a process that waits in reserve until its parent gives it a place.
RESERVE: Final = "--reserve"


def wait_for_place() -> None:
    """Blocks until the parent writes a line to our standard input: a JSON object of environment
    variables, which become ours. From then on we end with the parent. If the parent ends before it
    wrote the line, this process ends as well.
    """
    said = b""
    while not said.endswith(b"\n"):
        more = os.read(0, 1 << 16)
        if not more:
            os._exit(EXIT_DONE)
        said += more
    os.environ.update(json.loads(said))
    end_with_parent()


def end_with_parent() -> None:
    """Returns at once; from then on the end of standard input kills this process."""
    when_parent_ends(lambda: os.kill(os.getpid(), signal.SIGKILL))


def when_parent_ends(act: Callable[[], object]) -> None:
    """Returns at once; `act` is called in a thread when standard input ends."""

    def watch() -> None:
        while os.read(0, 1024):
            pass
        act()

    # A daemon thread that reads the bare descriptor neither keeps the process alive nor holds a
    # lock of Python's standard input at the exit.
    threading.Thread(target=watch, daemon=True).start()
