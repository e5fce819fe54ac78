"""One assignment of one partition: its ledger, its order, and the objects it has yet to fetch.

Rule: a lane is a generation. When the partition is taken away, the lane closes and never opens
again; work that still arrives for it is dropped and can neither publish nor commit. In a rebalance,
until it is known who gets the partition, the lane is suspended: nothing is received, published or
committed, and all other work goes on. Owner: the pipeline, from the event loop; stages reach the
lane through their tickets.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from penstock.core.order.jobs import Jobs, JobsByStream, JobsInOrder, Share
from penstock.core.order.line_stop import LetterAccount, LineLimits, LineStop
from penstock.core.order.releases import Order, PartitionOrder, Release, Room, StreamOrder
from penstock.core.order.stall import Snapshot, holder
from penstock.core.progress.cursor import Cursor
from penstock.core.progress.ledger import Ledger, read, written
from penstock.core.rows.blocks import Ticket
from penstock.core.rows.log_keys import of_place
from penstock.core.rows.owner import Over
from penstock.lane.budget import FEW_OBJECTS, Budget, Held, message_cost
from penstock.ports import Commit, Record, Where

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """`line`: how many dead letters stop a line. `order_by_stream`: keep order per stream only."""

    max_objects: int
    line: LineLimits
    order_by_stream: bool = False


class Decode(Protocol):
    def tickets(self, lane: "Lane", record: Record) -> Sequence[Ticket]:
        """One for each object that the record names, in the record's order. Raises nothing."""
        ...


class Fetchers(Protocol):
    def offer(self, lane: "Lane") -> None:
        """Tell the fetchers that the lane has jobs for them."""
        ...


class Lane:
    """`receive` records, hand out `jobs`, `release` answers in order, account for the delivered."""

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
        """`number` is the source's name for the partition. With a `stream_share`, order is kept
        per stream only. `fetchers`: by model. `passing`: the places, as stream and offset, whose
        dead letters an operator let pass; they stop no line.
        """
        self.number = number
        self.topic, self.partition = where
        self.generation = generation
        self._committed = start
        begin = read(start.next_offset, start.metadata, limits.line.digest)
        if not begin.is_whole:
            log.warning(
                "partition %d: not all of the commit's metadata could be read (%.40r); what the "
                "rest would have said is repeated",
                self.partition,
                start.metadata,
                extra=of_place(*where, start.next_offset),
            )
        self.ledger = Ledger(begin.progress)
        self.letters = LetterAccount(limits.line, begin.stopped_at, passing)
        self._stops: dict[str, LineStop] = {}
        self._streams = None if stream_share is None else StreamOrder()
        self._order: Order = PartitionOrder() if self._streams is None else self._streams
        # Each model has its own fetchers, so that a model that fails delays no other's objects.
        self.jobs: dict[str | None, Jobs] = {
            model: JobsInOrder() if stream_share is None else JobsByStream(stream_share)
            for model in fetchers
        }
        self.alive = True
        self._draining = False
        self.suspended = False
        self._backlog: deque[Record] = deque()
        self._budget = budget
        self._held = Held(budget)
        self._decode = decode
        self._fetchers = fetchers
        self._on_stopped = on_stopped
        self._max_objects = limits.max_objects
        self._leaving: Sequence[Release] = ()
        self._deliveries = 0
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._at_rest = asyncio.Event()
        self._at_rest.set()

    def __repr__(self) -> str:
        return (
            f"{self.topic}/{self.partition}, generation {self.generation}: {self.ledger!r}, "
            f"{len(self._backlog)} records unread"
        )

    @property
    def progress(self) -> Commit:
        """The position to commit now: the next record, and the rows delivered from there on."""
        progress = self.ledger.progress
        stopped_at = self.letters.stopped_at.union(stop.offset for stop in self.stops)
        metadata = written(progress, stopped_at, self.letters.limits.digest)
        return Commit(progress.next_offset, metadata)

    @property
    def stops(self) -> Collection[LineStop]:
        """The places at which a stream (or the whole lane) has been stopped."""
        return self._stops.values()

    @property
    def stopped(self) -> LineStop | None:
        """The place at which the whole lane has been stopped, if it keeps one order."""
        return next(iter(self._stops.values()), None) if self._streams is None else None

    def stands_at(self, end: int) -> bool:
        """Is everything before this offset delivered, except for streams that were stopped?"""
        owes = len(self._order) or self._backlog or self._leaving
        return not self.alive or (not owes and self.ledger.seen_next >= end)

    def line_of(self, ticket: Ticket) -> str:
        """The name of what stops together with this ticket: its stream, or "", the whole lane."""
        return "" if self._streams is None else ticket.stream

    @property
    def committed(self) -> Commit:
        """The position that Kafka has: where the next assignment would begin now."""
        return self._committed

    @property
    def due(self) -> Commit | None:
        """The position to commit, or None if it has not moved since the last commit. A stopped line
        still commits what it delivered before it stopped.
        """
        if not self.alive and self.stopped is None:
            return None
        progress = self.progress
        return progress if progress != self._committed else None

    def committed_up_to(self, commit: Commit) -> None:
        """Kafka has stored this position."""
        self._committed = commit

    def was_left_at(self, start: Commit) -> bool:
        """May the lane go on where the group says that the partition begins?

        Only from its own last commit, and only if that covers all that was delivered. If a commit
        failed, or did not count because the member was expelled, another member may have repeated
        a part of that meanwhile, and readers would miss the rest of its repeat.
        """
        return start == self._committed == self.progress

    @property
    def read_next(self) -> int:
        """The offset after the last record that was received."""
        return self._backlog[-1].offset + 1 if self._backlog else self.ledger.seen_next

    @property
    def draining(self) -> bool:
        return self._draining

    @property
    def is_publishing(self) -> bool:
        """Has the lane handed records to the broker that are not acknowledged yet?"""
        return bool(self._leaving)

    def unanswered(self) -> Iterator[Ticket]:
        """The objects without a delivered answer. It walks over all of them, so it is for pages."""
        yield from self._order
        # A release has left the order before the broker has it.
        yield from (release.ticket for release in self._leaving if release.finished)

    @property
    def undecoded_ms(self) -> int | None:
        """The timestamp of the oldest record that waits to be decoded; None: there is none."""
        return self._backlog[0].timestamp_ms if self._backlog else None

    @property
    def snapshot(self) -> Snapshot | None:
        """How far the lane is and which stage must act next, for the watchdog; None: it owes
        nothing.
        """
        if self.suspended:
            return None  # it waits for the group, which has a watch of its own
        offset = self.ledger.progress.next_offset
        # Asked backwards along the flow: the last stage that has work is the one to wait for.
        if self._leaving:
            return Snapshot("publish", offset, self._deliveries)
        if self._stops and not self.ledger.spare_marks():
            # The commit's metadata has no room to tell of more rows beyond the stopped streams, so
            # the lane waits for an operator; the watchdog must not take that for a fault.
            return None
        if head := min(self._order, key=_place, default=None):
            stage = holder(head)
            return Snapshot(stage, offset, self._deliveries, head.next_row, head.read_bytes)
        if self.progress != self._committed:
            return Snapshot("settle", self._committed.next_offset, self._deliveries)
        return None

    @property
    def wants_records(self) -> bool:
        """Is there room for more objects, with no received record waiting for it already?"""
        return self._is_receiving and not self._backlog and self._has_room_for(None)

    @property
    def _is_receiving(self) -> bool:
        return self.alive and not self._draining and not self.suspended

    def _has_room_for(self, offset: int | None) -> bool:
        # A lane that owes nothing takes one record in any case: a single message larger than the
        # whole share would otherwise never be read.
        if self.ledger.owed and not self._budget.has_room_for_messages:
            return False
        if self._streams is not None:
            # The stream of the next record is unknown until it is decoded, so records are taken
            # while any model's fetchers have room; an object without room waits unfetched.
            for jobs in self.jobs.values():
                if jobs.in_work < self._max_objects:
                    return self.ledger.has_room_for(offset)
            return False
        return self.ledger.owed < self._max_objects

    def receive(self, record: Record) -> None:
        """Take a record, in arrival order. It is decoded once there is room. A draining or
        suspended lane drops it: it is read again from `read_next`, or by the next assignment.
        """
        if self._is_receiving:
            self._backlog.append(record)
            self._admit()

    def pass_over(self, offset: int) -> None:
        """Every record before `offset` has been received: gaps up to there hold no records."""
        # Records of the backlog are not in the ledger yet: it would take their offsets for a gap.
        if self._is_receiving and not self._backlog:
            self.ledger.pass_over(offset)

    def _admit(self) -> None:
        while self._backlog and self._has_room_for(self._backlog[0].offset):
            record = self._backlog.popleft()
            # With order by stream a former owner may have answered records beyond the committed
            # offset. Their objects are not even decoded again.
            if self.ledger.is_completed(record.offset):
                self.ledger.open(record.offset, 0)
                continue
            tickets = self._decode.tickets(self, record)
            if self.ledger.is_begun(record.offset):
                tickets = self._without_delivered(tickets)
            # The ledger owes the objects of stopped streams too: the commit must not pass them.
            self.ledger.open(record.offset, len(tickets))
            if self._stops:
                tickets = [one for one in tickets if one.stream not in self._stops]
            self._charge(record, tickets)
            for ticket in tickets:
                self._order.add(ticket)
                if not ticket.closed:
                    self.jobs[ticket.model].add(ticket)
            # A ticket that was refused at decoding has no fetcher that would wake the lane.
            if any(ticket.closed for ticket in tickets):
                self.wake()
        self._offer()

    def _charge(self, record: Record, tickets: Sequence[Ticket]) -> None:
        """Charge the message itself to the byte budget until its objects are delivered, if it is
        long, names many objects, or is one of very many that are owed. Small ones are too cheap to
        count.
        """
        is_one_of_many = self.ledger.owed > FEW_OBJECTS
        nbytes = message_cost(len(record.value or b""), len(tickets), is_one_of_many=is_one_of_many)
        if tickets and nbytes:
            # In equal shares, so that each delivered object gives back a part.
            share = nbytes // len(tickets)
            for ticket in tickets:
                ticket.cost_bytes = share
            self._held.spend_on_messages(share * len(tickets))

    def _offer(self) -> None:
        for model, jobs in self.jobs.items():
            if jobs:
                self._fetchers[model].offer(self)

    def _without_delivered(self, tickets: Sequence[Ticket]) -> Sequence[Ticket]:
        """The tickets still to answer, each with the row to begin at: a former assignment may have
        delivered some of these objects, and some rows of others.
        """
        left = [
            ticket
            for ticket in tickets
            if not self.ledger.is_delivered(ticket.record.offset, ticket.index)
        ]
        for ticket in left:
            ticket.resume = self.ledger.cursor(ticket.record.offset, ticket.index)
        return left

    def may_overdraw(self, ticket: Ticket) -> bool:
        """True when this object blocks the lane and has nothing left to deliver: its reader may
        then exceed the byte budget by one step, or the lane would never move. With order per stream
        this holds even while a release is on its way, since that may be another stream's. On a
        closed lane always true, so that the reader gets to the check that stops it.
        """
        if not self.alive:
            return True
        # With one block left, or none, nothing can leave: a block stays until it is known whether
        # it is the object's last.
        is_stuck = ticket.head is ticket.tail and (self._streams is not None or not self._leaving)
        return is_stuck and self._order.is_head(ticket)

    def hold(self, nbytes: int) -> None:
        # A closed lane has given everything back at once; nobody would refund this.
        if self.alive:
            self._held.spend(nbytes)

    def fetched(self, ticket: Ticket) -> None:
        self.jobs[ticket.model].fetched(ticket)
        self._offer()
        # The last block waited for the end of the object; if it is answered, it may leave now.
        if ticket.has_answers:
            self.wake()

    def wake(self) -> None:
        self._changed.set()

    async def release(self, room: Callable[[], Room]) -> list[Release]:
        """Wait for answers that may be published next, and return them in order. Empty: the lane
        is closed.
        """
        while self.alive and not (releases := self._release(room())):
            # Cleared before the wait: between the look above and here nothing else has run.
            self._changed.clear()
            await self._changed.wait()
        if not self.alive:
            return []
        self._leaving = releases
        # The release made another object the head, and the head may exceed a spent budget.
        self._budget.review()
        return releases

    def _release(self, room: Room) -> list[Release]:
        if self.suspended:
            return []
        return self._order.release(room, self.ledger.spare_marks)

    def delivered(self, releases: Sequence[Release]) -> None:
        """The broker has acknowledged all records of these releases. Called in the order of
        `release`.
        """
        if self.alive:
            self.account(releases)
            self.confirm(releases)

    def account(self, releases: Sequence[Release], stops: Iterable[LineStop] = ()) -> None:
        """Add to `progress` what these releases deliver, and the stops behind them. A transaction
        carries this position, so it calls this before the delivery; if it fails, the lane is over
        and the position is lost with it.
        """
        self.letters.stopped_at.update(stop.offset for stop in stops)
        for release in releases:
            self._account(release)
        self._offer()

    def confirm(self, releases: Sequence[Release]) -> None:
        """These releases are delivered and accounted for: give back their bytes, admit records."""
        if not self.alive:
            return
        self._leaving = ()
        self._deliveries += 1
        rows = sum(block.cost_bytes for release in releases for block in release.blocks)
        # Most lanes hold no long message, and are spared the second pass over the releases.
        messages = 0
        if self._held.messages_bytes:
            messages = sum(release.ticket.cost_bytes for release in releases if release.finished)
        self._held.refund(rows, messages)
        self._admit()
        self._note_idle()

    def _account(self, release: Release) -> None:
        ticket = release.ticket
        offset = ticket.record.offset
        if release.finished:
            self.ledger.deliver(offset, ticket.index)
            # A refused ticket was never a job, so it does not count as one that is done.
            if ticket.started:
                self.jobs[ticket.model].delivered(ticket)
            ticket.forget()
        else:
            last = release.blocks[-1]
            # A result object is written from its first row again after a restart, though some of
            # its rows are published: those must not move the cursor back.
            row = max(last.first_row + last.rows, ticket.published_rows)
            cursor = Cursor(row, ticket.digest)
            self.ledger.reach(offset, ticket.index, cursor)

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """Answers or a position are on their way to the broker while the body runs."""
        self._at_rest.clear()
        try:
            yield
        finally:
            self._at_rest.set()

    @property
    def is_at_rest(self) -> bool:
        """Is nothing on its way to the broker?"""
        return self._at_rest.is_set()

    async def at_rest(self) -> None:
        await self._at_rest.wait()

    def suspend(self) -> None:
        """A rebalance has begun. The releases that are leaving are delivered, no more are made."""
        self.suspended = True

    def go_on(self) -> None:
        """The partition came back as it was left."""
        self.suspended = False
        self.wake()

    def drain(self) -> None:
        """Take no new records, and forget the objects that no fetcher has begun."""
        self._draining = True
        self._backlog.clear()
        self._clear_jobs()
        self._order.abandon_unstarted()
        self._note_idle()

    def _clear_jobs(self) -> None:
        for jobs in self.jobs.values():
            jobs.clear()

    async def drained(self) -> None:
        """Return when every object that was begun is delivered, or the lane is closed."""
        await self._idle.wait()

    def stop(self, stop: LineStop, refused: Sequence[Release]) -> None:
        """Publish nothing from these answers on until the assignment ends: of the whole lane, or
        of the one stream if order is kept per stream. Gives back the bytes they hold.
        """
        self._stops[stop.stream] = stop
        if self._streams is None:
            # With one order everything stands behind the refused answers, so the lane ends here.
            # `due` still gives the position to commit.
            self._backlog.clear()
            self._clear_jobs()
            self._order.abandon()
            self._idle.set()
            self.close()
        else:
            self._leave_out(self._streams.take_out(stop.stream), refused)
        self._on_stopped(self, stop)

    def _leave_out(self, tickets: Sequence[Ticket], refused: Sequence[Release]) -> None:
        """Forget the tickets of a stopped stream everywhere but in the ledger, which owes them, so
        that the commit stays before them.
        """
        # A refused release that ended its object has left the order already.
        left = [*tickets, *(one.ticket for one in refused if one.finished)]
        blocks = [block for release in refused for block in release.blocks]
        blocks += [block for ticket in left for block in ticket.blocks()]
        messages = sum(ticket.cost_bytes for ticket in left)
        # Answers may still arrive for these tickets: under an owner that is over they are dropped,
        # while the lane itself lives on for its other streams.
        over = Over(self.topic, self.partition)
        for ticket in left:
            self.jobs[ticket.model].drop(ticket.queue)
            ticket.owner = over
            ticket.forget()
        self._held.refund(sum(block.cost_bytes for block in blocks), messages)
        self._admit()
        self._note_idle()

    def close(self) -> None:
        """End the generation and give back at once all bytes that it held."""
        self.alive = False
        # At once, and not block by block as stages let go: the partitions that stay need the room.
        self._held.refund_all()
        # Ends `release` and `drained`, which would wait for deliveries that never come.
        self._changed.set()
        self._idle.set()

    def _note_idle(self) -> None:
        if self._draining and not len(self._order) and not self._leaving:
            self._idle.set()


def _place(ticket: Ticket) -> tuple[int, int]:
    return ticket.record.offset, ticket.index
