"""How long a loop of virtual time stands still at most: the CPU time of one turn of it.

Rule: the one measure of time in tests, as how long nobody else has a turn is itself a promise. It
is time of the loop's own thread, so a busy machine adds nothing, and neither does what decoders do.
A slow processor is given as much more time as it needs more for a loop of additions. Owner: the
tests that judge it.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.tools.simulation.virtual_time import VirtualTimeLoop

# What nobody else may wait for; most turns take less than 5 ms.
_MOST_STAND_S: Final = 0.020
_ADDITIONS: Final = 1_000_000
# What these take on the processors for which the bound is promised.
_ADDITIONS_S: Final = 0.060


def is_too_long(stand_s: float) -> bool:
    if stand_s <= _MOST_STAND_S:
        return False
    slowness = min(_additions_s() for _ in range(3)) / _ADDITIONS_S
    return stand_s > _MOST_STAND_S * slowness


def _additions_s() -> float:
    began_s, total = time.thread_time(), 0
    for number in range(_ADDITIONS):
        total += number
    return time.thread_time() - began_s


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
