"""Recognises what was announced before.

Rule: of one object of a lane one announcement is read at a time, in input order, so that the second
knows how the first ended: read, then it is a duplicate; failed, then it is read itself. A fetcher
only waits for objects that were announced before its own, so there is no deadlock. Owner: the
pipeline; download reads in turn, publish tells of errors.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from weakref import WeakKeyDictionary

from consumers.core.announced import Announced
from consumers.core.blocks import Ticket
from consumers.core.owner import Owner
from schemas.reference import Reference, RowRange

_Object = tuple[Owner[Ticket], str, str, str, tuple[RowRange, ...] | None, str | None]

# Nothing is waited for; one for all.
_AT_ONCE = nullcontext()


class Dedupe:
    """A fetcher reads within `turn`, and asks `is_duplicate` when the object is open. What a lane
    knows goes with it.
    """

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on
        self._announced: WeakKeyDictionary[Owner[Ticket], Announced] = WeakKeyDictionary()
        self._reading: dict[_Object, asyncio.Event] = {}

    def turn(self, ticket: Ticket) -> AbstractAsyncContextManager[None]:
        """Enter it to read the object."""
        reference = ticket.reference
        return self._turn(ticket, reference) if self._is_on and reference else _AT_ONCE

    @asynccontextmanager
    async def _turn(self, ticket: Ticket, reference: Reference) -> AsyncIterator[None]:
        lane = ticket.owner
        name = (lane, ticket.store, reference.bucket, reference.key, reference.rows, ticket.model)
        before = self._reading.get(name)
        ended = self._reading[name] = asyncio.Event()
        try:
            if before is not None:
                await before.wait()
            yield
            if ticket.closed and not (ticket.failure or ticket.has_errors or ticket.duplicate_of):
                self._announced.setdefault(lane, Announced()).read(ticket)
        finally:
            ended.set()
            if self._reading.get(name) is ended:
                del self._reading[name]

    def rejected(self, ticket: Ticket) -> None:
        """Some of its rows are answered by errors: sent again, it is to be answered again."""
        ticket.has_errors = True
        announced = self._announced.get(ticket.owner)
        if announced is not None:
            announced.forget(ticket)

    def is_duplicate(self, ticket: Ticket) -> bool:
        """Of an object whose rows were begun to be answered the rest is answered, too."""
        if not self._is_on:
            return False
        announced = self._announced.get(ticket.owner)
        if announced is None or ticket.next_row or ticket.published_rows:
            return False
        ticket.duplicate_of = announced.first(ticket)
        return ticket.duplicate_of is not None
