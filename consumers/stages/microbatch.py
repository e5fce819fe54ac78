"""Hands batches to the callers of the model as they become free.

Rule: the window decides, this stage only waits: one timer for the oldest row, one look per turn of
the event loop however many blocks arrived in it. A batch is closed only when a caller is there to
take it, so rows that wait for a caller fill the next batch.
"""

import asyncio
from collections import deque
from dataclasses import replace
from typing import NamedTuple

from consumers.budget import Budget
from consumers.core.batch import Batch
from consumers.core.blocks import Block, Ticket
from consumers.core.bulk import BulkPace, Neighbour
from consumers.core.pace import BatchPlan, Pace
from consumers.core.window import Window
from consumers.ports import Clock
from consumers.telemetry.worker import Telemetry

# Rows of one stream that wait for a caller, as batches: at 200,000 rows/s, the most that was
# measured, 16 batches of 512 rows last 40 ms, several times what the next object takes to decode.
AHEAD_BATCHES = 16
# With small batches a handful of objects may still be ahead.
AHEAD_ROWS = 8_192


class Waiting(NamedTuple):
    """What is in the window, and what it goes by."""

    rows: int
    streams: int
    max_rows: int
    max_wait_ms: float
    calls: int
    most_calls: int


class Microbatch:
    """Blocks in by `add`, batches out by `take`; callers are served in the order in
    which they came.
    """

    def __init__(
        self,
        window: Window,
        pace: Pace | None,
        clock: Clock,
        telemetry: Telemetry,
        *,
        calls: int,
        budget: Budget | None = None,
    ) -> None:
        """`budget` where several models share one."""
        self._pace = pace
        self._window = window
        self._budget = budget
        self._called_bytes = 0
        self._bulk = BulkPace()
        self._calls = calls
        self._busy = 0
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
        """Return when so few rows of the stream wait that more would not only take memory.

        Callers take rows whatever order they are answered in, so this wait always ends; and each
        stream waits for itself alone, so a huge object keeps no small one from the window.
        """
        while self.is_crowded(stream):
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._crowd.append((stream, waiting))
            await waiting

    def is_crowded(self, stream: str) -> bool:
        if self._budget is None and self._window.rows <= AHEAD_ROWS:
            return False  # all streams together, of the only model: nothing to look up
        ahead = max(AHEAD_ROWS, AHEAD_BATCHES * self._window.limits.max_rows)
        if self._window.rows_of(stream) > ahead:
            return True
        # What waits for one of several models takes no more than it leaves free for the others: one
        # that is ill gets half of the budget, two a third each. Callers end this wait, too.
        budget = self._budget
        if budget is None or not (self._window.rows or self._called_bytes):
            return False
        return self._window.cost_bytes + self._called_bytes > budget.free_bytes

    def _let_in(self) -> None:
        still: list[tuple[str, asyncio.Future[None]]] = []
        for stream, waiting in self._crowd:
            if self.is_crowded(stream):
                still.append((stream, waiting))
            elif not waiting.done():
                waiting.set_result(None)
        self._crowd = still

    def pace(self, plan: BatchPlan) -> None:
        """Go by these limits from now on."""
        limits = self._window.limits
        if plan != BatchPlan(limits.max_rows, limits.max_wait_s, self._calls):
            self._calls = plan.calls
            self._window.limits = replace(
                limits, max_rows=plan.max_rows, max_wait_s=plan.max_wait_s
            )

    def read(self, ticket: Ticket) -> None:
        """This object was read to its end: live small ones hold back the rows of huge ones."""
        age_s = (self._clock.wall_ms() - ticket.record.timestamp_ms) / 1000
        self._bulk.read(ticket.rows, age_s, self._clock.now())

    def give_way(self, neighbour: Neighbour) -> None:
        """Another group, that goes before this one, does this from now on."""
        self._window.bulk_from_s = self._bulk.beside(neighbour)
        self._look_soon()

    def done(self, batch: Batch) -> None:
        """A caller has done with its batch."""
        self._busy -= 1
        if self._budget is not None:
            self._called_bytes -= batch.cost_bytes
            self._look_soon()
        if batch.has_bulk:
            now_s = self._clock.now()
            self._window.bulk_from_s = self._bulk.answered(now_s - batch.taken_s, now_s)
            self._look_soon()

    async def take(self) -> Batch:
        """The next batch that is due; waits for one. Say `done` when it is answered."""
        if self._failure is not None:
            raise self._failure
        caller: asyncio.Future[Batch] = asyncio.get_running_loop().create_future()
        self._callers.append(caller)
        self._look_soon()
        return await caller

    def drain(self) -> None:
        """From now on, until `resume`, nothing waits for company."""
        self._window.draining = True
        self._look_soon()

    def resume(self) -> None:
        """Wait for company again."""
        self._window.draining = False

    def discard_dead(self) -> None:
        """Forget the rows of lanes that are closed."""
        self._window.discard(lambda block: not block.ticket.owner.alive)
        self._look_soon()

    def _look_soon(self) -> None:
        if self._look is None:
            self._look = asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        """Nobody waits for what the event loop calls: what fails here fails the callers, which end
        the worker, as no row would leave any more.
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
        while self._callers and self._busy < self._calls:
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
            if self._budget is not None:
                batch.cost_bytes = sum(block.cost_bytes for block in batch.blocks)
                self._called_bytes += batch.cost_bytes
            if batch.has_bulk:
                self._window.bulk_from_s = self._bulk.taken(now_s)
            self._callers.popleft().set_result(batch)
        self._set_timer()
        if self._crowd:
            self._let_in()

    def _set_timer(self) -> None:
        is_free = self._callers and self._busy < self._calls
        deadline_s = self._window.deadline_s() if is_free else None
        if self._timer is not None:
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
        if self._look is None:
            self._serve()
