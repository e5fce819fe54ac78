"""Fetches objects: a fixed number of fetchers, lanes in turn, objects of a lane in order.

Rule: one object is one fetcher's from first byte to last, pinned to the version it began with; a
try that broke starts again under the same pin and skips the rows it already has. A chunk is asked
for only when the byte budget has room, so a spent budget stops the transfer itself. Owner: the
pipeline runs `fetch_forever` as often as `objects.concurrency` says.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from consumers.budget import Budget
from consumers.core.blocks import Rejection, Ticket
from consumers.core.cursor import START
from consumers.core.retry import Backoff, Tries
from consumers.dedupe import Dedupe
from consumers.errors import Poison, Transient, Unreachable
from consumers.formats.format import Format, WantsRanges
from consumers.formats.ranged import TAIL_BYTES
from consumers.lane import Lane
from consumers.ports import Body, Clock, Location, Objects, Part
from consumers.services.outage import Outage
from consumers.stages.expand import Expand, Reading, Room
from consumers.stages.microbatch import Microbatch
from consumers.telemetry import Telemetry

log = logging.getLogger(__name__)

# A store that answers, but not with this object, gets two minutes: a rolling update of a cluster.
# So does one whose transfer of it breaks after a good beginning: it may always break there.
GIVE_UP_S = 120.0
RETRY = Backoff(first_s=0.1, most_s=5.0, give_up_s=GIVE_UP_S)
# One that does not answer at all says nothing about the object: it is waited for.
AWAY_RETRY = Backoff(first_s=0.1, most_s=5.0)
LATE_OBJECT_POLL_S = 0.1


class Download:
    """`offer` lanes that have jobs; fetchers take one object at a time."""

    def __init__(
        self,
        objects: Objects,
        expand: Expand,
        microbatch: Microbatch,
        budget: Budget,
        clock: Clock,
        telemetry: Telemetry,
        outage: Outage,
        dedupe: Dedupe,
        jitter: Callable[[], float],
        *,
        pin: bool,
        wait_for_object_s: float,
        object_bytes: int | None,
    ) -> None:
        self._objects = objects
        self._expand = expand
        self._microbatch = microbatch
        self._budget = budget
        self._clock = clock
        self._telemetry = telemetry
        self._outage = outage
        self._dedupe = dedupe
        self._jitter = jitter
        self._pin = pin
        self._wait_for_object_s = wait_for_object_s
        self._object_bytes = object_bytes
        self._lanes: deque[Lane] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()

    def offer(self, lane: Lane) -> None:
        """This lane has jobs again. Called once per stretch of jobs."""
        self._lanes.append(lane)
        for _ in range(len(lane.jobs)):
            if not self._wake_one():
                return

    async def fetch_forever(self) -> None:
        while True:
            ticket = await self._next()
            ticket.started = True
            ticket.times.fetching_s = self._clock.now()
            async with self._dedupe.turn(ticket):
                await self._fetch(ticket)
            ticket.owner.fetched(ticket)

    async def _next(self) -> Ticket:
        while True:
            while self._lanes:
                lane = self._lanes.popleft()
                if lane.jobs:
                    ticket = lane.jobs.take()
                    if lane.jobs:
                        self._lanes.append(lane)
                        # Jobs may have come since `offer`, and this one may take long.
                        self._wake_one()
                    return ticket
            idle = asyncio.get_running_loop().create_future()
            self._idle.append(idle)
            await idle

    def _wake_one(self) -> bool:
        while self._idle:
            idle = self._idle.popleft()
            if not idle.done():
                idle.set_result(None)
                return True
        return False

    async def _fetch(self, ticket: Ticket) -> None:
        """Read the ticket's object to its end, or close the ticket with the reason why not."""
        began_s = self._clock.now()
        tries = Tries(RETRY, AWAY_RETRY, began_s)
        while ticket.owner.alive:
            tries.begin()
            rows_before = ticket.next_row
            try:
                await self._read(ticket, tries)
            except Poison as error:
                waited_s = self._clock.now() - began_s
                if error.code != "not_found" or waited_s >= self._wait_for_object_s:
                    stage = error.stage or "download"
                    ticket.close(Rejection(error.code, str(error), stage, tries.count))
                    return
                await asyncio.sleep(LATE_OBJECT_POLL_S)
            except Transient as error:
                delay_s = self._after(error, tries, has_new=ticket.next_row > rows_before)
                if delay_s is None:
                    ticket.close(Rejection("unavailable", str(error), "download", tries.count))
                    return
                await asyncio.sleep(delay_s)
            else:
                ticket.close()
                self._microbatch.read(ticket)
                return

    def _after(self, error: Transient, tries: Tries, *, has_new: bool) -> float | None:
        """Seconds before the next try, or None: give up. Only a store that is away keeps the
        watchdog quiet; anything else has an end of its own.
        """
        is_away = isinstance(error, Unreachable) and not tries.is_open
        self._telemetry.retried("download", is_away=is_away)
        if is_away:
            self._outage.unreachable(error)
        return tries.failed(
            self._clock.now(), self._jitter(), error.retry_after_s, is_away=is_away, has_new=has_new
        )

    async def _read(self, ticket: Ticket, tries: Tries) -> None:
        room = self._room(ticket, tries)
        ticket.row_rules = self._expand.rules
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
            ticket.resumes()
            await reading.feed(ticket.inline.body(), room)
            await reading.close()
            return
        body = await self._objects.open(self._location(ticket))
        tries.is_open = True
        self._outage.answered()
        try:
            await self._read_body(ticket, reading, body, room)
        finally:
            await body.aclose()

    def _location(self, ticket: Ticket) -> Location:
        """The version that an earlier try began with, else the one the reference names. Without
        `objects.pin` an earlier try binds as soon as it brought rows: two versions never mix.
        """
        reference = ticket.reference
        assert reference is not None
        location = Location(reference.bucket, reference.key)
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
        self._outage.answered()
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
        return Location(reference.bucket, reference.key, version_id, None if version_id else etag)

    def _begin_version(self, ticket: Ticket, body: Body | Part) -> bool:
        """From here on the ticket is bound to the version that is read. False: it is answered
        already.
        """
        if self._object_bytes is not None and body.size > self._object_bytes:
            raise Poison(
                "too_large",
                f"the object has {body.size} bytes, limits.object_bytes is {self._object_bytes}",
            )
        ticket.pin = (body.version_id, body.etag)
        ticket.times.fetched_s = self._clock.now()
        if not ticket.resumes():
            log.warning(
                "partition %d, offset %d: the object is not the version that the cursor was made "
                "for, or its rows are read by other settings; its rows are repeated",
                ticket.owner.partition,
                ticket.record.offset,
            )
            ticket.resume = START
        return not self._dedupe.is_duplicate(ticket)

    def _room(self, ticket: Ticket, tries: Tries) -> Room:
        """Waits for room in the window, and in the byte budget unless this object must go on."""
        lane, budget, microbatch, clock = ticket.owner, self._budget, self._microbatch, self._clock

        async def room() -> None:
            began_s = clock.now()
            await microbatch.room(ticket.stream)
            if not budget.has_room:
                await budget.room(lambda: lane.may_overdraw(ticket))
            tries.kept_waiting(clock.now() - began_s)

        return room
