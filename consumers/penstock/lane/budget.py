"""One byte budget for everything that is held: rows waiting, in flight, and answers held back.

Rule: no fetcher starts a chunk while the budget is spent, with one exception: the first object of
a lane (or of a stream, where order is kept per stream) that has nothing left to deliver. It must go
on, as everything behind it waits for it. So the overdraft is at most one chunk per lane (two per
fetcher, where order is per stream), and the worker cannot lock up. All that a lane spends it
refunds, the rest at once when it closes. Owner: the pipeline; used from the event loop only.
"""

import asyncio
from collections.abc import Callable

# What a message costs, on CPython 3.11, rounded up. Free: a reference of our own form with all its
# fields; few of them are held.
_SHORT_MESSAGE_BYTES = 512
# Bytes in memory for each byte of JSON, decoded. Measured: 24 for attributes of empty objects, 32
# for inline numbers, 9 for references and for ranges of rows, 2 for ordinary text.
_DECODED = 16
# A ticket and its reference.
_TICKET_COST_BYTES = 1_024
# So many objects of a partition take 1.5 MB, too little to count. More of them are owed only where
# order is kept per stream.
FEW_OBJECTS = 1_000


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
        """Return when there is room, or when `may_overdraw()` says that this one must go on; both
        are asked again at every `review`.
        """

        def may_go_on() -> bool:
            return self.has_room or may_overdraw()

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


class Held:
    """What one lane holds: rows, and the messages that named them (`messages_bytes`)."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._bytes = 0
        self.messages_bytes = 0

    def spend(self, nbytes: int) -> None:
        self._bytes += nbytes
        self._budget.spend(nbytes)

    def spend_on_messages(self, nbytes: int) -> None:
        self.spend(nbytes)
        self.messages_bytes += nbytes
        self._budget.messages_bytes += nbytes

    def refund(self, rows_bytes: int, messages_bytes: int) -> None:
        self.messages_bytes -= messages_bytes
        self._budget.messages_bytes -= messages_bytes
        self._bytes -= rows_bytes + messages_bytes
        self._budget.refund(rows_bytes + messages_bytes)

    def refund_all(self) -> None:
        self.refund(self._bytes - self.messages_bytes, self.messages_bytes)


def message_cost(nbytes: int, objects: int, *, is_one_of_many: bool = False) -> int:
    """The cost of a message of `nbytes` that names `objects`. A short one is free, unless it
    `is_one_of_many` that are held.
    """
    long_bytes = max(0, nbytes - _SHORT_MESSAGE_BYTES)
    if is_one_of_many:
        return long_bytes * _DECODED + _SHORT_MESSAGE_BYTES + objects * _TICKET_COST_BYTES
    return long_bytes * _DECODED + max(0, objects - 1) * _TICKET_COST_BYTES
