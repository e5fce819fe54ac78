"""Recognises an object that was announced before.

Rule: if a lane has several announcements of one object, fetchers work on one announcement at a
time, in input order. So when the turn of the second comes, it is known how the first ended. If the
object was read to its end for the first, the second is a duplicate. If the first failed, the object
is read for the second. A fetcher waits only for announcements before its own, so there is no
deadlock. Owner: the pipeline; download takes turns here, and publish reports errors.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from penstock.core.rows.blocks import FirstAnswer, Owner, Ticket
from penstock.messages.reference import RowRange

_Object = tuple[Owner, str, str, str, tuple[RowRange, ...] | None, str | None]

# Each version takes about 400 bytes, so those of a partition take 4 MB. At 20 announcements a
# second these are the versions of 8 minutes, several times as long as a store takes to repeat a
# notification.
MAX_VERSIONS = 10_000

# The digest of name and version, the rows that were asked for, and the model that answers these
# rows.
_Version = tuple[str, tuple[RowRange, ...] | None, str | None]


class Dedupe:
    """A fetcher reads within `turn`, and asks `is_duplicate` when the object is open. The objects
    of a lane are forgotten together with the lane.
    """

    def __init__(self) -> None:
        self._announced: WeakKeyDictionary[Owner, Announced] = WeakKeyDictionary()
        self._reading: dict[_Object, asyncio.Event] = {}

    @asynccontextmanager
    async def turn(self, ticket: Ticket) -> AsyncIterator[None]:
        """The context in which a ticket's object is read. Entering the context waits for earlier
        announcements of the object.
        """
        reference = ticket.reference
        if reference is None:
            yield
            return
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
        """Some rows of the ticket were answered by errors. So if the object is announced again, it
        is answered again.
        """
        ticket.has_errors = True
        announced = self._announced.get(ticket.owner)
        if announced is not None:
            announced.forget(ticket)

    def is_duplicate(self, ticket: Ticket) -> bool:
        """Was the object answered for an earlier announcement? If some of its rows were already
        answered for this announcement, the result is False, so that its other rows are answered as
        well.
        """
        announced = self._announced.get(ticket.owner)
        if announced is None or ticket.next_row or ticket.published_rows:
            return False
        ticket.duplicate_of = announced.first(ticket)
        return ticket.duplicate_of is not None


class Announced:
    """The objects that one lane has read. `read` adds an object; `first` returns the earlier object
    of the same version. If there are too many versions, the least recently used one is forgotten.
    """

    def __init__(self, max_versions: int = MAX_VERSIONS) -> None:
        self._max_versions = max_versions
        self._answered: dict[_Version, FirstAnswer] = {}

    def first(self, ticket: Ticket) -> FirstAnswer | None:
        """The earlier object of the ticket's version; None if there is none that was answered. Call
        this when the ticket's own object is open, because its version is known only then.
        """
        version = _version(ticket)
        answered = self._answered.pop(version, None) if version else None
        if version and answered:
            self._answered[version] = answered
        return answered

    def read(self, ticket: Ticket) -> None:
        """The ticket's object was read to its end."""
        version = _version(ticket)
        if version is None:
            return
        start = version[1][0][0] if version[1] else 0
        row = start if start < ticket.rows else None
        self._answered[version] = FirstAnswer(ticket.record.offset, ticket.object_index, row)
        if len(self._answered) > self._max_versions:
            del self._answered[next(iter(self._answered))]

    def forget(self, ticket: Ticket) -> None:
        """Forget the ticket's version: if it is announced again, it is answered in full."""
        version = _version(ticket)
        if version is not None:
            self._answered.pop(version, None)


def _version(ticket: Ticket) -> _Version | None:
    if ticket.reference is None or not ticket.version:
        return None
    return ticket.digest, ticket.reference.rows, ticket.model
