"""The way to a server that may be ill: callers wait here until the breaker lets them pass.

Rule: first come, first served; whoever passed tells how its call ended, once. Nothing waits and
nothing is scheduled while the server is well. Owner: the stage that calls.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable

from consumers.core.breaker import Breaker, Call
from consumers.errors import Overloaded, Transient
from consumers.ports import Clock


class Gate:
    """`call = await enter()`, then one of `answered`, `failed` and `dropped`."""

    def __init__(self, breaker: Breaker, clock: Clock, luck: Callable[[], float]) -> None:
        self._breaker = breaker
        self._clock = clock
        self._luck = luck
        self._waiting: deque[asyncio.Future[Call]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Is the breaker open, so that only a probe passes?"""
        return self._breaker.is_open

    @property
    def allowed(self) -> int:
        """Calls at a time, as of now."""
        return self._breaker.allowed

    async def enter(self) -> Call:
        if not self._waiting and not self._breaker.wait_s(self._clock.now()):
            return self._breaker.begin()
        turn: asyncio.Future[Call] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._serve()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.dropped(turn.result())
            raise

    def answered(self, call: Call) -> None:
        self._breaker.answered(call)
        self._serve()

    def failed(self, call: Call, error: Transient) -> None:
        self._breaker.failed(
            call,
            self._clock.now(),
            self._luck(),
            is_full=isinstance(error, Overloaded),
            asked_s=error.retry_after_s,
        )
        self._serve()

    def dropped(self, call: Call) -> None:
        self._breaker.dropped(call)
        self._serve()

    def _serve(self) -> None:
        while self._waiting:
            if self._waiting[0].done():
                self._waiting.popleft()
                continue
            wait_s = self._breaker.wait_s(self._clock.now())
            if wait_s:
                self._ring_after(wait_s)
                return
            self._waiting.popleft().set_result(self._breaker.begin())

    def _ring_after(self, wait_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wait_s < math.inf:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._serve)
