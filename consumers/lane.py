"""One assignment of one partition: its ledger, its order, its objects waiting to be fetched.

Rule: a lane is a generation. When the partition goes away the lane closes and never opens again;
what still arrives for it is dropped and can neither publish nor commit. Owner: the pipeline, from
the event loop; stages reach it through their tickets.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from consumers.budget import Budget
from consumers.core import position
from consumers.core.blocks import Ticket
from consumers.core.costs import FEW_OBJECTS, message_cost
from consumers.core.cursor import Cursor
from consumers.core.jobs import Jobs, JobsByStream, JobsInOrder, Share
from consumers.core.ledger import Ledger
from consumers.core.line_stop import LetterAccount, LineLimits, LineStop
from consumers.core.order import Order, PartitionOrder, Release, Room, StreamOrder
from consumers.core.owner import Over
from consumers.core.stall import Snapshot, holder
from consumers.ports import Commit, Record, Where

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """`line`: when too many letters stop it. `order_by_stream`: order is kept per stream only."""

    max_objects: int
    line: LineLimits
    order_by_stream: bool = False


class Decode(Protocol):
    def tickets(self, lane: "Lane", record: Record) -> Sequence[Ticket]:
        """One for each object that the record names, in its order. Raises nothing."""
        ...


class Fetchers(Protocol):
    def offer(self, lane: "Lane") -> None:
        """The lane has jobs for them."""
        ...


class Lane:
    """`receive` records, hand out `jobs`, `release` what may be published, account for
    what is delivered.
    """

    def __init__(
        self,
        number: int,
        where: Where,
        generation: int,
        start: Commit,
        *,
        budget: Budget,
        decode: Decode,
        fetchers: Mapping[str | None, Fetchers],
        on_stopped: Callable[["Lane", LineStop], None],
        limits: LaneLimits,
        passing: Collection[tuple[str, int]] = (),
        stream_share: Share | None = None,
    ) -> None:
        """`number` is what the source calls it. With a `stream_share`, order is kept per stream
        only. `fetchers`: those of each model. `passing`: of streams what stops no line.
        """
        self.number = number
        self.topic, self.partition = where
        self.generation = generation
        self._committed = start
        begin = position.read(start.next_offset, start.metadata, limits.line)
        if not begin.is_whole:
            log.warning(
                "partition %d: not all of the commit's metadata could be read (%.40r); what the "
                "rest would have said is repeated",
                self.partition,
                start.metadata,
            )
        self.ledger = Ledger(begin.progress)
        self.letters = LetterAccount(limits.line, begin.stopped_at, passing)
        self._stops: dict[str, LineStop] = {}
        self._streams = None if stream_share is None else StreamOrder()
        self._order: Order = PartitionOrder() if self._streams is None else self._streams
        # Each model has its own fetchers, so that one that is ill keeps no other's objects waiting.
        self.jobs: dict[str | None, Jobs] = {
            model: JobsInOrder() if stream_share is None else JobsByStream(stream_share)
            for model in fetchers
        }
        self.alive = True
        self._draining = False
        self._backlog: deque[Record] = deque()
        self._budget = budget
        self._decode = decode
        self._fetchers = fetchers
        self._on_stopped = on_stopped
        self._max_objects = limits.max_objects
        self._held_bytes = 0
        self._held_messages_bytes = 0
        self._unconfirmed = 0
        self._deliveries = 0
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()

    def __repr__(self) -> str:
        return (
            f"{self.topic}/{self.partition}, generation {self.generation}: {self.ledger!r}, "
            f"{len(self._backlog)} records unread"
        )

    @property
    def progress(self) -> Commit:
        """What may be committed now: the next record, and what is delivered of it and beyond."""
        progress = self.ledger.progress
        stopped_at = self.letters.stopped_at.union(stop.offset for stop in self.stops)
        metadata = position.written(progress, stopped_at, self.letters.limits)
        return Commit(progress.next_offset, metadata)

    @property
    def stops(self) -> Collection[LineStop]:
        """Where its lines stand still."""
        return self._stops.values()

    @property
    def stopped(self) -> LineStop | None:
        """Where all of it does."""
        return next(iter(self._stops.values()), None) if self._streams is None else None

    def stands_at(self, end: int) -> bool:
        """Is nothing before this offset left to do but what stands still?"""
        owes = len(self._order) or self._backlog or self._unconfirmed
        return not self.alive or (not owes and self.ledger.seen_next >= end)

    def line_of(self, ticket: Ticket) -> str:
        """What stands still with it: its stream, or all."""
        return "" if self._streams is None else ticket.stream

    @property
    def committed(self) -> Commit:
        """The position that Kafka has: where the next assignment would begin now."""
        return self._committed

    @property
    def due(self) -> Commit | None:
        """What is to be committed; None: nothing moved. Nothing is added to what a stopped line has
        delivered, but that counts.
        """
        if not self.alive and self.stopped is None:
            return None
        progress = self.progress
        return progress if progress != self._committed else None

    def committed_up_to(self, commit: Commit) -> None:
        """Kafka has it."""
        self._committed = commit

    @property
    def draining(self) -> bool:
        return self._draining

    @property
    def is_publishing(self) -> bool:
        """Records of it are with the broker, which has not acknowledged them."""
        return self._unconfirmed > 0

    @property
    def snapshot(self) -> Snapshot | None:
        """How far it is, and which stage must act next; None: it owes nothing."""
        offset = self.ledger.progress.next_offset
        if self._unconfirmed:
            return Snapshot("publish", offset, self._deliveries)
        if self._stops and not self.ledger.spare_marks():
            return None  # no more may leave before what stands still
        if head := min(self._order, key=_place, default=None):
            stage = holder(head)
            return Snapshot(stage, offset, self._deliveries, head.next_row, head.read_bytes)
        if self.progress != self._committed:
            return Snapshot("settle", self._committed.next_offset, self._deliveries)
        return None

    @property
    def wants_records(self) -> bool:
        """Room for more objects, and no record waiting before them."""
        is_open = self.alive and not self._draining
        return is_open and not self._backlog and self._has_room_for(None)

    def _has_room_for(self, offset: int | None) -> bool:
        if self.ledger.owed and not self._budget.has_room_for_messages:
            return False
        if self._streams is not None:
            # Which stream comes next is not known: what has no room waits without being fetched.
            for jobs in self.jobs.values():
                if jobs.in_work < self._max_objects:
                    return self.ledger.has_room_for(offset)
            return False
        return self.ledger.owed < self._max_objects

    def receive(self, record: Record) -> None:
        """Take a record in arrival order. Looked at when there is room; dropped when draining."""
        if self.alive and not self._draining:
            self._backlog.append(record)
            self._admit()

    def pass_over(self, offset: int) -> None:
        """There is nothing before `offset` that was not received."""
        if self.alive and not self._draining and not self._backlog:
            self.ledger.pass_over(offset)

    def _admit(self) -> None:
        while self._backlog and self._has_room_for(self._backlog[0].offset):
            record = self._backlog.popleft()
            # With order by stream a former owner may have answered records beyond its commit.
            if self.ledger.is_completed(record.offset):
                self.ledger.open(record.offset, 0)
                continue
            tickets = self._decode.tickets(self, record)
            if self.ledger.is_begun(record.offset):
                tickets = self._without_delivered(tickets)
            self.ledger.open(record.offset, len(tickets))
            if self._stops:
                tickets = [one for one in tickets if one.stream not in self._stops]
            self._charge(record, tickets)
            for ticket in tickets:
                self._order.add(ticket)
                if not ticket.closed:
                    self.jobs[ticket.model].add(ticket)
            # What was refused at once has no fetcher that would wake the lane.
            if any(ticket.closed for ticket in tickets):
                self.wake()
        self._offer()

    def _charge(self, record: Record, tickets: Sequence[Ticket]) -> None:
        """A long message, one that names many objects, and one of very many that are owed is in the
        byte budget until its objects are delivered.
        """
        is_one_of_many = self.ledger.owed > FEW_OBJECTS
        nbytes = message_cost(len(record.value or b""), len(tickets), is_one_of_many=is_one_of_many)
        if tickets and nbytes:
            share = nbytes // len(tickets)
            for ticket in tickets:
                ticket.cost_bytes = share
            self._hold_messages(share * len(tickets))

    def _hold_messages(self, nbytes: int) -> None:
        self.hold(nbytes)
        self._held_messages_bytes += nbytes
        self._budget.messages_bytes += nbytes

    def _offer(self) -> None:
        for model, jobs in self.jobs.items():
            if jobs:
                self._fetchers[model].offer(self)

    def _without_delivered(self, tickets: Sequence[Ticket]) -> Sequence[Ticket]:
        """A former assignment delivered some of these objects, and some rows of others."""
        left = [
            ticket
            for ticket in tickets
            if not self.ledger.is_delivered(ticket.record.offset, ticket.index)
        ]
        for ticket in left:
            ticket.resume = self.ledger.cursor(ticket.record.offset, ticket.index)
        return left

    def may_overdraw(self, ticket: Ticket) -> bool:
        """The head must go on, whatever the budget says, once nothing of it is left that could be
        delivered without more of it: so it overdraws by one step, and by another while one is
        being delivered where other streams may be in that release. A dead lane's reader goes on
        to find out.
        """
        if not self.alive:
            return True
        is_stuck = ticket.head is ticket.tail and (
            self._streams is not None or not self._unconfirmed
        )
        return is_stuck and self._order.is_head(ticket)

    def hold(self, nbytes: int) -> None:
        if self.alive:
            self._held_bytes += nbytes
            self._budget.spend(nbytes)

    def fetched(self, ticket: Ticket) -> None:
        self.jobs[ticket.model].fetched(ticket)
        self._offer()
        if ticket.has_answers:
            self.wake()

    def wake(self) -> None:
        self._changed.set()

    async def release(self, room: Callable[[], Room]) -> list[Release]:
        """What may be published next, in order; waits until there is something. Empty: the
        lane is closed.
        """
        while self.alive and not (releases := self._release(room())):
            self._changed.clear()
            await self._changed.wait()
        if not self.alive:
            return []
        self._unconfirmed += 1
        # There is a new head, which may have to go on although the budget is spent.
        self._budget.review()
        return releases

    def _release(self, room: Room) -> list[Release]:
        return self._order.release(room, self.ledger.spare_marks)

    def delivered(self, releases: Sequence[Release]) -> None:
        """All records of these releases are on the output topic. Called in the
        order of `release`.
        """
        if self.alive:
            self.account(releases)
            self.confirm(releases)

    def account(self, releases: Sequence[Release], stops: Iterable[LineStop] = ()) -> None:
        """`progress` is what these releases bring, and where lines stop behind them. A
        transaction needs it before they are delivered; if it fails, the lane is over.
        """
        self.letters.stopped_at.update(stop.offset for stop in stops)
        for release in releases:
            self._account(release)
        self._offer()

    def confirm(self, releases: Sequence[Release]) -> None:
        """Delivered and accounted for: make room."""
        if not self.alive:
            return
        self._unconfirmed -= 1
        self._deliveries += 1
        freed = sum(block.cost_bytes for release in releases for block in release.blocks)
        if self._held_messages_bytes:
            messages = sum(release.ticket.cost_bytes for release in releases if release.finished)
            self._held_messages_bytes -= messages
            self._budget.messages_bytes -= messages
            freed += messages
        self._held_bytes -= freed
        self._budget.refund(freed)
        self._admit()
        self._note_idle()

    def _account(self, release: Release) -> None:
        ticket = release.ticket
        offset = ticket.record.offset
        if release.finished:
            self.ledger.deliver(offset, ticket.index)
            if ticket.started:
                self.jobs[ticket.model].delivered(ticket)
            ticket.forget()
        else:
            last = release.blocks[-1]
            # Rows that are answered again for the result object alone are no step back.
            row = max(last.first_row + last.rows, ticket.published_rows)
            cursor = Cursor(row, ticket.digest)
            self.ledger.reach(offset, ticket.index, cursor)

    def drain(self) -> None:
        """Take nothing new and forget what no fetcher has begun."""
        self._draining = True
        self._backlog.clear()
        self._clear_jobs()
        self._order.abandon_unstarted()
        self._note_idle()

    def _clear_jobs(self) -> None:
        for jobs in self.jobs.values():
            jobs.clear()

    async def drained(self) -> None:
        """Return when all that was begun is delivered, or the lane is closed."""
        await self._idle.wait()

    def stop(self, stop: LineStop, refused: Sequence[Release]) -> None:
        """Stand still before these answers until the assignment ends: all of it, or the stream.
        What is held is given back.
        """
        self._stops[stop.stream] = stop
        if self._streams is None:
            self._backlog.clear()
            self._clear_jobs()
            self._order.abandon()
            self._idle.set()
            self.close()
        else:
            self._leave_out(self._streams.take_out(stop.stream), refused)
        self._on_stopped(self, stop)

    def _leave_out(self, tickets: Sequence[Ticket], refused: Sequence[Release]) -> None:
        """Their stream stands still. The ledger still owes them, and nothing else knows them."""
        left = [*tickets, *(one.ticket for one in refused if one.finished)]
        blocks = [block for release in refused for block in release.blocks]
        blocks += [block for ticket in left for block in ticket.blocks()]
        messages = sum(ticket.cost_bytes for ticket in left)
        over = Over(self.topic, self.partition)
        for ticket in left:
            self.jobs[ticket.model].drop(ticket.queue)
            ticket.owner = over
            ticket.forget()
        self._held_messages_bytes -= messages
        self._budget.messages_bytes -= messages
        freed = messages + sum(block.cost_bytes for block in blocks)
        self._held_bytes -= freed
        self._budget.refund(freed)
        self._admit()
        self._note_idle()

    def close(self) -> None:
        """The generation is over; what it held is given back at once."""
        self.alive = False
        self._budget.messages_bytes -= self._held_messages_bytes
        self._budget.refund(self._held_bytes)
        self._held_bytes = self._held_messages_bytes = 0
        self._changed.set()
        self._idle.set()

    def _note_idle(self) -> None:
        if self._draining and not len(self._order) and not self._unconfirmed:
            self._idle.set()


def _place(ticket: Ticket) -> tuple[int, int]:
    return ticket.record.offset, ticket.index
