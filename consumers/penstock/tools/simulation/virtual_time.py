"""An event loop whose clock jumps to the next timer as soon as no task can go on.

Rule: if every task waits and no timer is set, `Deadlock` is raised. The loop does not wait for
other threads, so threads cannot be used with it.
"""

import asyncio
import contextvars
import functools
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar, TypeVarTuple

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
EPOCH_MS = 1_800_000_000_000
# So many cancelled timers may wait among the others before they are removed.
FEW_TIMERS = 100


async def inline(work: Callable[[], T]) -> T:
    """Do the work in the event loop itself instead of a thread."""
    return work()


class Deadlock(Exception):
    """Every task waits for another one, so none can ever go on."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """The loop's clock starts at second 0.

    It takes its turns itself (`_run_once`, which asyncio calls until the loop is stopped), in the
    same order as asyncio does. It never asks the system for events, because nothing here waits for
    any: asking takes as long as a short task. Timers of the same instant ring in the order in which
    they were set. With asyncio's own heap, that order depends on all other timers.
    """

    # asyncio's own.
    _ready: deque[asyncio.Handle]
    _stopping: bool
    _clock_resolution: float

    def __init__(self) -> None:
        self._now_s = 0.0
        self._on_turn: Callable[[], None] | None = None
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        self._cancelled = 0
        super().__init__()

    def time(self) -> float:
        return self._now_s

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def _run_once(self) -> None:
        timers, ready = self._timers, self._ready
        if self._cancelled > max(FEW_TIMERS, len(timers) // 2):
            self._forget_cancelled()
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if self._on_turn is not None:
            self._on_turn()
        if not ready and not self._stopping:
            if not timers:
                raise Deadlock("every task waits and no timer is set")
            self._now_s = max(self._now_s, timers[0][0])
        end_s = self._now_s + self._clock_resolution
        while timers and timers[0][0] < end_s:
            ready.append(heapq.heappop(timers)[2])
        # What these make ready has its turn next.
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._cancelled += 1

    def _forget_cancelled(self) -> None:
        self._timers[:] = [each for each in self._timers if not each[2].cancelled()]
        heapq.heapify(self._timers)
        self._cancelled = 0

    def each_turn(self, look: Callable[[], None] | None) -> None:
        """Call `look` between every two turns of the loop: after the steps of all ready tasks."""
        self._on_turn = look


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
