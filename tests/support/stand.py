"""How long a loop of virtual time stands still at most: the CPU time of one turn of it.

Rule: the one measure of time in tests, as how long nobody else has a turn is itself a promise. It
is time of the loop's own thread, so a busy machine adds nothing, and neither does what decoders do.
Owner: the tests that judge it.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.simulation.virtual_time import VirtualTimeLoop

# What nobody else may wait for; most turns take less than 5 ms.
MOST_STAND_S: Final = 0.020


class Stand:
    """`longest_s`: of the turns so far."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._began_s = time.thread_time()

    def look(self) -> None:
        now_s = time.thread_time()
        self.longest_s = max(self.longest_s, now_s - self._began_s)
        self._began_s = time.thread_time()


@contextmanager
def watched() -> Iterator[Stand]:
    """Of the loop that runs, while the body does."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    stand = Stand()
    loop.each_turn(stand.look)
    try:
        yield stand
    finally:
        loop.each_turn(None)
