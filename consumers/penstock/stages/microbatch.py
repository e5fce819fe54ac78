"""Hands a batch to each caller of the model that becomes free.

Rule: the window decides when a batch is due. There is one timer, for the oldest row, and the window
is looked at once in a turn of the event loop. A batch is closed only when a caller is there to take
it, so rows that wait for one fill the next batch.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from penstock.core.health.other_groups import Neighbour
from penstock.core.rows.blocks import Block, Ticket
from penstock.core.window.pace import ApartCalls, BacklogPace, BatchPlan, Pace
from penstock.core.window.stream_costs import Prices
from penstock.core.window.window import Batch, BatchWindow
from penstock.lane.budget import ModelShare
from penstock.ports import Clock
from penstock.telemetry.metric_types import Used
from penstock.telemetry.worker import Telemetry

# The waiting rows of one stream may fill this many batches. At 200,000 rows/s, the highest rate
# that was measured, 16 batches of 512 rows last 40 ms. Decoding the next object takes a fraction of
# that time.
AHEAD_BATCHES = 16
# Even if batches are small, this many rows of one stream may wait, so that a handful of objects
# have room.
AHEAD_ROWS = 8_192


class Waiting(NamedTuple):
    """The waiting rows and the limits of the window, and the calls in use. Shown by metrics and the
    status page.
    """

    rows: int
    streams: int
    max_rows: int
    max_wait_ms: float
    calls: int
    most_calls: int


class Microbatch:
    """Takes in blocks by `add`, and gives out batches by `take`. Callers are served in the order in
    which they called `take`. `used`: the share of the allowed calls that is in use, over time.
    `backlog`: says when backlog may be read, and when it may leave.
    """

    def __init__(
        self,
        window: BatchWindow,
        pace: Pace | None,
        clock: Clock,
        telemetry: Telemetry,
        *,
        calls: int,
        share: ModelShare | None = None,
    ) -> None:
        """`share`: this model's part of the byte budget, if there are several models."""
        self._pace = pace
        self._window = window
        self._share = share
        self._called_bytes = 0
        self.backlog = BacklogPace()
        self._calls = calls
        self._apart = ApartCalls()
        self._busy = 0
        self.used = Used(clock.now())
        self._clock = clock
        self._telemetry = telemetry
        self._callers: deque[asyncio.Future[Batch]] = deque()
        self._crowd: list[tuple[str, asyncio.Future[None]]] = []
        self._failure: BaseException | None = None
        self._look: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"{self._window!r}, {len(self._callers)} callers free"

    @property
    def waiting(self) -> Waiting:
        limits = self._window.limits
        return Waiting(
            rows=self._window.rows,
            streams=self._window.streams,
            max_rows=limits.max_rows,
            max_wait_ms=limits.max_wait_s * 1000,
            calls=self._busy,
            most_calls=self._calls,
        )

    def add(self, block: Block) -> None:
        self._window.add(block, self._clock.now())
        self._look_soon()

    async def room(self, stream: str) -> None:
        """Wait while the stream has so many rows in the window that more would only take memory.

        The wait always ends, because callers take rows even while answers are held back for their
        order. A stream waits for its own rows alone, so that a huge object of one stream does not
        keep small objects of other streams from the window.
        """
        while self.is_crowded(stream):
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._crowd.append((stream, waiting))
            await waiting

    def is_crowded(self, stream: str) -> bool:
        if self._share is None and self._window.rows <= AHEAD_ROWS:
            return False  # all streams together have fewer rows than one stream may have
        ahead = max(AHEAD_ROWS, AHEAD_BATCHES * self._window.limits.max_rows)
        return self._window.rows_of(stream) > ahead or self.is_over_share

    @property
    def is_over_share(self) -> bool:
        """True if there are several models, and the rows of this one hold as many bytes as one
        model may hold. Rows that callers have taken count until they are answered.
        """
        if self._share is None or not (self._window.rows or self._called_bytes):
            return False
        return self._share.is_spent(self._window.cost_bytes + self._called_bytes)

    def _let_in(self) -> None:
        still: list[tuple[str, asyncio.Future[None]]] = []
        for stream, waiting in self._crowd:
            if waiting.done():
                continue  # the reader was cancelled, or has waited long enough
            if self.is_crowded(stream):
                still.append((stream, waiting))
            else:
                waiting.set_result(None)
        self._crowd = still

    def apply(self, plan: BatchPlan, calls: int) -> None:
        """Set the limits of batches, and of `calls` at a time."""
        limits = self._window.limits
        # This method is called after every answer. Most plans change nothing, and then it costs
        # only these comparisons.
        if plan != BatchPlan(limits.max_rows, limits.max_wait_s):
            self._window.limits = replace(
                limits, max_rows=plan.max_rows, max_wait_s=plan.max_wait_s
            )
        if calls != self._calls:
            self._calls = calls
            self._note_use()
            self._window.apart_from_s = self._apart.from_s(calls)

    @property
    def prices(self) -> Prices:
        """By which rows count in the window."""
        return self._window.prices

    def call_size(self, blocks: Sequence[Block]) -> float:
        """How many times as long as the average a call with these blocks should take, by the pace
        that is learned.
        """
        assert self._pace is not None
        return self._pace.size(self._window.prices.usual_rows(blocks))

    def reprice(self, prices: Prices) -> None:
        """From now on the rows of each stream count by these prices."""
        self._window.reprice(prices)
        self._look_soon()

    def object_read(self, ticket: Ticket) -> None:
        """Note that this object was read to its end. If it was small and fresh, and no backlog
        itself, backlog gives way to such objects from now on.
        """
        priorities = self._window.limits.priorities
        now_s = self._clock.now()
        if priorities is not None and priorities.has_backlog:
            if priorities.of(ticket.stream).kind != "backlog":
                self.backlog.live(now_s - ticket.received_s, now_s)
            return
        age_s = (self._clock.wall_ms() - ticket.record.timestamp_ms) / 1000
        self.backlog.read(ticket.rows, age_s, now_s)

    def give_way(self, neighbour: Neighbour) -> None:
        """Note the state of the live group, whose rows go before those of this replay."""
        self._window.backlog_from_s = self.backlog.beside(neighbour)
        self._look_soon()

    def done(self, batch: Batch, likely_s: Callable[[Sequence[Block]], float]) -> None:
        """A caller is done with its batch. `likely_s`: how long a call with these rows takes."""
        self._busy -= 1
        self._note_use()
        now_s = self._clock.now()
        likely = likely_s(batch.blocks) if self._window.goes_apart else 0.0
        self._apart.done(
            now_s - batch.taken_s, likely, batch.beside, now_s, is_apart=batch.is_apart
        )
        self._window.apart_from_s = self._apart.from_s(self._calls)
        if batch.is_apart or self._window.goes_apart:
            self._look_soon()
        if self._share is not None:
            self._called_bytes -= batch.cost_bytes
            self._look_soon()
        if batch.has_backlog:
            self._window.backlog_from_s = self.backlog.answered(now_s - batch.taken_s, now_s)
            self._look_soon()

    @property
    def _most_calls(self) -> int:
        alone_until_s = self._window.prices.alone_until_s
        if not alone_until_s or self._window.draining or self._clock.now() >= alone_until_s:
            return self._calls
        return 1

    def _note_use(self) -> None:
        self.used.change(self._clock.now(), self._busy / self._calls)

    async def take(self) -> Batch:
        """Wait for the next batch that is due. Call `done` when it is answered."""
        if self._failure is not None:
            raise self._failure
        caller: asyncio.Future[Batch] = asyncio.get_running_loop().create_future()
        self._callers.append(caller)
        self._look_soon()
        return await caller

    def drain(self) -> None:
        """Until `resume`, batches are closed without waiting for further rows."""
        self._window.draining = True
        self._look_soon()

    def resume(self) -> None:
        """Batches wait for further rows again, as their limits say."""
        self._window.draining = False

    def discard_dead(self) -> None:
        """Forget the rows of closed lanes."""
        self._window.discard(lambda block: not block.ticket.owner.alive)
        self._look_soon()

    def _look_soon(self) -> None:
        # The window is looked at only after this turn of the event loop, so that all blocks that
        # arrive in the turn go into one batch.
        if self._look is None:
            self._look = asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        """The event loop calls this. If an exception went to the event loop, it would only be
        logged, and the worker would run on without batches. So the exception is given to the
        callers, which ends the worker.
        """
        try:
            self._hand_out()
        except BaseException as error:
            self._failure = error
            for caller in self._callers:
                if not caller.done():
                    caller.set_exception(error)
            raise

    def _hand_out(self) -> None:
        self._look = None
        now_s = self._clock.now()
        calls = self._most_calls
        while self._callers and self._busy < calls:
            # A caller that was cancelled may still be in the queue. It is skipped, because a batch
            # given to it would be lost.
            if self._callers[0].done():
                self._callers.popleft()
                continue
            batch = self._window.take(now_s)
            if batch is None:
                break
            self._telemetry.batch_closed(
                batch.reason, batch.rows, now_s - batch.blocks[0].arrived_s
            )
            self._busy += 1
            self._note_use()
            batch.beside = self._apart.taken(now_s, is_apart=batch.is_apart)
            self._window.apart_from_s = self._apart.from_s(self._calls)
            # The rows that a caller has taken count against the model's share until they are
            # answered.
            if self._share is not None:
                batch.cost_bytes = sum(block.cost_bytes for block in batch.blocks)
                self._called_bytes += batch.cost_bytes
            if batch.has_backlog:
                self._window.backlog_from_s = self.backlog.taken(now_s)
            self._callers.popleft().set_result(batch)
        self._set_timer()
        if self._crowd:
            self._let_in()

    def _set_timer(self) -> None:
        # Without a free caller no timer is needed: when a caller comes back, the window is looked
        # at anyway, and the batch that is due is closed.
        is_free = self._callers and self._busy < self._most_calls
        deadline_s = self._window.deadline_s() if is_free else None
        if self._timer is not None:
            # The timer is kept even if it rings too early: one more look at the window is cheaper
            # than a new timer for every batch.
            if deadline_s is not None and self._timer.when() <= deadline_s:
                return
            self._timer.cancel()
            self._timer = None
        if deadline_s is not None:
            self._timer = asyncio.get_running_loop().call_at(deadline_s, self._ring)

    def _ring(self) -> None:
        if self._pace is not None and self._timer is not None:
            self._pace.rang(asyncio.get_running_loop().time() - self._timer.when())
        self._timer = None
        # If a look at the window is already due in this turn of the event loop, that look serves
        # this deadline, too.
        if self._look is None:
            self._serve()
