"""Fetches objects: a fixed number of fetchers, lanes in turn, objects of a lane in order.

Rule: one object is one fetcher's from first byte to last, pinned to the version it began with; a
try that broke starts again under the same pin and skips the rows it already has. A chunk is asked
for only when the byte budget has room, so a spent budget stops the transfer itself. Owner: the
pipeline runs `fetch_forever` as often as `objects.concurrency` says.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable

from consumers.budget import Budget
from consumers.core.blocks import Rejection, Ticket
from consumers.core.cursor import START
from consumers.core.retry import Backoff
from consumers.errors import Poison, Transient
from consumers.lane import Lane
from consumers.ports import Body, Clock, Location, Objects
from consumers.stages.expand import Expand, Reading
from consumers.telemetry import Telemetry

log = logging.getLogger(__name__)

# A store that is restarted is back within seconds; two minutes outlast a rolling update of a
# cluster.
RETRY = Backoff(first_s=0.1, most_s=5.0, give_up_s=120.0)
LATE_OBJECT_POLL_S = 0.1


class Download:
    """`offer` lanes that have jobs; fetchers take one object at a time."""

    def __init__(
        self,
        objects: Objects,
        expand: Expand,
        budget: Budget,
        clock: Clock,
        telemetry: Telemetry,
        *,
        pin: bool,
        wait_for_object_s: float,
        object_bytes: int | None,
    ) -> None:
        self._objects = objects
        self._expand = expand
        self._budget = budget
        self._clock = clock
        self._telemetry = telemetry
        self._pin = pin
        self._wait_for_object_s = wait_for_object_s
        self._object_bytes = object_bytes
        self._lanes: deque[Lane] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()

    def offer(self, lane: Lane) -> None:
        """This lane has jobs again. Called once per stretch of jobs."""
        self._lanes.append(lane)
        for _ in lane.jobs:
            if not self._wake_one():
                return

    async def fetch_forever(self) -> None:
        while True:
            ticket = await self._next()
            ticket.started = True
            ticket.times.fetching_s = self._clock.now()
            await self._fetch(ticket)
            ticket.owner.wake()

    async def _next(self) -> Ticket:
        while True:
            while self._lanes:
                lane = self._lanes.popleft()
                if lane.jobs:
                    ticket = lane.jobs.popleft()
                    if lane.jobs:
                        self._lanes.append(lane)
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
        attempt = 0
        while True:
            attempt += 1
            try:
                await self._read(ticket)
            except Poison as error:
                if (
                    error.code != "not_found"
                    or self._clock.now() - began_s >= self._wait_for_object_s
                ):
                    ticket.close(
                        Rejection(error.code, str(error), error.stage or "download", attempt)
                    )
                    return
                await asyncio.sleep(LATE_OBJECT_POLL_S)
            except Transient as error:
                self._telemetry.retried("download")
                delay_s = RETRY.delay_s(
                    attempt, self._clock.now() - began_s, random.random(), error.retry_after_s
                )
                if delay_s is None:
                    ticket.close(Rejection("unavailable", str(error), "download", attempt))
                    return
                await asyncio.sleep(delay_s)
            else:
                ticket.close()
                return
            if not ticket.owner.alive:
                return

    async def _read(self, ticket: Ticket) -> None:
        reading = self._expand.begin(ticket)
        if ticket.inline is not None:
            ticket.times.fetched_s = self._clock.now()
            ticket.resumes()
            await reading.feed(ticket.inline.body())
            await reading.close()
            return
        reference = ticket.reference
        assert reference is not None
        body = await self._objects.open(
            Location(
                reference.bucket,
                reference.key,
                reference.version_id if self._pin else None,
                (ticket.version or reference.etag)
                if self._pin and not reference.version_id
                else None,
            )
        )
        try:
            await self._read_body(ticket, reading, body)
        finally:
            await body.aclose()

    async def _read_body(self, ticket: Ticket, reading: Reading, body: Body) -> None:
        if self._object_bytes is not None and body.size > self._object_bytes:
            raise Poison(
                "too_large",
                f"the object has {body.size} bytes, limits.object_bytes is {self._object_bytes}",
            )
        ticket.version = body.version_id or body.etag
        ticket.times.fetched_s = self._clock.now()
        if not ticket.resumes():
            log.warning(
                "partition %d, offset %d: the object is not the version that the cursor was made "
                "for; its rows are repeated",
                ticket.owner.partition,
                ticket.record.offset,
            )
            ticket.resume = START
        may_overdraw = _may_overdraw(ticket)
        nbytes = 0
        await self._budget.room(may_overdraw)
        async for chunk in body:
            nbytes += len(chunk)
            await reading.feed(chunk)
            if not ticket.owner.alive:
                return
            await self._budget.room(may_overdraw)
        await reading.close()
        self._telemetry.object_read(nbytes)


def _may_overdraw(ticket: Ticket) -> Callable[[], bool]:
    lane = ticket.owner
    return lambda: lane.may_overdraw(ticket)
