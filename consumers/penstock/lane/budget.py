"""One byte budget for everything that is held: rows waiting, in flight, and answers held back.

Rule: no fetcher starts a chunk while the budget is spent, with one exception: the first object of
a lane (or of a stream, where order is kept per stream) that has nothing left to deliver. It must go
on, as everything behind it waits for it. So the overdraft is at most one chunk per lane (two per
fetcher, where order is per stream), and the worker cannot lock up. Owner: the pipeline; used from
the event loop only.
"""

import asyncio
from collections.abc import Callable


class Budget:
    """`await room(...)` before a chunk, `spend` the bytes of its rows, `refund` them when these are
    delivered or dropped.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.spent_bytes = 0
        self.messages_bytes = 0
        self.peak_bytes = 0
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}  # who may go on when

    def __repr__(self) -> str:
        return f"{self.spent_bytes} of {self.limit_bytes} bytes held, {len(self._waiting)} waiting"

    @property
    def has_room(self) -> bool:
        return self.spent_bytes < self.limit_bytes

    @property
    def free_bytes(self) -> int:
        return max(0, self.limit_bytes - self.spent_bytes)

    @property
    def has_room_for_messages(self) -> bool:
        """Long messages have a quarter of the budget, so that objects can still be read."""
        return self.messages_bytes < self.limit_bytes // 4

    async def room(self, may_overdraw: Callable[[], bool]) -> None:
        """Return when there is room, or when `may_overdraw()` says that this one must go on."""
        if not self.has_room:
            await self.until(lambda: self.has_room or may_overdraw())

    async def until(self, may_go_on: Callable[[], bool]) -> None:
        """Return when `may_go_on()`, which is asked again at every `review`."""
        while not may_go_on():
            future = asyncio.get_running_loop().create_future()
            self._waiting[future] = may_go_on
            try:
                await future
            finally:
                self._waiting.pop(future, None)

    def spend(self, nbytes: int) -> None:
        had_room = self.has_room
        self.spent_bytes += nbytes
        self.peak_bytes = max(self.peak_bytes, self.spent_bytes)
        if had_room and not self.has_room and self._waiting:
            # From now on only heads go on, and one that waited for its turn may be the first.
            self.review()

    def refund(self, nbytes: int) -> None:
        self.spent_bytes -= nbytes
        self.review()

    def review(self) -> None:
        """Wake the waiters that may go on: after a refund, when the budget runs out (only heads go
        on then), and when a lane has a new head.
        """
        for future, may_go_on in self._waiting.items():
            if not future.done() and may_go_on():
                future.set_result(None)


class ModelShare:
    """Limits one of several models: it may hold no more bytes than remain free. So one failing
    model ends up with half of the budget, two with a third each.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def is_spent(self, held_bytes: int) -> bool:
        """Does a model that holds this much hold its share?"""
        return held_bytes > self._budget.free_bytes
