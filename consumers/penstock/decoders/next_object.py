"""Which object gets the next free place. A place is a decoder, or a seat of the object's store.

Rule: at most `most` objects have a place at a time. The others wait in the order in which they
came, but an object that holds up everything behind it comes first. Owner: the pool, or a store's
seats; used from one event loop only.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class Places:
    def __init__(self, most: int = sys.maxsize) -> None:
        self._most = most
        self._taken = 0
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}

    @property
    def has_free(self) -> bool:
        return self._taken < self._most

    @property
    def used(self) -> float:
        """The share of the places that is taken."""
        return self._taken / self._most

    @property
    def is_wanted(self) -> bool:
        """True if all places are taken and a waiting object holds up everything behind it."""
        return self._taken >= self._most and any(is_head() for is_head in self._waiting.values())

    @asynccontextmanager
    async def one(
        self, is_head: Callable[[], bool], review: Callable[[], object]
    ) -> AsyncIterator[None]:
        """A place, as soon as one is free. `is_head` tells whether the object that waits for the
        place holds up everything behind it. `review` is called when the wait begins.
        """
        while self._taken >= self._most:
            await self._turn(is_head, review)
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1
            self._wake()

    async def _turn(self, is_head: Callable[[], bool], review: Callable[[], object]) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = is_head
        review()
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.pop(turn, None)
            self._wake()
            raise

    def _wake(self) -> None:
        if self._waiting and self._taken < self._most:
            heads = (turn for turn, is_head in self._waiting.items() if is_head())
            turn = next(heads, next(iter(self._waiting)))
            del self._waiting[turn]
            if not turn.done():
                turn.set_result(None)
