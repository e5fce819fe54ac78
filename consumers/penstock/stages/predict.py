"""Calls the model with batches, a bounded number at a time.

Rule: every row of a batch is answered in the end. While the server fails, this stage waits for the
server and blames no row. If the model refuses a batch, a search finds the bad row. A row is
rejected only if a healthy server refused it in a request of its own. While a search runs, its
caller takes the next batch. Rows of a suspected object go to the search of that object, so that
rows of other objects do not wait for them. Owner: the pipeline, which runs `run`; when `run` ends,
all searches end.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from penstock.asking.failed_calls import FailedCalls
from penstock.asking.gate import Rank
from penstock.asking.model_calls import PROBE_ROWS, ModelCalls
from penstock.core.bad_rows.search import Search
from penstock.core.bad_rows.suspicions import Suspicions
from penstock.core.rows.blocks import Block, ModelRequest, Ticket
from penstock.core.rows.log_keys import of_ticket
from penstock.core.rows.rejections import Rejection
from penstock.core.window.pace import BatchPlan, Pace
from penstock.core.window.stream_costs import StreamCosts
from penstock.errors import NoAnswer, Overloaded, Poison, Transient, WorkerDied
from penstock.failures.unexpected_errors import works_on
from penstock.ports import Answers, Clock
from penstock.stages.microbatch import Microbatch
from penstock.stages.samples import Sampling
from penstock.stages.shadow_asking import Shadow

log = logging.getLogger(__name__)

# The log names an object with many rejected rows at most once in this time.
QUIET_S: Final = 60.0


class Predict:
    """Takes batches from the window and gives every block its answers. `fixed`: the configured
    limits. `pace`: learns the best limits within the configured ones.
    """

    def __init__(
        self,
        calls: ModelCalls,
        microbatch: Microbatch,
        fixed: BatchPlan,
        pace: Pace | None,
        clock: Clock,
        costs: StreamCosts,
        *,
        most_bytes: int,
        shadow: Shadow | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        self._calls = calls
        self._failed = FailedCalls(calls, self._apply_limits)
        self._sampling = sampling
        self._shadow = shadow
        self._microbatch = microbatch
        self._fixed = fixed
        self._pace = pace
        self._clock = clock
        self._costs = costs
        self._most_bytes = most_bytes
        self._applied: tuple[int, int | None] = (0, None)
        self._callers = 0
        # For each suspected object: its search, to which all rows of the object go.
        self._searches: dict[Ticket, Search] = {}
        self._begun = 0
        self._suspicions = Suspicions()
        self._quiet_until_s = 0.0
        # Only one search at a time may send rows that kill the server. With two, the rows of one
        # search would be blamed for deaths that the rows of the other caused.
        self._dissection = asyncio.Lock()

    async def run(self) -> None:
        """Runs until it is cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            self._apply_limits()

    async def _call_forever(self) -> None:
        while True:
            batch = await self._microbatch.take()
            try:
                # Every batch begins as a search. If no row is refused, the search sends one request
                # and ends here.
                if blocks := self._without_suspects(batch.blocks):
                    await self._answer(self._search_of(blocks))
            finally:
                # This is done after a failure as well, because otherwise this call slot would count
                # as taken for ever.
                self._microbatch.done(batch)

    def _search_of(self, blocks: list[Block]) -> Search:
        return Search(blocks, self._fixed.max_rows, self._most_bytes, self._suspicions)

    def _without_suspects(self, blocks: list[Block]) -> list[Block]:
        """Returns the blocks of objects that are not suspected. All other blocks go to the search
        of their object.
        """
        held = self._suspicions.suspects(blocks)
        if not held:
            return blocks
        tickets = dict.fromkeys(block.ticket for block in held)
        for ticket in tickets:
            theirs = [block for block in held if block.ticket is ticket]
            if (search := self._searches.get(ticket)) is not None:
                search.add(theirs)
            else:
                self._begin(self._search_of(theirs))
        return [block for block in blocks if block.ticket not in tickets]

    async def _answer(self, search: Search) -> None:
        # A short search is done here, before the caller takes its next batch. A long search becomes
        # a task of its own.
        while (search.is_easy or search.clears_small) and not search.is_settled:
            await self._ask(search)
        if not search.is_settled:
            self._begin(search)

    def _begin(self, search: Search) -> None:
        """Continue the search in a task of its own. If its object has a search already, that older
        search takes over the rows.
        """
        # If one object had two searches, each of them would learn only half of what is known about
        # the object.
        ticket = search.sole_ticket
        if ticket is not None:
            if (other := self._searches.get(ticket)) is not None:
                other.add(search.give_up())
                return
            self._searches[ticket] = search
        self._begun += 1
        self._tasks.create_task(self._search(search, ticket, self._begun))

    async def _search(self, search: Search, ticket: Ticket | None, number: int) -> None:
        """Run a search to its end. `number`: the search's number in the order of their begins. The
        oldest search asks first, so that the oldest rows of each partition are answered soon.
        Searches with rows of several objects ask before all others.
        """
        while not search.is_settled:
            if search.losses.kills_workers:
                async with self._dissection:
                    while not search.is_settled:
                        await self._step(search, number)
            else:
                await self._step(search, number)
        if ticket is not None:
            del self._searches[ticket]

    async def _step(self, search: Search, number: int) -> None:
        while blocks := search.passed_over(self._calls.jitter()):
            self._wake(blocks)
        if not search.is_settled:
            await self._ask(search, (0 if search.sole_ticket is None else 1, number))

    async def _ask(self, search: Search, rank: Rank | None = None) -> None:
        """Send one request with the next rows of the search. While the server fails, this request
        serves as the probe.
        """
        call = await self._calls.enter(rank)
        # The rows are chosen only after the wait for a call, because during the wait limits may
        # have changed and lanes may have closed.
        limits = [self._calls.most_rows, PROBE_ROWS if call.is_small else None]
        part = search.ask(min((one for one in limits if one is not None), default=None))
        if not part:
            self._calls.leave(call)
            return
        began_s, was_gone = self._clock.now(), self._calls.health.is_gone
        works_on(partial(of_ticket, part[0].ticket))
        try:
            answers = await self._calls.send(call, part)
        except Transient as error:
            self._apply_limits()
            # Only these two errors may be the fault of the rows.
            if isinstance(error, WorkerDied | NoAnswer):
                after_s = self._clock.now() - began_s
                await self._failed.lost(search, error, after_s, rank, was_gone=was_gone)
            else:
                if isinstance(error, Overloaded):
                    search.overloaded()
                else:
                    search.again()
                await self._calls.pause(search.failures)
        except Poison as error:
            self._apply_limits()
            await self._failed.refused(search, error, rank)
        else:
            if search.losses.doubtful:
                # This row was refused before, so that was chance.
                self._calls.health.refusals_were_chance(search.losses.doubtful)
            search.answered()
            # If all rows were answered in the end, the hang-ups during this search were chance. So
            # they tell how often connections break without a bad row.
            if search.hang_ups and not search.has_suspects:
                self._calls.health.hang_ups_were_chance(search.hang_ups)
                search.hang_ups = 0
            # The shadow takes the rows before the answers are given out, because a block with an
            # answer has let go of its rows.
            copied = None if self._shadow is None else self._shadow.wants(part)
            if self._sampling is not None:
                self._sampling.take(part, answers)
            _distribute(part, answers, search.requests)
            now_s = self._clock.now()
            self._costs.answered(part, now_s - began_s, now_s)
            if self._pace is not None:
                self._pace.answered(search.rows, now_s - began_s, now_s)
            self._apply_limits()
            # The lanes are woken first, because copying for the shadow must not delay the live
            # answers.
            if copied is not None and self._shadow is not None:
                self._wake(part)
                self._shadow.offer(copied, part, answers)
                return
        self._wake(part)

    def _wake(self, blocks: Sequence[Block]) -> None:
        """Wake the lanes of these blocks, because rows of the blocks may now be released. Also name
        objects with many rejected rows in the log.
        """
        # A dictionary keeps the order of the rows, so that a simulation can be repeated exactly.
        for lane in dict.fromkeys(block.ticket.owner for block in blocks):
            lane.wake()
        while self._suspicions.loud:
            ticket, why = self._suspicions.loud.pop(0)
            if self._clock.now() >= self._quiet_until_s:
                self._quiet_until_s = self._clock.now() + QUIET_S
                said = "the model refuses row after row of %s: %s"
                log.warning(said, _name(ticket), why.message, extra=of_ticket(ticket))

    def _apply_limits(self) -> None:
        """Apply the limits learned so far, and begin as many callers as there may be calls. The
        limit of rows in a batch is the pace's or the server's own, whichever is smaller.
        """
        allowed, most_rows = self._calls.health.allowed, self._calls.most_rows
        if self._pace is None and (allowed, most_rows) == self._applied:
            return
        self._applied = (allowed, most_rows)
        while self._callers < allowed:
            self._callers += 1
            self._tasks.create_task(self._call_forever())
        plan = self._pace.plan() if self._pace is not None else self._fixed
        if most_rows is not None and most_rows < plan.max_rows:
            plan = replace(plan, max_rows=most_rows)
        self._microbatch.apply(plan, allowed)


def _distribute(blocks: Sequence[Block], answers: Answers, request: int) -> None:
    assert answers.nbytes is not None
    asked = ModelRequest(len(answers.values), len({id(block.ticket) for block in blocks}), request)
    start = 0
    for block in blocks:
        block.asked = asked
        stop = start + block.rows
        errors = {
            row - start: Rejection("model_rejected", message, "predict")
            for row, message in answers.errors.items()
            if start <= row < stop
        }
        block.answer(answers.values[start:stop], errors, answers.nbytes)
        start = stop


def _name(ticket: Ticket) -> str:
    where = f"{ticket.owner.topic}/{ticket.owner.partition}, offset {ticket.record.offset}"
    reference = ticket.reference
    return where if reference is None else f"{reference.bucket}/{reference.key} ({where})"
