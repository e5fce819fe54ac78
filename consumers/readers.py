"""What readers of objects hold besides the rows that they give: buffers, pages, dictionaries.

Rule: it is charged to the byte budget while an object is read here and there, and one begins only
while the others of its model hold less than their share: the rest is for rows. A head that
everything waits for begins in any case. Owner: the track of a model.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from consumers.budget import Budget


class Readers:
    """`share_bytes` of the budget. `heads_first`: each stream has a head, so these never wait."""

    def __init__(self, budget: Budget, share_bytes: int, *, heads_first: bool) -> None:
        self._budget = budget
        self._share_bytes = share_bytes
        self._heads_first = heads_first
        self._held_bytes = 0

    @asynccontextmanager
    async def reading(self, nbytes: int, is_head: Callable[[], bool]) -> AsyncIterator[None]:
        """Enter it to read an object whose reader holds so much. A small budget has room for one
        at a time.
        """
        nbytes = min(nbytes, self._share_bytes)
        await self._budget.until(lambda: self._may_begin(is_head))
        self._held_bytes += nbytes
        self._budget.spend(nbytes)
        try:
            yield
        finally:
            self._held_bytes -= nbytes
            self._budget.refund(nbytes)

    def _may_begin(self, is_head: Callable[[], bool]) -> bool:
        """While the budget has room the others come to an end without the head."""
        if self._held_bytes < self._share_bytes:
            return True
        return (self._heads_first or not self._budget.has_room) and is_head()
