"""Tasks that wait for their turn.

Rule: a turn is never lost. If a task is cancelled before it gets its turn, it is passed over; if it
is cancelled after that, but before it runs again, the turn is given back.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Waiters(deque[asyncio.Future[T]]):
    """The turns of waiting tasks, in the order in which they came. As a deque it costs nothing to
    ask whether there are any.
    """

    def join(self) -> asyncio.Future[T]:
        """A turn at the end of the queue; `taken` waits for it."""
        turn: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.append(turn)
        return turn

    def next(self) -> asyncio.Future[T] | None:
        """Take the turn of the task that has waited longest; None: no task waits. The caller sets
        the turn's result.
        """
        while self:
            turn = self.popleft()
            if not turn.done():  # otherwise its task was cancelled
                return turn
        return None


async def taken(turn: asyncio.Future[T], give_back: Callable[[T], object]) -> T:
    """Wait for the turn, and return its result. `give_back`: a function that is called with the
    result if the task was cancelled just after it had got its turn.
    """
    try:
        return await turn
    except asyncio.CancelledError:
        if turn.done() and not turn.cancelled():
            give_back(turn.result())
        raise
