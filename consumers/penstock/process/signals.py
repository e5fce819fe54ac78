"""SIGTERM and SIGINT once a loop runs: they end a service, or drain a worker.

Rule: a signal lets work in progress end in its own time, and then always ends the process. Before
there is a loop, `command_exit` handles signals. Owner: the command that runs until it is asked to
end.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable

from penstock.errors import EXIT_UNREACHABLE


def on_stop(call: Callable[[], object]) -> None:
    """SIGTERM and SIGINT call this, in the loop that runs."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, call)


class StopSignal:
    """Handles SIGTERM and SIGINT from the first moment on: ends the start, or drains the worker."""

    def __init__(self, within_s: float) -> None:
        self.asked = False
        self._within_s = within_s
        self._task = asyncio.current_task()
        self._stop: Callable[[], None] | None = None
        on_stop(self._ask)

    def then(self, stop: Callable[[], None] | None) -> None:
        """From now on a signal calls this instead of cancelling the task; None: cancels again."""
        self._stop = stop

    def _ask(self) -> None:
        if not self.asked:
            end_within(self._within_s)
        self.asked = True
        if self._stop is not None:
            self._stop()
        elif self._task is not None:
            self._task.cancel()


def end_within(seconds: float) -> None:
    """This process exits after this many seconds at the latest. Nothing is lost by it, as only
    delivered rows are committed. A blocked event loop does not delay the thread of the timer.
    """
    timer = threading.Timer(seconds, _end, [seconds])
    timer.daemon = True
    timer.start()


def _end(seconds: float) -> None:
    sys.stderr.write(
        f"penstock: the stop did not end within {seconds:g} s. Nothing is lost: what was not "
        "committed will be repeated.\n"
    )
    sys.stderr.flush()
    os._exit(EXIT_UNREACHABLE)
