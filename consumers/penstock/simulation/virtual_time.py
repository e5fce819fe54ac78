"""An event loop whose clock jumps to the next timer as soon as no task can go on.

Rule: no real second passes; a 15 s drain costs nothing. When every task waits and no timer is set,
nothing can ever happen again: that is raised as `Deadlock` instead of hanging. Work in threads is
not for this loop.
"""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
EPOCH_MS = 1_800_000_000_000


async def inline(decode: Callable[[bytes], T], data: bytes) -> T:
    """Decoding in the place of threads."""
    return decode(data)


class Deadlock(Exception):
    """Every task waits for another one."""


class _JumpingSelector(selectors.SelectSelector):
    """Never blocks: the time it should have waited is added to the clock instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.on_turn: Callable[[], None] | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.on_turn is not None:
            self.on_turn()
        events = super().select(0)
        if not events:
            if timeout is None:
                raise Deadlock("every task waits and no timer is set")
            self.now_s += timeout
        return events


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Starts at second 0."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s

    def each_turn(self, look: Callable[[], None] | None) -> None:
        """Call `look` between any two turns of the loop, so after every step of every task."""
        self._jumping.on_turn = look


def run(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)


def virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make a coroutine function an ordinary one that runs on virtual time; for test functions."""

    @functools.wraps(test)
    def on_virtual_time(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(test(*args, **kwargs))

    return on_virtual_time


class VirtualClock:
    """The clock port on the loop's virtual time; wall time starts at `EPOCH_MS`."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        return EPOCH_MS + int(self.now() * 1000)
