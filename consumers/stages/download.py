"""Fetches objects: a fixed number of fetchers, lanes in turn, objects of a lane in order.

Rule: one object is one fetcher's from the first try to the last; what is tried again and for how
long is decided here, what a try is in download_object.py. Owner: the pipeline runs `fetch_forever`
as often as `objects.concurrency` says.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from consumers.core.blocks import Rejection, Ticket
from consumers.core.retry import Backoff, Tries
from consumers.dedupe import Dedupe
from consumers.errors import Poison, Transient
from consumers.lane import Lane
from consumers.ports import Clock
from consumers.services.outage import Outage
from consumers.stages.download_object import ObjectReader
from consumers.stages.microbatch import Microbatch
from consumers.telemetry import Telemetry

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
        reader: ObjectReader,
        microbatch: Microbatch,
        clock: Clock,
        telemetry: Telemetry,
        outage: Outage,
        dedupe: Dedupe,
        jitter: Callable[[], float],
        *,
        wait_for_object_s: float,
    ) -> None:
        self._reader = reader
        self._microbatch = microbatch
        self._clock = clock
        self._telemetry = telemetry
        self._outage = outage
        self._dedupe = dedupe
        self._jitter = jitter
        self._wait_for_object_s = wait_for_object_s
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
                await self._reader.read(ticket, tries)
            except Poison as error:
                waited_s = self._clock.now() - began_s
                if error.code != "not_found" or waited_s >= self._wait_for_object_s:
                    stage = error.stage or "download"
                    ticket.close(Rejection(error.code, str(error), stage, tries.count))
                    return
                await asyncio.sleep(LATE_OBJECT_POLL_S)
            except Transient as error:
                is_away = not tries.is_open and await self._reader.is_away(ticket, error)
                has_new = ticket.next_row > rows_before
                delay_s = self._after(error, tries, is_away=is_away, has_new=has_new)
                if delay_s is None:
                    ticket.close(Rejection("unavailable", str(error), "download", tries.count))
                    return
                await asyncio.sleep(delay_s)
            else:
                ticket.close()
                self._microbatch.read(ticket)
                return

    def _after(
        self, error: Transient, tries: Tries, *, is_away: bool, has_new: bool
    ) -> float | None:
        """Seconds before the next try, or None: give up. Only a store that is away keeps the
        watchdog quiet; anything else has an end of its own.
        """
        self._telemetry.retried("download", is_away=is_away)
        if is_away:
            self._outage.unreachable(error)
        return tries.failed(
            self._clock.now(), self._jitter(), error.retry_after_s, is_away=is_away, has_new=has_new
        )
