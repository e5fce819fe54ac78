"""Sends a late request a second time, and takes the first answer.

Rule: the caller says when a request is late and whether it may be sent again
(`core.health.hedging`). The first answer ends the other request: it is cancelled, and waited for.
If it was answered all the same, its answer is closed.
An error is no answer while the other request is on its way, unless it says that the request itself
is wrong. The first request runs in the caller's own task, because nearly all requests are never
sent twice, and a task for each would cost more than the timer does. Owner: the caller, for one
request.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Generic, Literal, TypeVar

from penstock.errors import Transient

T = TypeVar("T")

# A request that is late, but may not be sent again now, is looked at again after this share of the
# time that it has waited.
AGAIN_SHARE: Final = 0.5

Ask = Callable[[], Coroutine[Any, Any, T]]


class Hedged(Generic[T]):
    """One request. `ask`: a function that sends it; `again`: one that sends it a second time.
    `may_ask_again`: a function that gives the permission to do so, by the event loop's time.
    `tell`: a function that is told whether the second request was the first to be answered.
    `close`: a function that closes an answer that is not used.
    """

    __slots__ = (
        "_again",
        "_ask",
        "_close",
        "_is_over",
        "_is_used",
        "_is_won",
        "_may_ask_again",
        "_second",
        "_task",
        "_tell",
        "_timer",
    )

    def __init__(
        self,
        ask: Ask[T],
        again: Ask[T],
        may_ask_again: Callable[[float], bool],
        tell: Callable[[Literal["won", "lost"]], None],
        close: Callable[[T], Awaitable[None]] | None = None,
    ) -> None:
        self._ask = ask
        self._again = again
        self._may_ask_again = may_ask_again
        self._tell = tell
        self._close = close
        self._second: asyncio.Task[T] | None = None
        self._is_over = self._is_won = self._is_used = False

    async def answer(self, late_s: float) -> T:
        task = asyncio.current_task()
        assert task is not None
        loop, cancellations = task.get_loop(), task.cancelling()
        self._task = task
        self._timer = loop.call_later(late_s, self._is_late, loop, late_s)
        try:
            answer = await self._ask()
        except asyncio.CancelledError:
            # The second request cancelled us, as a timeout does, or our caller did.
            if self._is_won and task.uncancel() <= cancellations:
                return self._of_second()
            raise
        except Transient:
            if self._second is None:
                raise
            self._is_over = True
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
            self._is_over = True
            self._timer.cancel()
            await self._end_second()

    def _of_second(self) -> T:
        assert self._second is not None
        self._is_used = True
        return self._second.result()

    def _is_late(self, loop: asyncio.AbstractEventLoop, waited_s: float) -> None:
        if self._may_ask_again(loop.time()):
            self._second = loop.create_task(self._again())
            self._second.add_done_callback(self._second_ended)
        else:
            step_s = AGAIN_SHARE * waited_s
            self._timer = loop.call_later(step_s, self._is_late, loop, waited_s + step_s)

    def _second_ended(self, second: asyncio.Task[T]) -> None:
        if self._is_over or second.cancelled() or second.exception() is not None:
            return
        self._is_won = True
        self._task.cancel()

    async def _end_second(self) -> None:
        second = self._second
        if second is None:
            return
        self._tell("won" if self._is_won else "lost")
        if not second.done():
            second.cancel()
            await asyncio.wait([second])
        is_answered = not second.cancelled() and second.exception() is None
        if is_answered and not self._is_used and self._close is not None:
            await self._close(second.result())
