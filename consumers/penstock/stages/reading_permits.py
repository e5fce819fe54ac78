"""Decides whether the reading of an object may go on. The reader asks before each step.

Rule: a step waits until the model's window has room for the stream, and the byte budget has room
for more bytes. An object at the head of its order must go on although the budget is spent, because
all objects behind it wait for it. An object that needs a decoder takes a seat of its store, and its
fetcher makes room for a new one; a store has as many seats as a model has fetchers. If one of
several models falls behind, its objects give up their seats and decoders to objects of the other
models. Owner: the reader of objects, which makes a permit for each try.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial

from penstock.core.health.retry_and_failover import Tries
from penstock.core.rows.blocks import Ticket
from penstock.decoders.protocol import Decoder, Decoders
from penstock.lane.budget import Budget
from penstock.ports import Clock
from penstock.process.asyncio_additions import Places
from penstock.stages.microbatch import Microbatch
from penstock.stages.store_reads import StoreReads

# An object that has a decoder waits this long for room in the window. After that it gives the
# decoder up if its model is over its share of the budget and an object that must go on needs a
# decoder.
PATIENCE_S = 1.0


class GaveWay(Exception):
    """This try gave up its seat or decoder, so that another object can go on. The try begins again
    later.
    """


class _SeatsOfStore(Places):
    def __init__(self, reads: StoreReads) -> None:
        super().__init__()
        self._reads = reads

    @property
    def most(self) -> int:
        return self._reads.readers


class Seats:
    """The seats of each store, for the objects of all models. An object holds a seat while it has a
    decoder or waits for one.
    """

    def __init__(self, reads: Mapping[str, StoreReads]) -> None:
        self.reads = reads
        self.of = {store: _SeatsOfStore(one) for store, one in reads.items()}

    @property
    def is_wanted(self) -> bool:
        """True if an object that must go on waits for a seat."""
        return any(places.is_wanted for places in self.of.values())


class Admission:
    """Gives the objects of one model what they need before they are read. Every object needs room.
    An object that needs a decoder first takes a `seat`, then the `decoder`.
    """

    def __init__(
        self,
        budget: Budget,
        microbatch: Microbatch,
        decoders: Decoders,
        seats: Seats,
        clock: Clock,
    ) -> None:
        self.budget = budget
        self.microbatch = microbatch
        self.decoders = decoders
        self.clock = clock
        self.reads = seats.reads
        self._seats = seats

    @property
    def is_decoder_wanted(self) -> bool:
        """True if an object that must go on waits for a decoder or a seat."""
        return self.decoders.is_wanted or self._seats.is_wanted

    def has_seat(self, ticket: Ticket) -> bool:
        """True if a seat of the ticket's store is free."""
        return self._seats.of[ticket.store].has_free

    @asynccontextmanager
    async def seat(self, ticket: Ticket, tries: Tries) -> AsyncIterator[None]:
        """A seat for one try."""
        began_s = self.clock.now()
        must_go_on = partial(ticket.owner.may_overdraw, ticket)
        async with self._seats.of[ticket.store].one(must_go_on, self.budget.review):
            tries.kept_waiting(self.clock.now() - began_s)
            self._check_share()
            yield

    @asynccontextmanager
    async def decoder(self, ticket: Ticket, tries: Tries, *, new: bool) -> AsyncIterator[Decoder]:
        """A decoder, lent for one try. `new`: True if the decoder must be a fresh process that has
        decoded nothing yet.
        """
        began_s = self.clock.now()
        must_go_on = partial(ticket.owner.may_overdraw, ticket)
        async with self.decoders.lent(
            ticket.stream, must_go_on, self.budget.review, new=new
        ) as decoder:
            tries.kept_waiting(self.clock.now() - began_s)
            self._check_share()
            yield decoder

    def _check_share(self) -> None:
        """Raise `GaveWay` if the model fell behind during the wait, because then there is no room
        for more of its rows.
        """
        if self.microbatch.is_over_share:
            raise GaveWay


class Permit:
    """The permit of one try at one object. `has_decoder`: True while the try holds a decoder; the
    permit then makes the try give the decoder up if an object that must go on needs it.
    """

    __slots__ = ("_admission", "_ticket", "_tries", "has_decoder")

    def __init__(self, admission: Admission, ticket: Ticket, tries: Tries) -> None:
        self.has_decoder = False
        self._admission = admission
        self._ticket = ticket
        self._tries = tries

    async def next_step(self) -> None:
        """Return when the next step may be taken. The time spent waiting here does not count
        against the try. Raises `GaveWay`.
        """
        admission, stream = self._admission, self._ticket.stream
        budget, microbatch = admission.budget, admission.microbatch
        if budget.has_room and not microbatch.is_crowded(stream):
            return
        began_s = admission.clock.now()
        await self._room_in_window()
        if not budget.has_room:
            await budget.room(lambda: self._must_go_on() or self._is_in_the_way())
            if self._is_in_the_way() and not self._must_go_on():
                raise GaveWay
        self._tries.kept_waiting(admission.clock.now() - began_s)

    async def _room_in_window(self) -> None:
        microbatch, stream = self._admission.microbatch, self._ticket.stream
        while self.has_decoder and microbatch.is_crowded(stream):
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    await microbatch.room(stream)
            if microbatch.is_over_share and self._admission.is_decoder_wanted:
                raise GaveWay
        await microbatch.room(stream)

    def _must_go_on(self) -> bool:
        return self._ticket.owner.may_overdraw(self._ticket)

    def _is_in_the_way(self) -> bool:
        return self.has_decoder and self._admission.is_decoder_wanted
