"""One assignment of one partition: its ledger, its order, its objects waiting to be fetched.

Rule: a lane is a generation. When the partition goes away the lane closes and never opens again;
what still arrives for it is dropped and can neither publish nor commit. Owner: the pipeline, from
the event loop; stages reach it through their tickets.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from consumers.budget import Budget
from consumers.core.blocks import Ticket
from consumers.core.cursor import START, Cursor, decode, with_stop, without_stop
from consumers.core.ledger import Ledger
from consumers.core.line import Line, LineLimits, LineStop
from consumers.core.order import Order, Release
from consumers.ports import Commit, Record

log = logging.getLogger(__name__)

Decode = Callable[["Lane", Record], Sequence[Ticket]]


class Lane:
    """`receive` records, hand out `jobs`, `release` what may be published, account for what is
    delivered.
    """

    def __init__(
        self,
        partition: int,
        generation: int,
        start: Commit,
        *,
        budget: Budget,
        decode: Decode,
        max_objects: int,
        line: LineLimits,
    ) -> None:
        self.partition = partition
        self.generation = generation
        self.committed = start
        self.ledger = Ledger(start.next_offset)
        metadata, stopped = without_stop(start.metadata)
        self.line = Line(line, start.next_offset if stopped else None)
        self.stopped: LineStop | None = None
        self._resume = _resume(partition, metadata)
        self._progress: tuple[int, Cursor] = (start.next_offset, self._resume)
        self.jobs: deque[Ticket] = deque()
        self.on_jobs: Callable[[Lane], None] = lambda _: None
        self.on_stopped: Callable[[Lane], None] = lambda _: None
        self.alive = True
        self._draining = False
        self._order = Order()
        self._backlog: deque[Record] = deque()
        self._budget = budget
        self._decode = decode
        self._max_objects = max_objects
        self._held_bytes = 0
        self._unconfirmed = 0
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()

    def __repr__(self) -> str:
        return (
            f"partition {self.partition}, generation {self.generation}: {self.ledger!r}, "
            f"{len(self._backlog)} not looked at"
        )

    @property
    def progress(self) -> Commit:
        """What may be committed now: the next record, and how far into it."""
        next_offset = self.ledger.next_offset
        offset, reached = self._progress
        metadata = reached.encode() if offset == next_offset else ""
        if self.stopped or self.line.stopped_at == next_offset:
            metadata = with_stop(metadata)
        return Commit(next_offset, metadata)

    @property
    def may_commit(self) -> bool:
        """Nothing is added to what a stopped line has delivered, but that counts."""
        return self.alive or self.stopped is not None

    @property
    def draining(self) -> bool:
        return self._draining

    @property
    def wants_records(self) -> bool:
        """Room for more objects, and nobody waiting before them."""
        return self.alive and not self._draining and not self._backlog and self._has_room

    @property
    def _has_room(self) -> bool:
        return self.ledger.owed < self._max_objects

    def receive(self, record: Record) -> None:
        """Take a record in arrival order. Looked at when there is room; dropped when draining."""
        if self.alive and not self._draining:
            self._backlog.append(record)
            self._admit()

    def _admit(self) -> None:
        had_jobs = bool(self.jobs)
        while self._backlog and self._has_room:
            record = self._backlog.popleft()
            tickets = self._decode(self, record)
            if record.offset == self.committed.next_offset and self._resume != START:
                tickets = self._without_delivered(tickets)
            self.ledger.open(record.offset, len(tickets))
            for ticket in tickets:
                self._order.add(ticket)
                if not ticket.closed:
                    self.jobs.append(ticket)
            if any(ticket.closed for ticket in tickets):
                self.wake()
        if self.jobs and not had_jobs:
            self.on_jobs(self)

    def _without_delivered(self, tickets: Sequence[Ticket]) -> Sequence[Ticket]:
        """A former assignment delivered these objects, and some rows of the next."""
        resume, self._resume = self._resume, START
        left = [ticket for ticket in tickets if ticket.index >= resume.object_index]
        if left and left[0].index == resume.object_index:
            left[0].resume = resume
        return left

    def may_overdraw(self, ticket: Ticket) -> bool:
        """The head must go on, whatever the budget says, once nothing of it is left that could be
        delivered without more of it: so it overdraws by one step. A dead lane's reader goes on to
        find out.
        """
        if not self.alive:
            return True
        is_stuck = not self._unconfirmed and ticket.head is ticket.tail
        return is_stuck and self._order.head is ticket

    def hold(self, nbytes: int) -> None:
        if self.alive:
            self._held_bytes += nbytes
            self._budget.spend(nbytes)

    def wake(self) -> None:
        self._changed.set()

    async def release(self, max_rows: int) -> list[Release]:
        """What may be published next, in order; waits until there is something. Empty: the lane is
        closed.
        """
        while self.alive and not (releases := self._order.release(max_rows)):
            self._changed.clear()
            await self._changed.wait()
        if not self.alive:
            return []
        self._unconfirmed += 1
        if any(release.finished for release in releases):
            self._budget.review()
        return releases

    def delivered(self, releases: Sequence[Release]) -> None:
        """All records of these releases are on the output topic. Called in the order of
        `release`.
        """
        if self.alive:
            self.account(releases)
            self.confirm(releases)

    def account(self, releases: Sequence[Release]) -> Commit:
        """The progress that these releases bring. A transaction needs it before they are delivered;
        if it fails, the lane is over.
        """
        for release in releases:
            self._progress = (release.ticket.record.offset, _reached(release))
            if release.finished:
                self.ledger.deliver(release.ticket.record.offset)
                release.ticket.forget()
        return self.progress

    def confirm(self, releases: Sequence[Release]) -> None:
        """Delivered and accounted for: make room."""
        if not self.alive:
            return
        self._unconfirmed -= 1
        freed = sum(block.cost_bytes for release in releases for block in release.blocks)
        self._held_bytes -= freed
        self._budget.refund(freed)
        self._admit()
        self._note_idle()

    def drain(self) -> None:
        """Take nothing new and forget what nobody has begun."""
        self._draining = True
        self._backlog.clear()
        self.jobs.clear()
        self._order.abandon_unstarted()
        self._note_idle()

    async def drained(self) -> None:
        """Return when all that was begun is delivered, or the lane is closed."""
        await self._idle.wait()

    def stop(self, stop: LineStop) -> None:
        """Stand still before this answer until the assignment ends; what is held is given back."""
        self.stopped = stop
        self._backlog.clear()
        self.jobs.clear()
        self._order.abandon()
        self._idle.set()
        self.close()
        self.on_stopped(self)

    def close(self) -> None:
        """The generation is over; what it held is given back at once."""
        self.alive = False
        self._budget.refund(self._held_bytes)
        self._held_bytes = 0
        self._changed.set()
        self._idle.set()

    def _note_idle(self) -> None:
        if self._draining and not len(self._order) and not self._unconfirmed:
            self._idle.set()


def _resume(partition: int, metadata: str) -> Cursor:
    found = decode(metadata)
    if found is None:
        log.warning(
            "partition %d: the commit's metadata is no cursor of ours (%.40r); work is repeated",
            partition,
            metadata,
        )
    return found or START


def _reached(release: Release) -> Cursor:
    """How far into its record a release brings us."""
    ticket = release.ticket
    if release.finished:
        return Cursor(ticket.index + 1, 0)
    last = release.blocks[-1]
    # Without a version there is nothing to bind to: only whole objects count.
    digest = ticket.digest
    return Cursor(ticket.index, last.first_row + last.rows if digest else 0, digest)
