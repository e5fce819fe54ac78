"""An event loop whose clock jumps to the next timer as soon as no task can go on.

Rule: no real time passes; a drain of 15 s costs nothing. If every task waits and no timer is set,
nothing can ever happen again: then `Deadlock` is raised, so that the test does not hang. Work on
other threads is not waited for, so threads cannot be used with this loop.
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
    """Do the work in the event loop itself, in place of a thread."""
    return work()


class Deadlock(Exception):
    """Every task waits for another one."""


class _JumpingSelector(selectors.SelectSelector):
    """Never blocks: instead of waiting, it adds the time of the wait to the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.on_turn: Callable[[], None] | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.on_turn is not None:
            self.on_turn()
        # With `timeout` 0, tasks are ready: the system is asked only when none is, because asking
        # takes as long as a short task.
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
        """Call `look` between any two turns of the loop: after the steps of all ready tasks."""
        self._jumping.on_turn = look


def run(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)


def virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Turn a coroutine function into a test function that runs on virtual time."""

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
