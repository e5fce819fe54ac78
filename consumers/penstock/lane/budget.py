"""One byte budget for all rows that wait or are in flight, and for all answers that are held back.

Rule: no fetcher starts a chunk while the budget is spent, except for the first object of a lane (or
of a stream, where order is kept per stream), if no answer of it can be delivered now: everything
behind it waits for it. So the budget is exceeded by at most one chunk for each lane (two for each
fetcher, where order is per stream). A lane that closes gives back at once all that it holds.

The worker cannot lock up, because of who may wait for whom: all objects but a lane's first may wait
for the budget; the budget waits for deliveries, and so for the lanes' first objects; these wait for
nothing that another object holds. Each has a fetcher (core/progress/order.py), this permit,
and, by the same permit, a seat of its store and a decoder before all others.
"""

import asyncio
from collections.abc import Callable

# What a message costs was measured on CPython 3.11 and rounded up. A message up to this length is
# free: a reference of our own form with all its fields is no longer than that, and few such
# messages are held.
_SHORT_MESSAGE_BYTES = 512
# How many bytes in memory each byte of JSON takes when it is decoded. Measured: 24 for attributes
# of empty objects, 32 for inline numbers, 9 for references and for ranges of rows, 2 for ordinary
# text.
_DECODED = 16
# What a ticket and its reference cost.
_TICKET_COST_BYTES = 1_024
# A partition that owes no more objects than this pays nothing for short messages, which take 1.5 MB
# together. Only where order is kept within each stream may a partition owe more objects.
FEW_OBJECTS = 1_000


class Budget:
    """Await `room` before a chunk, `spend` the bytes of its rows, and `refund` them when the rows
    are delivered or dropped.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.spent_bytes = 0
        self.messages_bytes = 0
        self.peak_bytes = 0
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}  # may the waiter go on?

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
        """True while long messages take less than a quarter of the budget. The rest of the budget
        is kept for reading objects.
        """
        return self.messages_bytes < self.limit_bytes // 4

    async def room(self, may_overdraw: Callable[[], bool]) -> None:
        """Return when there is room, or when `may_overdraw()` says that this reader must go on.
        Both conditions are checked again at every `review`.
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
            # From now on only the first objects may go on. A reader that waited for its turn may
            # have such an object, so it is woken.
            self.review()

    def refund(self, nbytes: int) -> None:
        self.spent_bytes -= nbytes
        self.review()

    def review(self) -> None:
        """Wake the waiters that may go on. Call this in three cases: after a refund; when the
        budget is spent, because from then on only first objects go on; and when another object
        becomes a lane's first.
        """
        for future, may_go_on in self._waiting.items():
            if not future.done() and may_go_on():
                future.set_result(None)


class ModelShare:
    """Limits each of several models: a model may hold no more bytes than are free. So a single
    failing model ends up with half of the budget, and two failing models end up with a third of the
    budget each.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def is_spent(self, held_bytes: int) -> bool:
        """Does a model with this many bytes hold its whole share?"""
        return held_bytes > self._budget.free_bytes


class Held:
    """The bytes of the budget that one lane holds, for rows and for messages (`messages_bytes`)."""

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
    """The cost of a message of `nbytes` that names this number of `objects`. A short message is
    free, unless it `is_one_of_many` that are held.
    """
    long_bytes = max(0, nbytes - _SHORT_MESSAGE_BYTES)
    if is_one_of_many:
        return long_bytes * _DECODED + _SHORT_MESSAGE_BYTES + objects * _TICKET_COST_BYTES
    return long_bytes * _DECODED + max(0, objects - 1) * _TICKET_COST_BYTES
