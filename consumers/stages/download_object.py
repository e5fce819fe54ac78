"""Reads one object: one try, from its first byte to its last.

Rule: an object is pinned to the version it began with; a try after one that broke reads under the
same pin and skips the rows that are there already. A chunk is asked for only when the byte budget
has room, so a spent budget stops the transfer itself. Owner: the fetchers.
"""

import logging
from collections.abc import Mapping

from consumers.budget import Budget
from consumers.core.blocks import Ticket
from consumers.core.cursor import START
from consumers.core.retry import Tries
from consumers.dedupe import Dedupe
from consumers.errors import LockedOut, Poison, Transient, Unreachable
from consumers.formats.format import Format, WantsRanges
from consumers.formats.ranged import TAIL_BYTES
from consumers.ports import Body, Clock, Location, Objects, Part, WholeBody
from consumers.readers import Readers
from consumers.services.outage import Outage
from consumers.stages.expand import Expand, Reading, Room
from consumers.stages.microbatch import Microbatch
from consumers.telemetry.worker import Telemetry

log = logging.getLogger(__name__)

# Need not exist: any answer about it tells that the store is there.
PROBE_KEY = "penstock-probe"


class ObjectReader:
    """`read` is one try. Says by `tries` whether the store began to answer."""

    def __init__(
        self,
        objects: Objects,
        expand: Expand,
        microbatch: Microbatch,
        budget: Budget,
        readers: Readers,
        clock: Clock,
        telemetry: Telemetry,
        outages: Mapping[str, Outage],
        dedupe: Dedupe,
        *,
        pin: bool,
        object_bytes: int | None,
        from_first_row: bool,
        row_rules: str,
    ) -> None:
        """`row_rules`: what a cursor is bound to besides the rules of the rows."""
        self._from_first_row = from_first_row
        self._row_rules = row_rules
        self._objects = objects
        self._expand = expand
        self._microbatch = microbatch
        self._budget = budget
        self._readers = readers
        self._clock = clock
        self._telemetry = telemetry
        self._outages = outages
        self._dedupe = dedupe
        self._pin = pin
        self._object_bytes = object_bytes

    async def read(self, ticket: Ticket, tries: Tries) -> None:
        """Returns at the end, or when the lane is over. Raises `Poison` and `Transient`."""
        room = self._room(ticket, tries)
        ticket.row_rules = self._expand.rules + self._row_rules
        format = self._expand.ranged(ticket)
        if format is None:
            try:
                await self._read_stream(ticket, tries, room)
                return
            except WantsRanges as wants:
                format = wants.format
        await self._read_ranges(ticket, format, tries, room)

    async def _read_stream(self, ticket: Ticket, tries: Tries, room: Room) -> None:
        reading = self._expand.begin(ticket)
        if ticket.inline is not None:
            ticket.times.fetched_s = self._clock.now()
            ticket.resumes(from_first_row=self._from_first_row)
            await reading.whole(ticket.inline.body(), room)
            return
        body = await self._objects.open(self._location(ticket))
        tries.is_open = True
        self._outages[ticket.store].answered()
        if isinstance(body, WholeBody):
            await self._read_whole(ticket, reading, body, room)
            return
        try:
            await self._read_body(ticket, reading, body, room)
        finally:
            await body.aclose()

    async def _read_whole(
        self, ticket: Ticket, reading: Reading, body: WholeBody, room: Room
    ) -> None:
        if self._begin_version(ticket, body):
            ticket.read_bytes += body.size
            await reading.whole(body.data, room)
            if ticket.owner.alive:
                self._telemetry.object_read(body.size)

    def _location(self, ticket: Ticket) -> Location:
        """The version that an earlier try began with, else the one the reference names. Without
        `objects.pin` an earlier try binds as soon as it brought rows: two versions never mix.
        """
        reference = ticket.reference
        assert reference is not None
        location = Location(reference.bucket, reference.key, store=ticket.store)
        if not self._pin and not ticket.next_row:
            return location
        version_id, etag = ticket.pin or (reference.version_id, reference.etag)
        return location._replace(version_id=version_id, etag=etag)

    async def _read_body(self, ticket: Ticket, reading: Reading, body: Body, room: Room) -> None:
        if not self._begin_version(ticket, body):
            return
        nbytes = 0
        await room()
        async for chunk in body:
            nbytes += len(chunk)
            ticket.read_bytes += len(chunk)
            await reading.feed(chunk, room)
            if not ticket.owner.alive:
                return
            await room()
        await reading.close()
        self._telemetry.object_read(nbytes)

    async def _read_ranges(self, ticket: Ticket, format: Format, tries: Tries, room: Room) -> None:
        await room()
        tail = await self._objects.part(self._location(ticket), -TAIL_BYTES)
        tries.is_open = True
        self._outages[ticket.store].answered()
        if not self._begin_version(ticket, tail) or not tail.size:
            return
        location = self._pinned(ticket)
        nbytes = len(tail.data)

        async def fetch(start: int, stop: int) -> bytes:
            nonlocal nbytes
            part = await self._objects.part(location, start, stop)
            nbytes += len(part.data)
            ticket.read_bytes += len(part.data)
            return part.data

        began_s, held_bytes = self._clock.now(), format.held_bytes(tail.size)
        async with self._readers.reading(held_bytes, lambda: ticket.owner.may_overdraw(ticket)):
            tries.kept_waiting(self._clock.now() - began_s)
            reading = self._expand.begin_ranged(ticket, format, tail.size, tail.data)
            await reading.read(fetch, room)
        self._telemetry.object_read(nbytes)

    def _pinned(self, ticket: Ticket) -> Location:
        """The version of which a part is here already, whatever `objects.pin` says: parts of two
        versions never mix.
        """
        reference, (version_id, etag) = ticket.reference, ticket.pin or (None, None)
        assert reference is not None
        if version_id is None and etag is None:
            raise Poison(
                "changed",
                f"the store tells no version of {reference.bucket}/{reference.key}, so that its "
                "parts could be of different ones",
            )
        etag = None if version_id else etag
        return Location(reference.bucket, reference.key, version_id, etag, ticket.store)

    def _begin_version(self, ticket: Ticket, body: Body | Part) -> bool:
        """From here on the ticket is bound to the version that is read. False: it
        is answered already.
        """
        ticket.pin = (body.version_id, body.etag)
        ticket.times.fetched_s = self._clock.now()
        if not ticket.resumes(from_first_row=self._from_first_row):
            log.warning(
                "partition %d, offset %d: the object is not the version that the cursor was made "
                "for, or its rows are read by other settings; its rows are repeated",
                ticket.owner.partition,
                ticket.record.offset,
            )
            ticket.resume = START
        # Only now: rows of another version that are delivered say nothing of this one.
        if self._object_bytes is not None and body.size > self._object_bytes:
            raise Poison(
                "too_large",
                f"the object has {body.size} bytes, limits.object_bytes is {self._object_bytes}",
            )
        return not self._dedupe.is_duplicate(ticket)

    async def is_away(self, ticket: Ticket, error: Transient) -> bool:
        """Did the store not answer at all, or only not for this object? One that answers
        about another name of the same bucket is there, and the silence about this object has an
        end.
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

    def _room(self, ticket: Ticket, tries: Tries) -> Room:
        """Waits for room in the window, and in the byte budget unless this object must go on."""
        lane, budget, microbatch, clock = ticket.owner, self._budget, self._microbatch, self._clock

        async def room() -> None:
            if budget.has_room and not microbatch.is_crowded(ticket.stream):
                return
            began_s = clock.now()
            await microbatch.room(ticket.stream)
            if not budget.has_room:
                await budget.room(lambda: lane.may_overdraw(ticket))
            tries.kept_waiting(clock.now() - began_s)

        return room
