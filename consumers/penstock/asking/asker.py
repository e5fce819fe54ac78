"""Asks one model for the answers to rows, and finds the rows that the model cannot answer.

Rule: every row is answered in the end. While the server fails, the rows wait for the server and no
row is blamed. If the model refuses rows, or the server is lost under them, a search finds the bad
ones (`core.bad_rows`): a row is rejected only if a healthy server failed at it in a request of its
own. A short search is part of `answer`; a long one goes on by itself, so that rows which are not
under suspicion need not wait for it. All rows of a suspected object go to the search of that
object.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from penstock.asking.gate import Call, Rank
from penstock.asking.model_calls import PROBE_ROWS, ModelCalls
from penstock.core.bad_rows.search import Search
from penstock.core.bad_rows.suspicions import Suspicions
from penstock.core.bad_rows.verdicts import (
    ANSWERED,
    KILL_PERIOD_S,
    Kind,
    Server,
    outcome_of,
)
from penstock.core.rows.blocks import Block, ModelRequest, Ticket
from penstock.core.rows.log_keys import of_ticket
from penstock.core.rows.rejections import Rejection
from penstock.errors import Doubtful, HungUp, NoAnswer, PenstockError, Poison, Transient
from penstock.failures.unexpected_errors import works_on
from penstock.ports import Answers, Clock

log = logging.getLogger(__name__)

# The log names an object with many rejected rows at most once in this time.
QUIET_S: Final = 60.0
# The pauses between two trials of rows that are refused without a reason grow up to this trial, to
# 0.4 s.
PATIENT_TRIES: Final = 4
# After these, other rows are asked at once, because the server works.
_ASKED_ON: Final = (Kind.HUNG_UP, Kind.DOUBTED)


class _Failure(NamedTuple):
    """How a request failed, after how long, and whether the server was gone before it."""

    error: Transient | Poison
    after_s: float
    was_gone: bool


class Observer(Protocol):
    def answering(self, blocks: Sequence[Block], answers: Answers, took_s: float) -> None:
        """Called before the blocks get these answers and let go of their rows."""
        ...

    def refused(self, blocks: Sequence[Block], error: Poison) -> None:
        """The model did not answer these blocks, and works."""
        ...

    def answered(self, blocks: Sequence[Block], answers: Answers) -> None:
        """Called when no lane waits for these answers any more."""
        ...

    def limits_changed(self) -> None:
        """The server may now take more or fewer calls at a time, or rows in a call."""
        ...


class Asker:
    """`most_rows`, `most_bytes`: what one request may have."""

    def __init__(self, calls: ModelCalls, clock: Clock, most_rows: int, most_bytes: int) -> None:
        self._calls = calls
        self._clock = clock
        self._most_rows, self._most_bytes = most_rows, most_bytes
        # For each suspected object: its search, to which all rows of the object go.
        self._searches: dict[Ticket, Search] = {}
        self._begun = 0
        # None: so far all rows of a batch went in one request, and each was answered.
        self._suspicions: Suspicions | None = None
        self._quiet_until_s = 0.0
        # Only one search at a time may send rows that kill the server. With two, the rows of one
        # search would be blamed for deaths that the rows of the other caused.
        self._dissection = asyncio.Lock()

    def begin(self, tasks: asyncio.TaskGroup, observer: Observer) -> None:
        """`tasks`: long searches go on there."""
        self._tasks, self._observer = tasks, observer

    async def answer(self, blocks: list[Block]) -> None:
        """Returns when each of the rows has its answer, or belongs to a search of its own."""
        if self._suspicions is not None and not (blocks := self._without_suspects(blocks)):
            return
        call = await self._calls.enter()
        # The wait for a call may have been long: limits may have changed, and lanes been closed.
        blocks = [block for block in blocks if block.ticket.owner.alive]
        limit = self._limit_of(call)
        if not blocks:
            self._calls.leave(call)
            return
        if limit is None or sum(block.rows for block in blocks) <= limit:
            # All rows are sent in one request; those of an object whose rows were refused one after
            # the other, too, as long as it is not suspected. A search begins only if that fails.
            failure = await self._send(call, blocks, None)
            if failure is None:
                return
            search = self._search_of(blocks)
            search.asked_whole()
            await self._failed(search, failure)
            self._wake(blocks)
        else:
            search = self._search_of(blocks)
            await self._ask(search, call)
        while (search.is_easy or search.clears_small) and not search.is_settled:
            await self._ask(search, await self._calls.enter())
        if not search.is_settled:
            self._go_on(search)

    def _search_of(self, blocks: list[Block]) -> Search:
        if self._suspicions is None:
            self._suspicions = Suspicions()
        return Search(blocks, self._most_rows, self._most_bytes, self._suspicions)

    def _without_suspects(self, blocks: list[Block]) -> list[Block]:
        """The blocks of objects that are not suspected. All others go to the search of their
        object.
        """
        assert self._suspicions is not None
        held = self._suspicions.suspects(blocks)
        if not held:
            return blocks
        tickets = dict.fromkeys(block.ticket for block in held)
        for ticket in tickets:
            theirs = [block for block in held if block.ticket is ticket]
            if (search := self._searches.get(ticket)) is not None:
                search.add(theirs)
            else:
                self._go_on(self._search_of(theirs))
        return [block for block in blocks if block.ticket not in tickets]

    def _go_on(self, search: Search) -> None:
        """Continue the search in a task of its own. If its object has a search already, that older
        search takes over the rows.
        """
        # If one object had two searches, each of them would learn only half of what is known about
        # the object.
        ticket = search.sole_ticket
        if ticket is not None:
            if (other := self._searches.get(ticket)) is not None:
                other.add(search.unsettled)
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
            rank = 0 if search.sole_ticket is None else 1, number
            await self._ask(search, await self._calls.enter(rank), rank)

    async def _ask(self, search: Search, call: Call, rank: Rank | None = None) -> None:
        """Send one request with the next rows of the search. While the server fails, this request
        serves as the probe.
        """
        # The rows are chosen only after the wait for a call, as in `answer`.
        blocks = search.ask(self._limit_of(call))
        if not blocks:
            self._calls.leave(call)
            return
        failure = await self._send(call, blocks, search)
        if failure is not None:
            await self._failed(search, failure, rank)
            self._wake(blocks)

    def _limit_of(self, call: Call) -> int | None:
        """The most rows of this request, besides the window's own limit."""
        most_rows = self._calls.most_rows
        if not call.is_small:
            return most_rows
        return PROBE_ROWS if most_rows is None else min(PROBE_ROWS, most_rows)

    async def _send(
        self, call: Call, blocks: list[Block], search: Search | None
    ) -> _Failure | None:
        """Send these rows, and give them their answers. `search`: the one that chose them."""
        began_s, was_gone = self._clock.now(), self._calls.health.is_gone
        works_on(partial(of_ticket, blocks[0].ticket))
        try:
            answers = await self._calls.send(call, blocks)
        except (Transient, Poison) as error:
            if isinstance(error, Poison):
                self._observer.refused(blocks, error)
            return _Failure(error, self._clock.now() - began_s, was_gone)
        if search is not None:
            search.settle(ANSWERED)
        elif self._suspicions is not None:
            self._suspicions.answered(blocks)
        self._observer.answering(blocks, answers, self._clock.now() - began_s)
        _distribute(blocks, answers, 1 if search is None else search.requests)
        self._observer.limits_changed()
        self._wake(blocks)
        self._observer.answered(blocks, answers)
        return None

    async def _failed(self, search: Search, failure: _Failure, rank: Rank | None = None) -> None:
        """A request failed: look at the server, settle what that says about the rows, and wait
        until the rows may be asked again.
        """
        error, after_s, was_gone = failure
        self._observer.limits_changed()
        if search.rows > 1 and isinstance(error, Poison):
            self._calls.parted()
        server = await self._look(search, error, rank, was_gone=was_gone)
        if isinstance(error, NoAnswer) and not isinstance(error, HungUp):
            # The wait for the answer counts only up to the time of the slowest answer so far,
            # however long the timeout is: a healthy server would have answered by then.
            after_s = min(after_s, self._calls.slowest_s or after_s)
        health = self._calls.health
        outcome = outcome_of(
            error,
            server,
            after_s,
            is_alone=search.rows == 1,
            chance=health.chance,
        )
        rejected = search.settle(outcome)
        if rejected and outcome.is_blind_doubt:
            health.gave_up_row()
        # The count begins anew if the rows were cut, or if others are asked first.
        is_other = outcome.kind in _ASKED_ON and not search.losses.count
        if rejected or is_other:
            return
        match outcome.wait:
            case "pause" if outcome.kind is Kind.DOUBTED:
                await self._calls.pause(min(search.losses.count, PATIENT_TRIES))
            case "pause":
                await self._calls.pause(search.failures)
            case "health":
                await self._calls.until_healthy(rank)
            case "trial":
                await self._until_trial(rank)
        self._observer.limits_changed()

    async def _look(
        self, search: Search, error: PenstockError, rank: Rank | None, *, was_gone: bool
    ) -> Server:
        """How is the server now, by a question that it can answer? It is asked only if the table of
        outcomes wants to know.
        """
        calls, is_alone = self._calls, search.rows == 1
        if isinstance(error, HungUp) and is_alone and was_gone:
            return "away"
        if isinstance(error, HungUp) and is_alone and calls.has_witness:
            # After the first hang-up the good row is sent twice, later once: otherwise a server
            # that breaks every second or third connection could break just those of the suspected
            # row.
            for probe in range(1 if search.losses.count else 2):
                if not await calls.is_healthy(rank):
                    if not probe and await calls.until_healthy(rank):
                        return "gone"
                    return "ill"
            return "well"
        if isinstance(error, HungUp) and not is_alone:
            if not calls.health.is_silent or await calls.is_healthy(rank):
                return "unasked"
            return "gone" if await calls.until_healthy(rank) else "ill"
        if is_alone and isinstance(error, NoAnswer) and error.is_oversize:
            return "well" if await calls.is_healthy(rank) else "unasked"
        if isinstance(error, Doubtful):
            if not calls.has_witness:
                return "ill" if is_alone and calls.health.may_be_starting else "unasked"
            if is_alone:
                await calls.until_healthy(rank)
            return "well"
        if isinstance(error, Poison) and is_alone and calls.has_canary:
            return "well" if await calls.is_healthy(rank) else "ill"
        return "unasked"

    async def _until_trial(self, rank: Rank | None) -> None:
        """Wait until the row may be tried again. A loss counts against the row only if the server
        was healthy just before. The trial begins at a random moment. Otherwise trials could always
        come just when something else kills the server, or just when the server returns.
        """
        while True:
            await self._calls.until_healthy(rank)
            await asyncio.sleep(self._calls.jitter() * KILL_PERIOD_S)
            if await self._calls.is_healthy(rank):
                return

    def _wake(self, blocks: Sequence[Block]) -> None:
        """Wake the lanes of these blocks, because rows of the blocks may now be released. Also name
        objects with many rejected rows in the log.
        """
        # A dictionary keeps the order of the rows, so that a simulation can be repeated exactly.
        for lane in dict.fromkeys(block.ticket.owner for block in blocks):
            lane.wake()
        while self._suspicions is not None and self._suspicions.loud:
            ticket, why = self._suspicions.loud.pop(0)
            if self._clock.now() >= self._quiet_until_s:
                self._quiet_until_s = self._clock.now() + QUIET_S
                text = "the model refuses row after row of %s: %s"
                log.warning(text, _name(ticket), why.message, extra=of_ticket(ticket))


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
    where = f"{ticket.owner.where}, offset {ticket.record.offset}"
    reference = ticket.reference
    return where if reference is None else f"{reference.bucket}/{reference.key} ({where})"
