"""Writes the answers to each object into one result object, while the answers come.

Rule: a result is complete before its record leaves and before any row of its object counts as
delivered. A lane completes many side by side: a store may take 30 ms for each. Results of one name
are completed in the order in which they got their last rows, so that the last one stays. An
interrupted result is given up, and later written again from the first row: readers never see an
incomplete one, and a compressed format cannot be continued. After an unforeseen exception it is
written once more, if no release with rows of it is delivered yet; otherwise the object is answered
by that error.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

from penstock.core.progress.order import Release
from penstock.core.records.output_records import has_result
from penstock.core.records.result_names import ResultNames
from penstock.core.rows.blocks import Block, Ticket
from penstock.core.rows.log_keys import of_ticket
from penstock.core.rows.rejections import Rejection
from penstock.encodings.base import Encoding, rows_of
from penstock.errors import Unforeseen, first_cause
from penstock.failures.unexpected_errors import Guards, works_on
from penstock.messages.prediction import Result
from penstock.ports import Location, ResultStore
from penstock.stages.store_reads import StoreReads
from penstock.telemetry.worker import Telemetry

# Encoding fewer bytes than this takes less time than handing them to a thread.
IN_THREAD_BYTES = 64 * 1024
# Up to this size a result is sent by one request, whose time is compared with that of others.
COMPARED_BYTES = 256 * 1024

# A function that runs the given work in a thread, so that it does not hold up the event loop.
Offload = Callable[[Callable[[], bytes]], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class ResultTerms:
    """Where results are written and in which format. `of_rows`, `of_objects`: True if a record is
    published besides for each row, and for each object. `only_whole`: True if an object that breaks
    in the middle gets no result, because the result is the proof that the object is done.
    """

    names: ResultNames
    encoding: Callable[[], Encoding]
    of_rows: bool
    of_objects: bool
    only_whole: bool = False


class ResultObject:
    """One result object being written."""

    def __init__(
        self, results: ResultStore, terms: ResultTerms, offload: Offload, ticket: Ticket
    ) -> None:
        name = terms.names.of(ticket)
        self._url = name.url
        self._encoding = terms.encoding()
        self.location = Location(name.bucket, name.key)
        self._upload = results.begin(self.location)
        self._offload = offload
        self._digest = hashlib.sha256()
        self._bytes = self._rows = self._errors = 0

    async def add(self, block: Block) -> None:
        rows = rows_of(block)
        self._encoding.add(rows)
        self._rows += len(rows.answers)
        self._errors += len(rows.errors)
        if self._encoding.is_due:
            await self._write(self._encoding.take)

    async def complete(self) -> Result:
        await self._write(self._encoding.close)
        stored = await self._upload.complete()
        return Result(
            url=self._url,
            version=stored.version,
            bytes=self._bytes,
            rows=self._rows,
            errors=self._errors,
            checksum=f"sha256:{self._digest.hexdigest()}",
        )

    async def abort(self) -> None:
        await self._upload.abort()

    async def _write(self, step: Callable[[], bytes]) -> None:
        if self._encoding.waiting_bytes > IN_THREAD_BYTES:
            data = await self._offload(step)
        else:
            data = step()
        if data:
            self._digest.update(data)
            self._bytes += len(data)
            await self._upload.write(data)


class ObjectResults:
    """One per pipeline. `lane` gives each lane its `LaneResults`, until the lane ends."""

    def __init__(
        self,
        results: ResultStore,
        terms: ResultTerms,
        offload: Offload,
        writes: StoreReads,
        telemetry: Telemetry,
        guards: Guards,
    ) -> None:
        self.guard = guards.at("result")
        self.of_rows, self.of_objects = terms.of_rows, terms.of_objects
        self.only_whole = terms.only_whole
        self._results = results
        self._terms = terms
        self._offload = offload
        self._telemetry = telemetry
        self._writes = writes
        self._turns: dict[Location, CompletionTurn] = {}

    @asynccontextmanager
    async def lane(self) -> AsyncIterator["LaneResults"]:
        lane = LaneResults(self)
        try:
            yield lane
        finally:
            await lane.give_up()

    def begin(self, ticket: Ticket) -> ResultObject:
        return ResultObject(self._results, self._terms, self._offload, ticket)

    def turn(self, result: ResultObject) -> "CompletionTurn":
        return CompletionTurn(self._turns, result.location)

    async def complete(self, result: ResultObject) -> Result:
        write = await self._writes.begin()
        try:
            stored = await result.complete()
        except BaseException as error:
            self._writes.broke(write, error)
            raise
        if stored.bytes <= COMPARED_BYTES:
            self._writes.answered(write)
        else:
            self._writes.dropped(write, is_answered=True)
        self._telemetry.result_written(stored.bytes)
        return stored


class CompletionTurn:
    """The place of a result among the results of the same name that are being completed. `turns`:
    for each name, the turn that was taken last.
    """

    def __init__(self, turns: dict[Location, "CompletionTurn"], location: Location) -> None:
        self._turns = turns
        self._location = location
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._before = turns.get(location)
        turns[location] = self

    async def comes(self) -> None:
        before, self._before = self._before, None
        if before is not None:
            await asyncio.wait([before._over])

    def end(self) -> None:
        """A second call changes nothing."""
        if not self._over.done():
            self._over.set_result(None)
        if self._turns.get(self._location) is self:
            del self._turns[self._location]


class LaneResults:
    """The open results of one lane. A lane has one result that still gets rows (with order by
    stream, one for each stream in work), and results that have all their rows and are being
    completed.
    """

    def __init__(self, results: ObjectResults) -> None:
        self._results = results
        self._guard = results.guard
        self._open: dict[Ticket, ResultObject] = {}
        self._lost: dict[Ticket, Rejection] = {}
        # For each result of which no rows are delivered yet, by its ticket: all its rows so far. A
        # result that is written once more is removed from here.
        self._held: dict[Ticket, list[Block]] = {}

    async def add(self, releases: Sequence[Release]) -> None:
        """Write the rows of these releases. One call at a time. After `Transient` and `Fatal` the
        lane cannot go on.
        """
        for release in releases:
            if release.blocks:
                await self._add(release)

    async def complete(self, releases: Sequence[Release]) -> list[Result | Rejection | None]:
        """Complete the results that end with these releases, which were added before. Calls may run
        side by side. Returns one value for each release. If the release ends an object that has a
        result, the value is the result, or the reason why it failed; otherwise None. Raises as
        `add` does.
        """
        ended = [
            release.ticket
            for release in releases
            if release.finished and has_result(release.ticket)
        ]
        turns = [self._turn(ticket) for ticket in ended]
        try:
            async with asyncio.TaskGroup() as tasks:
                ending = [
                    tasks.create_task(self._complete_in_turn(ticket, turn))
                    for ticket, turn in zip(ended, turns, strict=True)
                ]
        except BaseExceptionGroup as group:
            raise first_cause(group) from group
        finally:
            for turn in turns:
                if turn is not None:
                    turn.end()
        results = {ticket: task.result() for ticket, task in zip(ended, ending, strict=True)}
        return [results.get(release.ticket) for release in releases]

    def delivered(self, releases: Sequence[Release]) -> None:
        for release in releases:
            self._held.pop(release.ticket, None)

    async def give_up(self) -> None:
        """Give up all open results, all at the same time: if the store is away, giving up one
        result takes long, and a stop has little time.
        """
        begun = list(self._open.values())
        self._open.clear()
        await asyncio.gather(*(result.abort() for result in begun))

    async def _add(self, release: Release) -> None:
        ticket = release.ticket
        if ticket in self._lost:
            return
        self._hold(ticket, release.blocks)
        await self._add_rows(ticket, release.blocks)

    def _hold(self, ticket: Ticket, blocks: Sequence[Block]) -> None:
        if ticket not in self._open:
            self._held[ticket] = []
        if ticket in self._held:
            self._held[ticket] += blocks

    async def _add_rows(self, ticket: Ticket, blocks: Sequence[Block]) -> None:
        works_on(partial(of_ticket, ticket))
        try:
            with self._guard:
                result = self._of(ticket)
                for block in blocks:
                    await result.add(block)
        except Unforeseen as error:
            await self._failed(ticket, error)

    async def _failed(self, ticket: Ticket, error: Unforeseen) -> None:
        """Remove the part of the result that was written, if possible. Then write the result once
        more, if all its rows so far are held; otherwise the object is answered by this error.
        """
        begun = self._open.pop(ticket, None)
        with suppress(Unforeseen), self._guard:
            if begun is not None:
                await begun.abort()
        blocks = self._held.pop(ticket, None)
        if blocks is None:
            self._lost[ticket] = Rejection(error.code, str(error), "publish")
        else:
            await self._add_rows(ticket, blocks)

    def _turn(self, ticket: Ticket) -> CompletionTurn | None:
        """The turn of the ticket's result; None: there is nothing to complete."""
        if ticket in self._lost or self._is_broken(ticket):
            return None
        # An object without rows begins its result only here.
        if ticket not in self._open:
            self._held[ticket] = []
        with suppress(Unforeseen), self._guard:
            return self._results.turn(self._of(ticket))
        return None

    async def _complete_in_turn(
        self, ticket: Ticket, turn: CompletionTurn | None
    ) -> Result | Rejection:
        if turn is None:
            return await self._complete(ticket)
        await turn.comes()
        try:
            return await self._complete(ticket)
        finally:
            # Now, not at the end of the step, because the next turn may be of the same step.
            turn.end()

    async def _complete(self, ticket: Ticket) -> Result | Rejection:
        if ticket.failure is not None and self._is_broken(ticket):
            begun = self._open.pop(ticket, None)
            if begun is not None:
                await begun.abort()
            return ticket.failure
        while ticket not in self._lost:
            try:
                with self._guard:
                    result = await self._results.complete(self._of(ticket))
            except Unforeseen as error:
                await self._failed(ticket, error)
            else:
                del self._open[ticket]
                return result
        return self._lost.pop(ticket)

    def _is_broken(self, ticket: Ticket) -> bool:
        """True if the object broke in the middle, and so gets no result."""
        return ticket.failure is not None and self._results.only_whole

    def _of(self, ticket: Ticket) -> ResultObject:
        if ticket not in self._open:
            self._open[ticket] = self._results.begin(ticket)
        return self._open[ticket]
