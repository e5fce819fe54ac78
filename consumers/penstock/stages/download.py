"""Fetches the objects of one model. Lanes take turns, by the weights of the streams whose objects
are next, and the objects of a lane are fetched in order.

Rule: one fetcher reads an object from the first try to the last. There are as many fetchers as the
reads of the store allow now, but always one, so the oldest object of a lane is always fetched in
the end. If the object of a fetcher needs a decoder, the fetcher reads that object to the end and
then stops; a new fetcher takes the next object meanwhile. Each store has its own fetchers, so that
a store that is away does not delay the objects of other stores. So has the backlog of each: beside
live objects these are few, and rest behind each object (core/window/read_share.py).
"""

import asyncio
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import Final
from weakref import WeakKeyDictionary

from penstock.core.health.retries import Tries
from penstock.core.rows.blocks import Ticket, backlog_of
from penstock.core.rows.log_keys import of_ticket
from penstock.core.rows.rejections import Rejection
from penstock.core.window.pace import BacklogPace
from penstock.errors import LockedOut, Poison, Transient, Unreachable
from penstock.failures.unexpected_errors import Guards, works_on
from penstock.lane.lane import Lane
from penstock.ports import PROBE_KEY, Clock, Location
from penstock.stages.read_object import ReadObject
from penstock.stages.store_reads import Fetcher, StoreReads, Waiters

# A store that has too much to do for a moment is asked for nothing more. A second later it is.
FEW_TRIES: Final = 3
# An error's message is cut at 1,000 characters and a key may have 1,024. So a long key is cut, to
# leave room for the reason.
SHOWN_KEY_CHARS = 200


class _Turns:
    """The lanes that have tickets, each at most once, by the time of their turns (start-time fair
    queueing): a ticket moves its lane's next turn on by 1, or by a part of it if its stream has a
    weight. A lane that was away has saved nothing.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._queue: list[tuple[float, int, Lane]] = []
        self._offered: set[Lane] = set()
        # The next turns of lanes that had one and have no ticket now. A lane that ended is in none.
        self._away: WeakKeyDictionary[Lane, float] = WeakKeyDictionary()
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._queue)

    def __contains__(self, lane: Lane) -> bool:
        return lane in self._offered

    def add(self, lane: Lane) -> None:
        self._put(lane, max(self._now, self._away.pop(lane, 0.0)))

    def next(self) -> Lane:
        self._now, _, lane = heappop(self._queue)
        self._offered.discard(lane)
        return lane

    def took(self, lane: Lane, weight: int, *, has_more: bool) -> None:
        """The lane whose turn it was had a ticket taken."""
        turn = self._now + 1 / weight
        if has_more:
            self._put(lane, turn)
            return
        self._away[lane] = turn

    def _put(self, lane: Lane, turn: float) -> None:
        self._count += 1
        self._offered.add(lane)
        heappush(self._queue, (turn, self._count, lane))


class _Pool:
    """The fetchers of one store, or of its backlog, and the lanes that have tickets for them.
    `pace`: what backlog may do beside live objects; None: these are no backlog's.
    """

    def __init__(self, reads: StoreReads, clock: Clock, pace: BacklogPace | None = None) -> None:
        self._clock = clock
        self.pace = pace
        self.lanes = _Turns()
        self.idle: Waiters[None] = Waiters()
        self.fetchers = 0
        self.begin: Callable[[], object] | None = None
        self._reads = reads

    @property
    def is_over(self) -> bool:
        """True if there are more fetchers than the limit, which has fallen, allows."""
        return self.fetchers > self.most

    @property
    def most(self) -> float:
        """How many there may be. A late read keeps no other backlog waiting either."""
        most = self._reads.readers
        if self.pace is None:
            return most
        return min(most, self.pace.reads(self._clock.now()) + self._reads.limiter.late)

    def call_one(self) -> bool:
        """Wake an idle fetcher; if there is none, begin another one, as far as the limit allows."""
        if (idle := self.idle.next()) is not None:
            idle.set_result(None)
            return True
        if self.begin is None:
            return False
        if self.fetchers >= self.most:
            self._reads.wants(self.call_one)
            return False
        self.fetchers += 1
        self.begin()
        return True

    def leave(self) -> None:
        """A fetcher takes no further object, so another one may take the next."""
        self.fetchers -= 1
        if self.lanes:
            self.call_one()


class Download:
    """`offer` takes lanes that have tickets for `model`. Each fetcher takes one object at a time
    from them. `weight`: of a stream's objects.
    """

    def __init__(
        self,
        model: str | None,
        reader: ReadObject,
        jitter: Callable[[], float],
        guards: Guards,
        weight: Callable[[str], int],
    ) -> None:
        self._model = model
        self._weight = weight
        self._reader = reader
        self._jitter = jitter
        self._guard = guards.at("store")
        self._clock = reader.clock
        self._dedupe = reader.dedupe
        self._pools: dict[str, _Pool] = {}
        for store, reads in reader.reads.items():
            self._pools[store] = _Pool(reads, reader.clock)
            self._pools[backlog_of(store)] = _Pool(reads, reader.clock, reader.microbatch.backlog)

    def offer(self, lane: Lane) -> None:
        """Queue a lane that has tickets, and wake idle fetchers. A lane that is in the queue
        already keeps its position there.
        """
        queue = lane.fetch_queues[self._model]
        for fetchers in queue.fetchers:
            pool, waiting = self._pools[fetchers], queue.waiting(fetchers)
            # A lane without a ticket must not count as offered, because its next ticket would then
            # wake no fetcher.
            if not waiting or lane in pool.lanes:
                continue
            pool.lanes.add(lane)
            for _ in range(waiting):
                if not pool.call_one():
                    break

    async def fetch_forever(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for fetchers, pool in self._pools.items():
                pool.begin = partial(self._begin, tasks, fetchers)
                pool.call_one()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                # A read that is ended makes room for a fetcher that may not begin any more.
                for pool in self._pools.values():
                    pool.begin = None

    def _begin(self, tasks: asyncio.TaskGroup, fetchers: str) -> None:
        tasks.create_task(self._fetch_on(fetchers))

    async def _fetch_on(self, fetchers: str) -> None:
        """Fetch one object after the other. If an object needs a decoder, it may wait long for the
        decoder. So this fetcher takes no further object, and a new fetcher is started instead of
        this one.
        """
        pool = self._pools[fetchers]
        fetcher = Fetcher(pool.leave)
        while not fetcher.has_left:
            ticket = await self._next(pool, fetchers)
            ticket.started = True
            ticket.fetching_s = self._clock.now()
            if pool.pace is not None:
                pool.pace.begin_read()
            if self._dedupe is None:
                await self._fetch(ticket, fetcher)
            else:
                async with self._dedupe.turn(ticket):
                    await self._fetch(ticket, fetcher)
            ticket.owner.fetched(ticket)
            if pool.pace is not None:
                now_s, is_wanted = self._clock.now(), bool(pool.lanes)
                took_s = now_s - ticket.fetching_s - fetcher.waited_s
                if rest_s := pool.pace.rest_s(took_s, now_s, is_wanted=is_wanted):
                    await asyncio.sleep(rest_s)
            if pool.is_over:
                fetcher.leave()

    async def _next(self, pool: _Pool, fetchers: str) -> Ticket:
        while True:
            while pool.lanes:
                lane = pool.lanes.next()
                queue = lane.fetch_queues[self._model]
                if queue.waiting(fetchers):
                    ticket = queue.take(fetchers)
                    has_more = queue.waiting(fetchers) > 0
                    pool.lanes.took(lane, self._weight(ticket.stream), has_more=has_more)
                    if has_more:
                        # The lane has more tickets, and this object may take long. So another
                        # fetcher is called for the next ticket, because `offer` has called fetchers
                        # only for the tickets that were there, and as far as the limit allowed.
                        pool.call_one()
                    return ticket
            await pool.idle.join()

    async def _fetch(self, ticket: Ticket, fetcher: Fetcher) -> None:
        """Read the ticket's object to its end. If that fails for good, close the ticket with the
        reason.
        """
        began_s = self._clock.now()
        failures: Tries | None = None
        fetcher.waited_s = 0.0
        works_on(partial(of_ticket, ticket))
        while ticket.owner.alive:
            fetcher.is_answered = False
            rows_before = ticket.next_row
            try:
                with self._guard:
                    await self._reader.read(ticket, fetcher)
            except Poison as error:
                failures = failures or Tries(began_s)
                wait_s = self._reader.terms.wait_for_object_s
                delay_s = failures.refused(error, self._clock.now(), wait_s)
                if delay_s is None:
                    stage = error.stage or "download"
                    message = str(error) if stage == "download" else f"{_name(ticket)}{error}"
                    ticket.close(Rejection(error.code, message, stage, failures.count))
                    return
                await self._pause(delay_s, ticket, fetcher)
            except Transient as error:
                failures = failures or Tries(began_s)
                is_away = await self._is_away(ticket, error, fetcher, failures)
                # The watchdog is told of tries that go on without end.
                self._reader.telemetry.retried("download", is_away=is_away)
                delay_s = failures.failed(
                    self._clock.now(),
                    fetcher.waited_s,
                    self._jitter(),
                    error.retry_after_s,
                    is_away=is_away,
                    has_new=ticket.next_row > rows_before,
                )
                if delay_s is None:
                    ticket.close(Rejection("unavailable", str(error), "download", failures.count))
                    return
                await self._pause(delay_s, ticket, fetcher)
            else:
                ticket.close()
                self._reader.microbatch.object_read(ticket)
                return

    async def _pause(self, delay_s: float, ticket: Ticket, fetcher: Fetcher) -> None:
        """Before the next try. There may be one fetcher for all backlog, whose other objects do not
        wait for one that fails, or is not there yet.
        """
        if ticket.gives_way:
            fetcher.leave()
        await asyncio.sleep(delay_s)

    async def _is_away(
        self, ticket: Ticket, error: Transient, fetcher: Fetcher, failures: Tries
    ) -> bool:
        """True if the store is away, or sends no object; False if it fails only at this one, so
        that the tries at it must end. To find out which, the store is asked for a key that is not
        there, and for the object that it sent last.
        """
        reference = ticket.reference
        if reference is None:
            return False
        reads, outage = self._reader.reads[ticket.store], self._reader.outages[ticket.store]
        nowhere = Location(reference.bucket, PROBE_KEY, store=ticket.store)
        # If the store began to answer this try, it is not away.
        if isinstance(error, Unreachable) and not fetcher.is_answered:
            if isinstance(error, LockedOut) or await self._fails(nowhere, Unreachable):
                outage.unreachable(error)
                return True
        elif failures.count < FEW_TRIES:
            return False
        other = reads.last_read_beside(reference)
        if reads.last_read_s >= failures.last_s:
            return False
        # If no other came yet, as after a start: a store that works says that a key is not there.
        witness = nowhere
        if other is not None:
            witness = nowhere._replace(bucket=other.bucket, key=other.key)
        if not await self._fails(witness, Transient):
            return False
        outage.fails(f"it sends no object: {error}")
        return True

    async def _fails(self, location: Location, error: type[Transient]) -> bool:
        """Does the store fail in this way when it is asked for this object?"""
        try:
            with self._guard:
                body = await self._reader.objects.open(location)
                try:
                    await anext(aiter(body), None)
                finally:
                    await body.aclose()
        except error:
            return True
        except (Poison, Transient):
            pass
        return False


def _name(ticket: Ticket) -> str:
    """The object's name, to be put before the message of a parser, which does not know the name."""
    reference = ticket.reference
    if reference is None:
        return ""
    slash = "" if reference.bucket.endswith("/") else "/"  # a local file has `file://` for a bucket
    key = reference.key
    shown = key if len(key) <= SHOWN_KEY_CHARS else "…" + key[-SHOWN_KEY_CHARS:]
    return f"{reference.bucket}{slash}{shown}: "
