"""Fetches the objects of one model with a fixed number of fetchers. Lanes take turns, and the
objects of a lane are fetched in order.

Rule: one fetcher reads an object from the first try to the last. `core.health.retry_and_failover`
decides what is tried again and for how long; object_reader.py makes one try. If the object of a
fetcher needs a decoder, the fetcher reads that object to the end and then stops; a new fetcher
takes the next object meanwhile. Each store has its own fetchers, so that a store that is away does
not delay the objects of other stores. Owner: the pipeline, which runs `fetch_forever` for each
store, with as many fetchers as the store's `concurrency` says.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from penstock.calls.outage import Outage
from penstock.calls.unexpected_errors import Guards, works_on
from penstock.core.health.retry_and_failover import Tries
from penstock.core.rows.blocks import Ticket
from penstock.core.rows.log_keys import of_ticket
from penstock.core.rows.rejections import Rejection
from penstock.errors import Poison, Transient, Unforeseen
from penstock.lane.dedupe import Dedupe
from penstock.lane.receiving import ReceivingLane
from penstock.ports import Clock
from penstock.stages.microbatch import Microbatch
from penstock.stages.object_reader import Fetcher, ObjectReader, ObjectTerms
from penstock.telemetry.worker import Telemetry

# An error's message is cut at 1,000 characters and a key may have 1,024. So a long key is cut, to
# leave room for the reason.
SHOWN_KEY_CHARS = 200


class _Pool:
    """The idle fetchers of one store, and the queue of lanes that have tickets for that store. Each
    lane is in the queue at most once.
    """

    def __init__(self) -> None:
        self.lanes: deque[ReceivingLane] = deque()
        self.offered: set[ReceivingLane] = set()
        self.idle: deque[asyncio.Future[None]] = deque()

    def wake_one(self) -> bool:
        while self.idle:
            idle = self.idle.popleft()
            if not idle.done():
                idle.set_result(None)
                return True
        return False


class Download:
    """`offer` takes lanes that have tickets for `model`. Each fetcher takes one object at a time
    from them.
    """

    def __init__(
        self,
        model: str | None,
        reader: ObjectReader,
        microbatch: Microbatch,
        clock: Clock,
        telemetry: Telemetry,
        outages: Mapping[str, Outage],
        dedupe: Dedupe | None,
        jitter: Callable[[], float],
        guards: Guards,
        terms: ObjectTerms,
    ) -> None:
        self._model = model
        self._reader = reader
        self._microbatch = microbatch
        self._clock = clock
        self._telemetry = telemetry
        self._outages = outages
        self._dedupe = dedupe
        self._jitter = jitter
        self._guard = guards.at("store")
        self._wait_for_object_s = terms.wait_for_object_s
        self._pools = {store: _Pool() for store in outages}

    def offer(self, lane: ReceivingLane) -> None:
        """Queue a lane that has tickets, and wake idle fetchers. A lane that is in the queue
        already keeps its position there.
        """
        queue = lane.fetch_queues[self._model]
        for store in queue.stores:
            pool, waiting = self._pools[store], queue.waiting(store)
            # A lane without a ticket must not count as offered, because its next ticket would then
            # wake no fetcher.
            if not waiting or lane in pool.offered:
                continue
            pool.offered.add(lane)
            pool.lanes.append(lane)
            for _ in range(waiting):
                if not pool.wake_one():
                    break

    def idle(self, store: str) -> int:
        """How many fetchers of this store have no object."""
        return sum(not one.done() for one in self._pools[store].idle)

    async def fetch_forever(self, store: str, fetchers: int) -> None:
        async with asyncio.TaskGroup() as tasks:

            def begin() -> None:
                tasks.create_task(self._fetch_on(store, begin))

            for _ in range(fetchers):
                begin()

    async def _fetch_on(self, store: str, begin_another: Callable[[], object]) -> None:
        """Fetch one object after the other. If an object needs a decoder, it may wait long for the
        decoder. So this fetcher takes no further object, and a new fetcher is started instead of
        this one.
        """
        pool, fetcher = self._pools[store], Fetcher(begin_another)
        while not fetcher.has_left:
            ticket = await self._next(pool, store)
            ticket.started = True
            ticket.fetching_s = self._clock.now()
            if self._dedupe is None:
                await self._fetch(ticket, fetcher)
            else:
                async with self._dedupe.turn(ticket):
                    await self._fetch(ticket, fetcher)
            ticket.owner.fetched(ticket)

    async def _next(self, pool: _Pool, store: str) -> Ticket:
        while True:
            while pool.lanes:
                lane = pool.lanes.popleft()
                pool.offered.discard(lane)
                queue = lane.fetch_queues[self._model]
                if queue.waiting(store):
                    ticket = queue.take(store)
                    if queue.waiting(store):
                        pool.offered.add(lane)
                        pool.lanes.append(lane)
                        # The lane has more tickets, and this object may take long. So an idle
                        # fetcher is woken for the next ticket, because `offer` has woken fetchers
                        # only for the tickets that were there then.
                        pool.wake_one()
                    return ticket
            idle = asyncio.get_running_loop().create_future()
            pool.idle.append(idle)
            await idle

    async def _fetch(self, ticket: Ticket, fetcher: Fetcher) -> None:
        """Read the ticket's object to its end. If that fails for good, close the ticket with the
        reason.
        """
        tries = Tries(self._clock.now())
        works_on(partial(of_ticket, ticket))
        while ticket.owner.alive:
            tries.begin()
            rows_before = ticket.next_row
            try:
                with self._guard:
                    await self._reader.read(ticket, tries, fetcher)
            except Poison as error:
                delay_s = tries.refused(error, self._clock.now(), self._wait_for_object_s)
                if delay_s is None:
                    stage = error.stage or "download"
                    said = str(error) if stage == "download" else f"{_name(ticket)}{error}"
                    ticket.close(Rejection(error.code, said, stage, tries.count))
                    return
                await asyncio.sleep(delay_s)
            except Transient as error:
                # If the store began to answer this try, the store is not away.
                is_away = not tries.is_open and await self._is_away(ticket, error)
                has_new = ticket.next_row > rows_before
                delay_s = self._delay_s(ticket, error, tries, is_away=is_away, has_new=has_new)
                if delay_s is None:
                    ticket.close(Rejection("unavailable", str(error), "download", tries.count))
                    return
                await asyncio.sleep(delay_s)
            else:
                ticket.close()
                self._microbatch.object_read(ticket)
                return

    async def _is_away(self, ticket: Ticket, error: Transient) -> bool:
        try:
            with self._guard:
                return await self._reader.is_away(ticket, error)
        except Unforeseen:
            return False

    def _delay_s(
        self, ticket: Ticket, error: Transient, tries: Tries, *, is_away: bool, has_new: bool
    ) -> float | None:
        """Returns the seconds until the next try, or None if no further try is made. The watchdog
        is told of tries at a store that is away, because such tries go on without end.
        """
        self._telemetry.retried("download", is_away=is_away)
        if is_away:
            self._outages[ticket.store].unreachable(error)
        return tries.failed(
            self._clock.now(), self._jitter(), error.retry_after_s, is_away=is_away, has_new=has_new
        )


def _name(ticket: Ticket) -> str:
    """The object's name, to be put before the message of a parser, which does not know the name."""
    reference = ticket.reference
    if reference is None:
        return ""
    slash = "" if reference.bucket.endswith("/") else "/"  # a local file has `file://` for a bucket
    key = reference.key
    shown = key if len(key) <= SHOWN_KEY_CHARS else "…" + key[-SHOWN_KEY_CHARS:]
    return f"{reference.bucket}{slash}{shown}: "
