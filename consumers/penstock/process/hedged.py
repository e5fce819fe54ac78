"""Sends a late request a second time, and takes the first answer.

Rule: the caller says when a request is late and may be sent again (`core.health.retries`). The
first answer cancels the other request, and waits for it; if that was answered all the same, its
answer is closed. An error is no answer while the other is on its way, unless it says that the
request itself is wrong. The first request runs in the caller's own task: nearly all are never sent
twice, and a task for each would cost more than all else here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, Generic, Literal, TypeVar

from penstock.errors import Transient

T = TypeVar("T")

# A request that is late, but may not be sent again now, is looked at again after this share of the
# time that it has waited.
AGAIN_SHARE: Final = 0.5

Ask = Callable[[], Coroutine[Any, Any, T]]


class Alarms:
    """One timer for all requests to a service that are under way. A timer for each would be set,
    sorted in, cancelled and sorted out by the event loop, and nearly none would ever ring.
    """

    def __init__(self) -> None:
        self._under_way = 0
        self._waiting: list[tuple[float, int, Hedged[Any]]] = []
        self._number = count()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Another request is under way."""
        self._under_way += 1

    def end(self) -> None:
        """A request is over. While none is under way no timer may ring: it would wake an idle
        process.
        """
        self._under_way -= 1
        if not self._under_way:
            self._waiting.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def set(self, loop: asyncio.AbstractEventLoop, due_s: float, request: "Hedged[Any]") -> None:
        """Call the request's `is_late` at this time, unless it is over by then."""
        heappush(self._waiting, (due_s, next(self._number), request))
        if self._timer is None:
            self._timer = loop.call_at(due_s, self._ring, loop)
        elif due_s < self._timer.when():
            self._timer.cancel()
            self._timer = loop.call_at(due_s, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, now_s = None, loop.time()
        while self._waiting and (self._waiting[0][2].is_over or self._waiting[0][0] <= now_s):
            *_, request = heappop(self._waiting)
            if not request.is_over:
                request.is_late(loop, now_s)
        if self._waiting and self._timer is None:
            self._timer = loop.call_at(self._waiting[0][0], self._ring, loop)


class Hedged(Generic[T]):
    """One request. `ask`: a function that sends it; `again`: one that sends it a second time.
    `may_ask_again`: a function that gives the permission to do so, by the event loop's time.
    `tell`: a function that is told whether the second request was the first to be answered.
    `close`: a function that closes an answer that is not used.
    """

    __slots__ = (
        "_again",
        "_alarms",
        "_ask",
        "_asked_s",
        "_close",
        "_is_used",
        "_is_won",
        "_may_ask_again",
        "_second",
        "_task",
        "_tell",
        "is_over",
    )

    def __init__(
        self,
        ask: Ask[T],
        again: Ask[T],
        may_ask_again: Callable[[float], bool],
        tell: Callable[[Literal["won", "lost"]], None],
        alarms: Alarms,
        close: Callable[[T], Awaitable[None]] | None = None,
    ) -> None:
        self._ask = ask
        self._again = again
        self._may_ask_again = may_ask_again
        self._tell = tell
        self._alarms = alarms
        self._close = close
        self._second: asyncio.Task[T] | None = None
        self.is_over = self._is_won = self._is_used = False

    async def answer(self, late_s: float) -> T:
        task = asyncio.current_task()
        assert task is not None
        loop, cancellations = task.get_loop(), task.cancelling()
        self._task = task
        self._asked_s = loop.time()
        self._alarms.begin()
        self._alarms.set(loop, self._asked_s + late_s, self)
        try:
            answer = await self._ask()
        except asyncio.CancelledError:
            # The second request cancelled us, as a timeout does, or our caller did.
            if self._is_won and task.uncancel() <= cancellations:
                return self._of_second()
            raise
        except Exception as error:
            # A library made an error of the cancellation by the second request.
            if self._is_won:
                task.uncancel()
            if self._second is None or not isinstance(error, Transient):
                raise
            self.is_over = True
            await asyncio.wait([self._second])
            if self._second.cancelled() or self._second.exception() is not None:
                raise
            self._is_won = True
            return self._of_second()
        else:
            # Our request was answered in the turn in which the second one cancelled it, and the
            # cancellation got lost in a library.
            if self._is_won:
                task.uncancel()
                self._is_won = False
            return answer
        finally:
            self.is_over = True
            self._alarms.end()
            if self._second is not None:
                await self._end_second(self._second)

    def _of_second(self) -> T:
        assert self._second is not None
        self._is_used = True
        return self._second.result()

    def is_late(self, loop: asyncio.AbstractEventLoop, now_s: float) -> None:
        if self._may_ask_again(now_s):
            self._second = loop.create_task(self._again())
            self._second.add_done_callback(self._second_ended)
        else:
            step_s = AGAIN_SHARE * (now_s - self._asked_s)
            self._alarms.set(loop, now_s + step_s, self)

    def _second_ended(self, second: asyncio.Task[T]) -> None:
        if self.is_over or second.cancelled() or second.exception() is not None:
            return
        self._is_won = True
        self._task.cancel()

    async def _end_second(self, second: asyncio.Task[T]) -> None:
        self._tell("won" if self._is_won else "lost")
        if not second.done():
            second.cancel()
            await asyncio.wait([second])
        is_answered = not second.cancelled() and second.exception() is None
        if is_answered and not self._is_used and self._close is not None:
            await self._close(second.result())
