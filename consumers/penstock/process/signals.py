"""SIGTERM and SIGINT while an event loop runs: they end a service, or drain a worker; the process
always ends.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Self

from penstock.errors import EXIT_UNREACHABLE
from penstock.process.process_end import when_parent_ends


def on_stop(call: Callable[[], object]) -> None:
    """From now on SIGTERM and SIGINT call the function `call`, in the running loop."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, call)


async def serve_until_asked(address: str) -> None:
    """An embedded service calls this when it is ready: print the service's address, then wait until
    SIGTERM, SIGINT or the end of standard input. Standard input is a pipe of the parent, which the
    system closes when the parent dies, so no service outlives its parent.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    on_stop(stop.set)
    when_parent_ends(lambda: loop.call_soon_threadsafe(stop.set))
    # The line is printed last, because the parent may ask for the end as soon as it has read the
    # line.
    print(address, flush=True)  # noqa: T201 (the line is the interface)
    await stop.wait()


class StopSignal:
    """Handles SIGTERM and SIGINT from now on. A signal cancels the start; once `then` was called, a
    signal stops the worker instead. A stop that takes longer than `within_s` ends the process. If
    this object is used as a context manager and a signal cancels the start, the block ends without
    an error.
    """

    def __init__(self, within_s: float) -> None:
        self.asked = False
        self._within_s = within_s
        self._task = asyncio.current_task()
        self._stop: Callable[[], None] | None = None
        on_stop(self._ask)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return self.asked and kind is not None and issubclass(kind, asyncio.CancelledError)

    def then(self, stop: Callable[[], None] | None) -> None:
        """From now on a signal calls `stop`; None: a signal cancels the task, as at the start."""
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
    """Exit this process after `seconds` if it still runs by then. The exit loses no row, because
    only delivered rows are committed. The timer has a thread of its own, so that a blocked event
    loop does not delay the exit.
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
