"""The reads of one store: which may be sent now, of the objects of all models (`StoreReads`), and
which are sent again, so that one slow answer holds nobody up (`HedgedObjects`). The writes of
results take turns in the same way, under a limit of their own: a write takes longer than a read, so
their times are not compared.

Rule: a read is in flight from its request to its first answer; a small object, which is read whole,
until its last byte. A read waits for nothing but the store, so it always ends: whatever the limit
is, every read has its turn, in the order in which they came. One that is late keeps no other from
its turn. What an object waits for after that (a decoder, room in the window, the byte budget) takes
no turn of others. Owner: the wiring, for each store.

A read without an answer is sent again if `Hedging` allows it. Both ask for the same version, if one
is known; else the answer that counts decides which is read from then on. A body that brings nothing
for long is closed, and the rest read by ranges under its version; if the store tells none, the body
is waited for.
"""

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Final, TypeVar

from penstock.core.health.limiter import InFlight, Limiter
from penstock.core.health.retries import Hedging, Outcome, TimesBySize
from penstock.core.routing.store_choice import DEFAULT
from penstock.errors import NoAnswer, Overloaded, Poison, Unforeseen
from penstock.messages.reference import Reference
from penstock.ports import Clock, Listed, Location, ObjectBody, Objects, Part
from penstock.process.asyncio_additions import Places, taken
from penstock.process.hedged import Alarms, Ask, Hedged
from penstock.telemetry.metric_types import Used

T = TypeVar("T")

# Bodies up to this size come with the head of the answer, so they do not stall.
SMALL_BYTES: Final = 64 << 10
# A body stalls if its next chunk takes this many times as long as 95 of 100 chunks of this store
# with as much left to read (a small rest comes whole), and at least `LEAST_STALL_S`: a lost packet
# alone is repaired within a second.
STALL_TIMES: Final = 4.0
LEAST_STALL_S: Final = 1.0
# As long as that is not known, it stalls after this time. After this time its connection may also
# be dead, so the rest is asked for even if no read may be sent again.
FIRST_STALL_S: Final = 4.0
# The rest of a stalled body is read in ranges of this size, which is that of a body's chunks. So
# the time of a range tells how long a chunk takes: a store that is only slow is known by it. And
# connections that are cut after a while bring as much as by a body.
RANGE_BYTES: Final = 1 << 20


class Waiters(deque[asyncio.Future[T]]):
    """The turns of waiting tasks, in the order in which they came. A turn is never lost: a task
    that was cancelled before it is passed over; one that is cancelled after it gives it back
    (`taken`). As a deque it costs nothing to ask whether there are any.
    """

    def join(self) -> asyncio.Future[T]:
        """A turn at the end of the queue; `taken` waits for it."""
        turn: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.append(turn)
        return turn

    def next(self) -> asyncio.Future[T] | None:
        """Take the turn of the task that has waited longest; None: no task waits. The caller sets
        the turn's result.
        """
        while self:
            turn = self.popleft()
            if not turn.done():  # otherwise its task was cancelled
                return turn
        return None


class StoreReads:
    """Call `begin` before a request, and then exactly one of `answered`, `broke` and `dropped`.
    `used`: the share of the allowed reads that is in flight, over time. `is_answered`, where it is
    an argument: the store answered, but the time of this answer says nothing about others.
    `seats`: an object of any model holds one while it has a decoder or waits for one. `is_proven`:
    as of `Decoders`.
    """

    def __init__(
        self,
        limiter: Limiter,
        clock: Clock,
        weight: Callable[[str], int] = lambda stream: 1,
        is_proven: Callable[[str], bool] = lambda stream: False,
    ) -> None:
        self.limiter = limiter
        self.used = Used(clock.now())
        # The bucket that was read last.
        self.bucket: str | None = None
        # The object that was read last, to its end, and when; and the one of another key before it.
        self._last_read: Reference | None = None
        self._read_before: Reference | None = None
        self.last_read_s = -math.inf
        self._clock = clock
        self._least = limiter.limit
        self.seats = _Seats(self, weight, is_proven)
        self._waiting: Waiters[InFlight] = Waiters()
        # What is called when a late read makes room for another object.
        self._wanted: dict[Callable[[], object], None] = {}
        self._looking: asyncio.TimerHandle | None = None

    @property
    def readers(self) -> int:
        """How many objects of one model may be read at a time. Not fewer than at the start, because
        an object that waits for something else than the store must not keep others from it.
        """
        return max(self._least, self.limiter.limit) + self.limiter.late

    def wants(self, reader: Callable[[], object]) -> None:
        """Call `reader` when a late read makes room for another object."""
        self._wanted[reader] = None
        if self._looking is None:
            self._look()

    def _look(self) -> None:
        """While reads or objects wait, look for reads that are late."""
        self._looking = None
        now_s, late = self._clock.now(), self.limiter.late
        again_s = self.limiter.relieve(now_s)
        has_more = self.limiter.late > late
        if has_more:
            self._give(now_s)
        if again_s is not None and (self._waiting or self._wanted):
            self._looking = asyncio.get_running_loop().call_later(again_s, self._look)
        if has_more:
            # Last, because a reader that finds no room wants it again.
            wanted, self._wanted = self._wanted, {}
            for reader in wanted:
                reader()

    async def begin(self, fetcher: "Fetcher | None" = None) -> InFlight:
        """Wait until a request may be sent. This wait does not count against the object."""
        limiter, now_s = self.limiter, self._clock.now()
        if not self._waiting and limiter.has_room:
            request = limiter.begin(now_s)
            self._note_use(now_s)
            if self._wanted and self._looking is None:
                self._look()
            return request
        turn = self._waiting.join()
        if self._looking is None:
            self._look()
        request = await taken(turn, self.dropped)
        if fetcher is not None:
            fetcher.waited_s += self._clock.now() - now_s
        return request

    def read(self, reference: Reference) -> None:
        """The object was read to its end."""
        last, self.last_read_s = self._last_read, self._clock.now()
        if last is not None and last.key != reference.key:
            self._read_before = last
        self._last_read = reference

    def last_read_beside(self, reference: Reference) -> Reference | None:
        """The last object of another key that was read to its end."""
        last = self._last_read
        return self._read_before if last is None or last.key == reference.key else last

    def asked_again(self, more: int) -> None:
        """So many more reads were sent again. Of a body's rest, and of a probe, no request was
        begun: the end of their second requests gives turns on, as perhaps no other end does.
        """
        self.limiter.asked_again(more)
        if more < 0:
            self._give(self._clock.now())

    def answered(self, request: InFlight) -> None:
        now_s = self._clock.now()
        self.limiter.answered(request, now_s)
        self._ended(now_s)

    def broke(self, request: InFlight, error: BaseException) -> None:
        """The request ended with this error."""
        now_s = self._clock.now()
        if isinstance(error, Overloaded | NoAnswer):
            self.limiter.failed(request, now_s, is_full=isinstance(error, Overloaded))
        elif isinstance(error, Poison) and not isinstance(error, Unforeseen):
            self.limiter.answered(request, now_s)
        else:
            self.limiter.dropped(request)
        self._ended(now_s)

    def dropped(self, request: InFlight, *, is_answered: bool = False) -> None:
        """The request ended without telling how fast the store is."""
        now_s = self._clock.now()
        self.limiter.dropped(request)
        if is_answered:
            self.limiter.heard(now_s)
        self._ended(now_s)

    def _ended(self, now_s: float) -> None:
        self._give(now_s)
        if not self.limiter.in_flight:
            # An object that is read to its end makes room by itself.
            self._wanted.clear()
        elif self._looking is None and (self._waiting or self._wanted):
            self._look()

    def _give(self, now_s: float) -> None:
        while self._waiting and self.limiter.has_room:
            if (turn := self._waiting.next()) is not None:
                turn.set_result(self.limiter.begin(now_s))
        self._note_use(now_s)

    def _note_use(self, now_s: float) -> None:
        self.used.change(now_s, self.limiter.taken / self.limiter.limit)


class _Seats(Places):
    """As many as a model has fetchers for this store."""

    def __init__(
        self,
        reads: StoreReads,
        weight: Callable[[str], int],
        is_proven: Callable[[str], bool],
    ) -> None:
        super().__init__(weight=weight, is_proven=is_proven)
        self._reads = reads

    @property
    def most(self) -> int:
        return self._reads.readers


class Fetcher:
    """One fetcher of a store. `let_another_in`: a function that is called when this one leaves. A
    fetcher that has left reads its object to the end and then takes no other object. Each further
    try at that object needs a seat. `waited_s`: how long this worker kept the transfer of the
    object waiting. `is_answered`: the store has begun to answer this try.
    """

    def __init__(self, let_another_in: Callable[[], object]) -> None:
        self.has_left = self.is_answered = False
        self.waited_s = 0.0
        self._let_another_in = let_another_in

    def leave(self) -> None:
        if not self.has_left:
            self.has_left = True
            self._let_another_in()


class _Store:
    """What is known of one store's times."""

    def __init__(
        self, hedging: Hedging, reads: StoreReads | None, tell: Callable[[Outcome], None]
    ) -> None:
        self.hedging = hedging
        self.reads = reads
        self.tell = tell
        self.alarms = Alarms()
        self.chunks = TimesBySize()

    def stall_s(self, left_bytes: int) -> float:
        late_s = self.chunks.of(left_bytes).late_s
        return FIRST_STALL_S if late_s is None else max(LEAST_STALL_S, STALL_TIMES * late_s)


class HedgedObjects:
    """Implements the port `Objects`. `hedgings`: one for each store whose reads may be sent again.
    `tell`: a function that is told the store, and what became of a read that was sent again.
    `reads`: for a store whose reads are limited, among which those sent again count.
    """

    def __init__(
        self,
        objects: Objects,
        hedgings: Mapping[str, Hedging],
        clock: Clock,
        tell: Callable[[str, Outcome], None],
        reads: Mapping[str, StoreReads] | None = None,
    ) -> None:
        self._objects = objects
        self._clock = clock
        self._stores = {
            name: _Store(hedging, (reads or {}).get(name), partial(tell, name))
            for name, hedging in hedgings.items()
        }

    async def open(self, location: Location) -> ObjectBody:
        store = self._stores.get(location.store)
        if store is None:
            return await self._objects.open(location)
        body = await self._read(
            store, lambda: self._objects.open(location), location.size, lambda body: body.aclose()
        )
        if body.size <= SMALL_BYTES or (body.version_id is None and body.etag is None):
            return body
        return _WatchedBody(body, location, store, self, self._clock)

    async def part(self, location: Location, start: int, stop: int | None = None) -> Part:
        store = self._stores.get(location.store)
        if store is None:
            return await self._objects.part(location, start, stop)
        nbytes = -start if start < 0 else None if stop is None else stop - start
        return await self._read(store, lambda: self._objects.part(location, start, stop), nbytes)

    def list(self, bucket: str, pattern: str, store: str = DEFAULT) -> AsyncIterator[Listed]:
        return self._objects.list(bucket, pattern, store)

    async def aclose(self) -> None:
        await self._objects.aclose()

    async def _read(
        self,
        store: _Store,
        ask: Ask[T],
        nbytes: int | None,
        close: Callable[[T], Awaitable[None]] | None = None,
    ) -> T:
        hedging, began_s = store.hedging, self._clock.now()
        reads, again = store.reads, 0
        hedging.asked()
        late_s = hedging.late_s(nbytes)

        async def watched() -> T:
            try:
                return await ask()
            except Overloaded:
                hedging.refused(self._clock.now())
                raise

        def watched_again() -> Coroutine[None, None, T]:
            nonlocal again
            if reads is not None:
                again += 1
                reads.asked_again(1)
            return watched()

        try:
            if late_s is None:
                answer = await watched()
            else:
                may_again, tell = hedging.may_ask_again, store.tell
                read = Hedged(watched, watched_again, may_again, tell, store.alarms, close)
                answer = await read.answer(late_s)
        except NoAnswer:
            hedging.unanswered()
            raise
        finally:
            if reads is not None and again:
                reads.asked_again(-again)
        hedging.answered(nbytes, self._clock.now() - began_s)
        return answer


class _Stalled(Exception):
    """A body brings nothing, and its rest may be asked for again."""


class _WatchedBody:
    """A body that goes on by ranges once it stalls."""

    def __init__(
        self, body: ObjectBody, location: Location, store: _Store, objects: Objects, clock: Clock
    ) -> None:
        self.size, self.etag, self.version_id = body.size, body.etag, body.version_id
        self._body = body
        self._rest = location._replace(version_id=body.version_id, etag=body.etag)
        self._store = store
        self._objects = objects
        self._clock = clock

    async def __aiter__(self) -> AsyncIterator[bytes]:
        done, chunks = 0, aiter(self._body)
        try:
            while (chunk := await self._before_it_stalls(chunks, self.size - done)) is not None:
                done += len(chunk)
                yield chunk
            return
        except _Stalled:
            self._store.tell("resumed")
        await self._body.aclose()
        while done < self.size:
            left_bytes, began_s = self.size - done, self._clock.now()
            stop = done + min(left_bytes, RANGE_BYTES)
            part = await self._objects.part(self._rest, done, stop)
            is_other = self.etag is not None and part.etag not in (None, self.etag)
            if part.size != self.size or not part.data or is_other:
                raise Poison(
                    "changed",
                    f"{self._rest.bucket}/{self._rest.key} was replaced while it was read",
                )
            self._store.chunks.of(left_bytes).add(self._clock.now() - began_s)
            done += len(part.data)
            yield part.data

    async def aclose(self) -> None:
        await self._body.aclose()

    async def _before_it_stalls(
        self, chunks: AsyncIterator[bytes], left_bytes: int
    ) -> bytes | None:
        began_s, stall_s = self._clock.now(), self._store.stall_s(left_bytes)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as limit:
                watch = _Watch(loop, self._store.hedging, limit)
                watch.begin(stall_s)
                try:
                    chunk = await anext(chunks, None)
                finally:
                    watch.end()
        except TimeoutError:
            if limit.expired():
                raise _Stalled from None
            raise
        if chunk is not None:
            self._store.chunks.of(left_bytes).add(self._clock.now() - began_s)
        return chunk


class _Watch:
    """Ends the wait for a chunk when it has taken too long and another request may be sent, or when
    the connection may be dead.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, hedging: Hedging, limit: asyncio.Timeout
    ) -> None:
        self._loop = loop
        self._hedging = hedging
        self._limit = limit
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, stall_s: float) -> None:
        self._timer = self._loop.call_later(stall_s, self._look, stall_s, stall_s)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, waited_s: float, stall_s: float) -> None:
        now_s = self._loop.time()
        if self._hedging.may_ask_again(now_s) or waited_s >= FIRST_STALL_S:
            self._limit.reschedule(now_s)
        else:
            waited_s += stall_s
            self._timer = self._loop.call_later(stall_s, self._look, waited_s, stall_s)
