"""Makes one try to read an object, from its first byte to its last.

Rule: a chunk is read only when the byte budget has room, so a spent budget stops the transfer
itself. If an object needs a decoder, a new fetcher takes the next objects. While the object waits
for a seat, it holds no bytes and no connection. Owner: the fetchers.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from penstock.calls.outage import Outage
from penstock.core.health.retry_and_failover import Tries
from penstock.core.routing.store_choice import DEFAULT
from penstock.core.rows.blocks import Ticket
from penstock.decoders.protocol import Died
from penstock.errors import LockedOut, Poison, Transient, Unreachable
from penstock.lane.dedupe import Dedupe
from penstock.ports import Clock, Location, Objects
from penstock.stages.expand import Expand
from penstock.stages.object_bytes import Supply, Versions
from penstock.stages.reading_permits import Admission, GaveWay, Permit
from penstock.stages.result_objects import ResultPlan
from penstock.telemetry.worker import Telemetry

# This key need not exist: any answer of the store about the key shows that the store can be
# reached.
PROBE_KEY = "penstock-probe"


@dataclass(frozen=True, slots=True)
class ObjectTerms:
    """How objects are fetched and read. `stores`: for each store, by name, the most reads that may
    be in flight. `begin_fetches`: for each store whose best number of reads is learned, the number
    to begin with.
    """

    fetchers: int
    object_bytes: int | None
    inline_bytes: int
    pin: bool
    wait_for_object_s: float
    # the numbers of fetchers of the other stores
    more_fetchers: Mapping[str, int] = field(default_factory=dict)
    begin_fetches: Mapping[str, int] = field(default_factory=dict)
    # the stores whose late reads are sent again
    hedged: Collection[str] = ()

    @property
    def stores(self) -> Mapping[str, int]:
        return {DEFAULT: self.fetchers, **self.more_fetchers}


class Fetcher:
    """One fetcher of a store. `let_another_in`: a function that is called when this one leaves. A
    fetcher that has left reads its object to the end and then takes no other object. Each further
    try at that object needs a seat.
    """

    def __init__(self, let_another_in: Callable[[], object]) -> None:
        self.has_left = False
        self._let_another_in = let_another_in

    def leave(self) -> None:
        if not self.has_left:
            self.has_left = True
            self._let_another_in()


class ObjectReader:
    """`read` makes one try. It notes in `tries` whether the store began to answer."""

    def __init__(
        self,
        objects: Objects,
        expand: Expand,
        admission: Admission,
        clock: Clock,
        telemetry: Telemetry,
        outages: Mapping[str, Outage],
        dedupe: Dedupe | None,
        terms: ObjectTerms,
        results: ResultPlan | None,
    ) -> None:
        # A cursor is valid only under the rules by which it was written. Rows that were delivered
        # only in a result object are not on the output topic. So a cursor that counts such rows
        # must become invalid when records of rows are switched on.
        of_rows = results is None or results.of_rows
        self._row_rules = expand.rules if of_rows else f"{expand.rules}/objects"
        self._objects = objects
        self._versions = Versions(
            objects,
            outages,
            dedupe,
            clock,
            reads=admission.reads,
            most_bytes=terms.object_bytes,
            inline_bytes=terms.inline_bytes,
            pin=terms.pin,
            from_first_row=results is not None,
        )
        self._expand = expand
        self._admission = admission
        self._clock = clock
        self._telemetry = telemetry

    async def read(self, ticket: Ticket, tries: Tries, fetcher: Fetcher) -> None:
        """Make one try. Returns at the object's end, or when the lane is closed. The fetcher leaves
        if this object needs a decoder. Raises `Poison`, `Transient`.
        """
        ticket.row_rules = self._row_rules
        is_new = False
        is_streamed = self._expand.is_streamed(ticket)
        needs_decoder = not is_streamed or self._expand.is_large(ticket) or fetcher.has_left
        while True:
            permit = Permit(self._admission, ticket, tries)
            await permit.next_step()
            supply = Supply(self._versions, ticket, tries, is_streamed=is_streamed)
            try:
                # A try without a decoder comes first, because only the bytes show for certain
                # whether the object can be read here.
                if not needs_decoder:
                    if await self._read_here(ticket, supply, permit):
                        return
                    needs_decoder = True
                    # While an object waits for a seat, it must hold no bytes and no connection. So
                    # if no seat is free, the transfer is closed here, and begun again when the
                    # object has a seat.
                    if not self._admission.has_seat(ticket):
                        continue
                fetcher.leave()
                async with self._admission.seat(ticket, tries):
                    await self._read_by_decoder(ticket, tries, supply, permit, new=is_new)
                return
            except GaveWay:
                continue
            except Died as died:
                if is_new or died.by_object:
                    died.poison.stage = "expand"
                    raise died.poison from died
                # An earlier object may have damaged the decoder, or the system may have refused
                # something for a moment. So this object gets one more try, by a fresh decoder.
                is_new = True
            finally:
                await supply.aclose()

    async def _read_here(self, ticket: Ticket, supply: Supply, permit: Permit) -> bool:
        """Read the object without a decoder. Returns False if the object needs a decoder."""
        if not await self._begin(ticket, supply):
            return True
        whole = await supply.whole(self._expand.inline_bytes)
        reading = None if whole is None else self._expand.begin_inline(ticket, whole)
        if reading is None:
            return False
        await reading.read(permit)
        self._was_read(ticket, supply)
        return True

    async def _read_by_decoder(
        self, ticket: Ticket, tries: Tries, supply: Supply, permit: Permit, *, new: bool
    ) -> None:
        is_open = supply.size >= 0
        if not is_open:
            if not (ticket.owner.alive and await self._begin(ticket, supply)):
                return
            if supply.is_streamed and ticket.inline is None:
                # A small object is read now: while it waits for a decoder, it must hold no read.
                await supply.whole(self._expand.inline_bytes)
        async with self._admission.decoder(ticket, tries, new=new) as decoder:
            by_decoder = self._expand.begin(ticket, supply.size)
            permit.has_decoder = True
            await by_decoder.read(decoder, supply, permit)
        self._was_read(ticket, supply)

    def _was_read(self, ticket: Ticket, supply: Supply) -> None:
        if ticket.owner.alive and ticket.inline is None:
            self._telemetry.object_read(supply.read_bytes)

    async def _begin(self, ticket: Ticket, supply: Supply) -> bool:
        """Open the object. Returns True if it must be read, False if it is empty or was answered
        before.
        """
        if ticket.inline is not None:
            ticket.fetched_s = self._clock.now()
            ticket.resumes(from_first_row=self._versions.from_first_row)
        elif supply.is_streamed:
            await supply.open()
        else:
            await supply.tail()
        if not supply.size and not supply.is_answered and ticket.inline is None:
            self._expand.check_nothing(ticket)
        return bool(supply.size) and not supply.is_answered

    async def is_away(self, ticket: Ticket, error: Transient) -> bool:
        """Returns True if the store is away; False if the store fails only for this object, so that
        the tries at the object must end. To find out which, the store is asked for another key of
        the bucket.
        """
        if not isinstance(error, Unreachable) or ticket.reference is None:
            return False
        if isinstance(error, LockedOut):
            return True
        probe = Location(ticket.reference.bucket, PROBE_KEY, store=ticket.store)
        try:
            body = await self._objects.open(probe)
        except Unreachable:
            return True
        except (Poison, Transient):
            return False
        await body.aclose()
        return False
