"""An event loop whose clock jumps to the next timer as soon as no task can go on.

Rule: if every task waits and no timer is set, `Deadlock` is raised. The loop does not wait for
other threads, so threads cannot be used with it.
"""

import asyncio
import contextvars
import functools
import heapq
import itertools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar, TypeVarTuple

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
EPOCH_MS = 1_800_000_000_000


async def inline(work: Callable[[], T]) -> T:
    """Do the work in the event loop itself instead of a thread."""
    return work()


class Deadlock(Exception):
    """Every task waits for another one, so none can ever go on."""


class _Timer(asyncio.TimerHandle):
    """A timer that rings after the timers of the same instant that were set before it. With
    asyncio's own heap, the order of the timers of one instant depends on all other timers.
    """

    def __init__(self, order: tuple[float, int], *given: Any) -> None:
        super().__init__(order[0], *given)
        self._scheduled = True
        self.order = order

    def __lt__(self, other: object) -> bool:
        assert isinstance(other, _Timer)
        return self.order < other.order


class _JumpingSelector(selectors.SelectSelector):
    """Never blocks. Instead of waiting, it sets the clock to the time of the next timer."""

    def __init__(self, next_timer_s: Callable[[], float]) -> None:
        super().__init__()
        self._next_timer_s = next_timer_s
        self.now_s = 0.0
        self.on_turn: Callable[[], None] | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.on_turn is not None:
            self.on_turn()
        # If `timeout` is 0, tasks are ready. The system is asked only when no task is ready,
        # because asking takes as long as a short task.
        events = [] if timeout == 0 else super().select(0)
        if not events:
            if timeout is None:
                raise Deadlock("every task waits and no timer is set")
            if timeout:
                # The clock is set to the timer's own time. The last digits of `now_s + timeout`
                # would depend on how many timers have rung.
                self.now_s = self._next_timer_s()
        return events


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """The loop's clock starts at second 0."""

    # asyncio's own heap of timers.
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        self._jumping = _JumpingSelector(self._next_timer_s)
        self._numbers = itertools.count()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = _Timer((when, next(self._numbers)), callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        return timer

    def _next_timer_s(self) -> float:
        return self._scheduled[0].when()

    def each_turn(self, look: Callable[[], None] | None) -> None:
        """Call `look` between every two turns of the loop: after the steps of all ready tasks."""
        self._jumping.on_turn = look


def run(work: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`, but on virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)


def virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Turn a coroutine function into a test function that runs on virtual time."""

    @functools.wraps(test)
    def on_virtual_time(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(test(*args, **kwargs))

    return on_virtual_time


class VirtualClock:
    """The port for clocks, with the loop's virtual time. Wall time starts at `EPOCH_MS`."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        return EPOCH_MS + int(self.now() * 1000)
