"""Ctrl-C and its relatives, in two steps.

Rule: while `gently` is set, the first signal sets `stop`. Any other signal cancels the task that
entered, but only once, so that nothing interrupts its cleaning up. Owner: the demo.
"""

import asyncio
import signal
from typing import Final, Self

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """`async with Interrupts() as interrupts:` around the work that signals may stop."""

    def __init__(self) -> None:
        self.gently = False
        self.stop = asyncio.Event()
        self._cancelled = False
        self._task: asyncio.Task[object] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        return self

    async def __aexit__(self, *_: object) -> None:
        for number in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _on_signal(self) -> None:
        if self.gently and not self.stop.is_set():
            self.stop.set()
        elif self._task is not None and not self._cancelled:
            self._cancelled = True
            self._task.cancel()
