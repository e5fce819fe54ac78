"""Ctrl-C, SIGTERM and SIGHUP, in two steps: the first ends the streams, the second ends the demo.

Rule: while `gently` is set, the first signal sets `stop`. Any other signal cancels the task that
entered the block. The task is cancelled only once, so that nothing interrupts its cleaning up.
Owner: the demo.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from typing import Final, Self

from penstock.errors import Fatal

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Shells report this code for a command that Ctrl-C ended.
EXIT_INTERRUPTED: Final = 130


class Interrupts:
    """Use `async with Interrupts() as interrupts:` around the work that signals may stop."""

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


async def to_the_proof(play: Callable[[Interrupts], Awaitable[None]]) -> None:
    """Run `play` to its end. Raises `Fatal` if a signal ends it before the proof."""
    # The client's log lines would break the table. No error is lost, because the client also raises
    # each error that it logs.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    try:
        async with Interrupts() as interrupts:
            await play(interrupts)
    except asyncio.CancelledError:
        raise Fatal(
            "stopped before the proof; nothing is left running", exit_code=EXIT_INTERRUPTED
        ) from None
