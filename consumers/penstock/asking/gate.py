"""The gate before a server that may fail: callers wait here until the breaker lets them pass.

Rule: batches pass in the order of their arrival. Searches for bad rows pass in the order of their
ranks, the lowest rank first. Batches and searches take turns. A caller that has passed must report
once how its call ended. While the server is healthy, no caller waits and no timer is set. Owner:
the calls of one model.
"""

import asyncio
import heapq
import math
from collections import deque
from collections.abc import Callable
from itertools import count

from penstock.core.health.breaker import Breaker, Call, CallTurns, Turn
from penstock.errors import Overloaded, Transient
from penstock.ports import Clock
from penstock.process.waiters import taken

# The rank of a search for a bad row: the search with the lowest rank goes first.
Rank = tuple[int, int]
_Turn = asyncio.Future[Call]


class Gate:
    """A caller gets a call by `call = await enter()`, and ends it by one of `answered`, `failed`
    and `dropped`. `dropped`: the end of the call tells nothing about the server.
    """

    def __init__(self, breaker: Breaker, clock: Clock, jitter: Callable[[], float]) -> None:
        self._breaker = breaker
        self._clock = clock
        self._jitter = jitter
        self._turns = CallTurns()
        self._rows: deque[_Turn] = deque()
        self._searches: list[tuple[Rank, int, _Turn]] = []
        self._number = count()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """True while the breaker is open, so that only probes pass."""
        return self._breaker.is_open

    @property
    def allowed(self) -> int:
        """How many calls may be in progress at a time now."""
        return self._breaker.allowed

    async def enter(self, rank: Rank | None = None) -> Call:
        """Wait until the caller may begin a call. `rank`: the rank of a search; None if the caller
        sends a batch.
        """
        turn: _Turn = asyncio.get_running_loop().create_future()
        if rank is None:
            self._rows.append(turn)
        else:
            heapq.heappush(self._searches, (rank, next(self._number), turn))
        self._serve()
        return turn.result() if turn.done() else await taken(turn, self.dropped)

    def answered(self, call: Call) -> None:
        self._turns.end(call.turn)
        self._breaker.answered(call, self._clock.now())
        self._serve()

    def failed(self, call: Call, error: Transient) -> None:
        self._turns.end(call.turn)
        self._breaker.failed(
            call,
            self._clock.now(),
            self._jitter(),
            is_full=isinstance(error, Overloaded),
            asked_s=error.retry_after_s,
        )
        self._serve()

    def dropped(self, call: Call) -> None:
        self._turns.end(call.turn)
        self._breaker.dropped(call)
        self._serve()

    def _serve(self) -> None:
        while who := self._who():
            now_s = self._clock.now()
            wait_s = self._breaker.wait_s(now_s)
            if wait_s:
                self._ring_after(wait_s)
                return
            self._turns.begin(who)
            turn = self._rows.popleft() if who == "rows" else heapq.heappop(self._searches)[2]
            turn.set_result(self._breaker.begin(now_s, who))

    def _who(self) -> Turn | None:
        """The queue whose first caller may make the next call. None: no call is free, or no caller
        waits.
        """
        while self._rows and self._rows[0].done():
            self._rows.popleft()
        while self._searches and self._searches[0][2].done():
            heapq.heappop(self._searches)
        return self._turns.next(
            self._breaker.allowed,
            rows_wait=bool(self._rows),
            searches_wait=bool(self._searches),
        )

    def _ring_after(self, wait_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wait_s < math.inf:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._serve)
