"""An event loop whose clock jumps to the next timer as soon as no task can go on.

Rule: no real second passes; a drain of 15 s costs nothing. If every task waits and no timer is set,
nothing can ever happen again: `Deadlock` is raised then, so that the test does not hang. Threads do
not work on this loop.
"""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
EPOCH_MS = 1_800_000_000_000


async def inline(work: Callable[[], T]) -> T:
    """Works in place, for loops on which threads do not work."""
    return work()


class Deadlock(Exception):
    """Every task waits for another one."""


class _JumpingSelector(selectors.SelectSelector):
    """Never blocks: it adds the time it should have waited to the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.on_turn: Callable[[], None] | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.on_turn is not None:
            self.on_turn()
        # Asking the system takes as long as a short task, and whatever is ready can wait.
        events = [] if timeout == 0 else super().select(0)
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
        """Call `look` between any two turns of the loop: after every step of every task."""
        self._jumping.on_turn = look


def run(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)


def virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Makes a test function of a coroutine function, which then runs on virtual time."""

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
