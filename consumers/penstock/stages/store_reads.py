"""The reads of one store that are in flight, of the objects of all models.

The writes of results take turns in the same way, under a limit of their own: a write takes longer
than a read, so their times are not compared.

Rule: a read is in flight from its request to its first answer; a small object, which is read whole,
until its last byte. A read waits for nothing but the store, so it always ends: whatever the limit
is, every read has its turn, in the order in which they came. What an object waits for after that (a
decoder, room in the window, the byte budget) takes no turn of others. Owner: the wiring, for each
store.
"""

from collections.abc import Callable

from penstock.core.health.limiter import InFlight, Limiter
from penstock.core.health.retries import Tries
from penstock.errors import NoAnswer, Overloaded, Poison, Unforeseen
from penstock.ports import Clock
from penstock.process.asyncio_additions import Places
from penstock.process.waiters import Waiters, taken
from penstock.telemetry.metric_types import Used


class StoreReads:
    """Call `begin` before a request, and then exactly one of `answered`, `broke` and `dropped`.
    `used`: the share of the allowed reads that is in flight, over time. `is_answered`, where it is
    an argument: the store answered, but the time of this answer says nothing about others.
    `seats`: an object of any model holds one while it has a decoder or waits for one.
    """

    def __init__(self, limiter: Limiter, clock: Clock) -> None:
        self.limiter = limiter
        self.used = Used(clock.now())
        # The bucket that was read last.
        self.bucket: str | None = None
        self._clock = clock
        self._least = limiter.limit
        self.seats = _Seats(self)
        self._waiting: Waiters[InFlight] = Waiters()

    @property
    def readers(self) -> int:
        """How many objects of one model may be read at a time. Not fewer than at the start, because
        an object that waits for something else than the store must not keep others from it.
        """
        return max(self._least, self.limiter.limit)

    async def begin(self, tries: Tries | None = None) -> InFlight:
        """Wait until a request may be sent. This wait does not count against the object."""
        limiter, now_s = self.limiter, self._clock.now()
        if not self._waiting and limiter.has_room:
            request = limiter.begin(now_s)
            self._note_use(now_s)
            return request
        request = await taken(self._waiting.join(), self.dropped)
        if tries is not None:
            tries.kept_waiting(self._clock.now() - now_s)
        return request

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
        while self._waiting and self.limiter.has_room:
            if (turn := self._waiting.next()) is not None:
                turn.set_result(self.limiter.begin(now_s))
        self._note_use(now_s)

    def _note_use(self, now_s: float) -> None:
        self.used.change(now_s, self.limiter.in_flight / self.limiter.limit)


class _Seats(Places):
    """As many as a model has fetchers for this store."""

    def __init__(self, reads: StoreReads) -> None:
        super().__init__()
        self._reads = reads

    @property
    def most(self) -> int:
        return self._reads.readers


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
