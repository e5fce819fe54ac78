"""When does a model server get only a probe, and which caller goes next?

Rule: every failure spends one unit of a small budget, and every answer earns a tenth of a unit, so
at most one call is repeated for every ten that are answered. When the budget is spent, the breaker
opens: until a probe is answered, the server gets one probe at a time, each after a longer pause. An
answered probe halves the count of failed ones: if failures only added up, a server that answers
every second call would be probed ever more rarely.

Batches pass the gate in the order of their arrival, searches for bad rows by their ranks, the
lowest first. Both take turns. Searches have at most a quarter of the calls, and never all of them
if there is more than one call, so both always go on. While the server is healthy, no caller waits
and no timer is set. `Breaker` and `CallTurns` are pure: time and jitter are arguments. A caller
that has passed must report once how its call ended. Owner: the calls of one model.
"""

import asyncio
import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Literal, NamedTuple

from penstock.core.health.limiter import InFlight, Limiter
from penstock.core.health.retries import FLOOR, MOST_ASKED_S, RETRY_SHARE, Backoff
from penstock.errors import Overloaded, Transient
from penstock.ports import Clock
from penstock.process.asyncio_additions import taken

# TorchServe needs about 2 s to replace a dead worker process. The longest pause between two probes,
# 5 s, spares a server that is down for long.
PROBES = Backoff(first_s=0.05, most_s=5.0)
# Of this many calls at a time, one may be a search. With four calls at a time one search asks at a
# time, so a server with one worker process answers at most one search between two batches.
SEARCH_SHARE = 4

Turn = Literal["rows", "search"]
# The rank of a search for a bad row: the search with the lowest rank goes first.
Rank = tuple[int, int]


class Call(NamedTuple):
    """A call in progress. `request`: what the limiter knows of it. `turn`: the queue that it came
    from. `is_small`: this call must carry few rows, because the probe before it failed.
    """

    request: InFlight
    is_probe: bool
    turn: Turn
    is_small: bool = False


@dataclass(slots=True)
class Breaker:
    """Ask `wait_s`. When that is 0.0, a call may `begin`; then report how the call ended."""

    limiter: Limiter
    is_open: bool = False
    _budget: float = FLOOR
    _failed_probes: int = 0
    _is_probing: bool = False
    _not_before_s: float = -math.inf

    @property
    def allowed(self) -> int:
        """How many calls may be in progress now."""
        return 1 if self.is_open else self.limiter.limit

    def wait_s(self, now_s: float) -> float:
        """How many seconds to wait. 0.0: a call may begin now. Infinite: wait until another call
        ends.
        """
        if now_s < self._not_before_s:
            return self._not_before_s - now_s
        if self.is_open:
            return math.inf if self._is_probing else 0.0
        return 0.0 if self.limiter.has_room else math.inf

    def begin(self, now_s: float, turn: Turn = "rows") -> Call:
        self._is_probing = self.is_open
        is_small = self.is_open and self._failed_probes > 1
        return Call(self.limiter.begin(now_s), self.is_open, turn, is_small)

    def dropped(self, call: Call) -> None:
        """The call ended without telling anything about the server."""
        self.limiter.dropped(call.request)
        self._probed(call)

    def answered(self, call: Call, now_s: float) -> None:
        """The server answered. A refusal of the rows counts as an answer."""
        self.limiter.answered(call.request, now_s)
        self._probed(call)
        if self.is_open:
            self.is_open = self._is_probing = False
            self._not_before_s = -math.inf
            self._failed_probes //= 2
            self.limiter.begins_anew()
            # Just enough for one call, so that the next failure opens the breaker again.
            self._budget = 1.0
        if self._budget < FLOOR:
            self._budget = min(FLOOR, self._budget + RETRY_SHARE)
            if self._budget == FLOOR:
                self._failed_probes = 0

    def failed(
        self,
        call: Call,
        now_s: float,
        jitter: float,
        *,
        is_full: bool = False,
        asked_s: float | None = None,
    ) -> None:
        """The server failed. `is_full`: the server said that its queue is full. `asked_s`: the
        pause that the server asked for.
        """
        self.limiter.failed(call.request, now_s, is_full=is_full)
        self._probed(call)
        if asked_s:
            self._not_before_s = max(self._not_before_s, now_s + min(asked_s, MOST_ASKED_S))
        if self.is_open:
            if call.is_probe:
                self._probe_later(now_s, jitter)
            return
        self._budget -= 1.0
        if self._budget < 1.0:
            self.is_open = True
            self._probe_later(now_s, jitter)

    def _probed(self, call: Call) -> None:
        if call.is_probe:
            self._is_probing = False

    def _probe_later(self, now_s: float, jitter: float) -> None:
        self._failed_probes += 1
        delay_s = PROBES.delay_s(self._failed_probes, 0.0, jitter)
        assert delay_s is not None, "probes never end"
        self._not_before_s = max(self._not_before_s, now_s + delay_s)


class CallTurns:
    """Which queue makes the next call. `next` names the queue; then call `begin`, and `end` when
    the call is over.
    """

    def __init__(self) -> None:
        self.searching = 0
        self._last: Turn = "search"

    def next(self, calls: int, *, rows_wait: bool, searches_wait: bool) -> Turn | None:
        """The queue that may make the next call. At most `calls` calls are allowed at a time, and
        one of them is free. None: no caller waits; or only searches wait, and they already have all
        the calls that searches may have.
        """
        may_search = searches_wait and self.searching < max(1, calls // SEARCH_SHARE)
        if may_search and not (rows_wait and self._last == "search"):
            return "search"
        return "rows" if rows_wait else None

    def begin(self, turn: Turn) -> None:
        self._last = turn
        self.searching += turn == "search"

    def end(self, turn: Turn) -> None:
        self.searching -= turn == "search"


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
