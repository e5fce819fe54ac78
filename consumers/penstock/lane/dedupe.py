"""Recognises an object that was announced before.

Rule: when a lane has several announcements of one object, they are read one at a time, in input
order. So the second knows how the first ended: if it was read, the second is a duplicate; if it
failed, the second is read. A fetcher only waits for announcements before its own, so there is no
deadlock. Owner: the pipeline; download reads in turn, publish tells of errors.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from weakref import WeakKeyDictionary

from penstock.core.rows.announced import Announced
from penstock.core.rows.blocks import Ticket
from penstock.core.rows.owner import Owner
from penstock.messages.reference import Reference, RowRange

_Object = tuple[Owner[Ticket], str, str, str, tuple[RowRange, ...] | None, str | None]

# For an object that waits for no other; shared, as it has no state.
_AT_ONCE = nullcontext()


class Dedupe:
    """A fetcher reads within `turn`, and asks `is_duplicate` when the object is open. Memory of a
    lane's objects goes with the lane.
    """

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on
        self._announced: WeakKeyDictionary[Owner[Ticket], Announced] = WeakKeyDictionary()
        self._reading: dict[_Object, asyncio.Event] = {}

    def turn(self, ticket: Ticket) -> AbstractAsyncContextManager[None]:
        """A context to read the object in; entering it waits for earlier announcements of it."""
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
        """Some of its rows were answered by errors: if the object is announced again, it is
        answered again.
        """
        ticket.has_errors = True
        announced = self._announced.get(ticket.owner)
        if announced is not None:
            announced.forget(ticket)

    def is_duplicate(self, ticket: Ticket) -> bool:
        """Was the object answered for an earlier announcement? Never true once some of its rows
        are answered for this one: then the rest of them is answered, too.
        """
        if not self._is_on:
            return False
        announced = self._announced.get(ticket.owner)
        if announced is None or ticket.next_row or ticket.published_rows:
            return False
        ticket.duplicate_of = announced.first(ticket)
        return ticket.duplicate_of is not None
