"""One assignment of one partition: what it owes, what may leave, and its end.

Rule: a lane is a generation. When the partition is taken away, the lane closes and never opens
again; work that still arrives for it is dropped and can neither be published nor committed. In a
rebalance the lane is suspended until it is known which worker gets the partition: it receives,
publishes and commits nothing, and all other work goes on. A record is decoded only while the lane
has room for its objects (undecoded.py); in one step these objects get their places in the ledger,
in the order and in a fetch queue.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from penstock.core.progress.ledger import Account
from penstock.core.progress.line_stop import LineStop
from penstock.core.progress.order import (
    FetchQueue,
    FetchQueueByStream,
    FetchQueueInOrder,
    Order,
    PartitionOrder,
    Release,
    Room,
    StreamOrder,
    StreamShare,
    place,
)
from penstock.core.progress.stall import Snapshot, holder
from penstock.core.rows.blocks import StoppedOwner, Ticket
from penstock.lane.budget import FEW_OBJECTS, Budget, Held, message_cost
from penstock.lane.undecoded import Decoding, Undecoded
from penstock.ports import Commit, Record, Where

Decode = Callable[["Lane", Record], Decoding]
# Tells the fetchers of a model that the lane has objects to fetch.
Offer = Callable[["Lane"], None]


class Lane:
    """`receive` records; fetchers take tickets from `fetch_queues`, and call `fetched` when a
    ticket's object was read. Take answers in order by `release`, then report them by `delivered`. A
    lane ends by `stop` or `close`.
    """

    def __init__(
        self,
        where: Where,
        generation: int,
        account: Account,
        *,
        topic_id: str | None = None,
        budget: Budget,
        decode: Decode,
        offers: Mapping[str | None, Offer],
        on_stopped: Callable[["Lane", LineStop], None],
        max_objects: int,
        stream_share: StreamShare | None = None,
    ) -> None:
        """`topic_id`: which incarnation of the topic is read; None: not known. `stream_share`:
        given only if order is kept per stream. `offers`: one for each model.
        """
        self.where = where
        self.topic_id = topic_id
        self.generation = generation
        self.alive = True
        self.suspended = False
        self.draining = False
        self.account = account
        self.ledger = account.ledger
        self._streams = StreamOrder() if stream_share is not None else None
        self._order: Order = PartitionOrder() if self._streams is None else self._streams
        # Each model has its own fetchers, so that a model that fails does not delay the objects of
        # other models.
        self.fetch_queues: dict[str | None, FetchQueue] = {
            model: FetchQueueInOrder() if stream_share is None else FetchQueueByStream(stream_share)
            for model in offers
        }
        self._offers = offers
        self._max_objects = max_objects
        self._budget = budget
        self._held = Held(budget)
        self._backlog = Undecoded(partial(decode, self), self._held, self._admit)
        self._changed = asyncio.Event()
        # What `release` gave out and the broker has not acknowledged, in this order.
        self._leaving: deque[Sequence[Release]] = deque()
        self._deliveries = 0
        self._on_stopped = on_stopped
        self._idle = asyncio.Event()
        self._on_their_way = 0
        self._at_rest = asyncio.Event()
        self._at_rest.set()

    def __repr__(self) -> str:
        return (
            f"{self.where}, generation {self.generation}: {self.ledger!r}, "
            f"{len(self._backlog)} records unread"
        )

    @property
    def read_next(self) -> int:
        """The offset after the last record that was received."""
        return self._backlog.last.offset + 1 if self._backlog else self.ledger.seen_next

    @property
    def undecoded_ms(self) -> int | None:
        """The timestamp of the oldest record that waits to be decoded; None: no record waits."""
        return self._backlog.first.timestamp_ms if self._backlog else None

    def stands_at(self, end: int) -> bool:
        """Is everything before offset `end` delivered, except for streams that were stopped?"""
        owes = len(self._order) or self._backlog or self._leaving
        return not self.alive or (not owes and self.ledger.seen_next >= end)

    @property
    def wants_records(self) -> bool:
        """True if there is room for more objects, and no received record already waits for that
        room.
        """
        return self._is_receiving and not self._backlog and self._has_room_for(None)

    @property
    def _is_receiving(self) -> bool:
        return self.alive and not self.draining and not self.suspended

    def _has_room_for(self, offset: int | None) -> bool:
        # A lane that owes nothing takes one record in any case. Otherwise a single message that is
        # larger than the messages' share of the budget would never be read.
        if self.ledger.owed and not self._budget.has_room_for_messages:
            return False
        if self._streams is not None:
            # The stream of the next record is unknown until the record is decoded. So records are
            # taken while the fetch queue of any model has room. An object for which its own queue
            # has no room waits there.
            for queue in self.fetch_queues.values():
                if queue.in_work < self._max_objects:
                    return self.ledger.has_room_for(offset)
            return False
        return self.ledger.owed < self._max_objects

    def receive(self, record: Record) -> None:
        """Take a record, in the order of arrival. It is decoded once there is room. A draining or
        suspended lane drops the record: it is read again later, either by this lane from
        `read_next` or by the next assignment.
        """
        if self._is_receiving:
            self._backlog.add(record)
            self._admit()

    def pass_over(self, offset: int) -> None:
        """No more records come before `offset`: the offsets between the last received record and
        `offset` are a gap.
        """
        # While there is a backlog, nothing is passed over. The records in the backlog are not in
        # the ledger yet, so the ledger would take their offsets for a gap.
        if self._is_receiving and not self._backlog:
            self.ledger.pass_over(offset)

    def _admit(self) -> None:
        while self._backlog:
            record = self._backlog.first
            if not (self._backlog.is_begun or self._has_room_for(record.offset)):
                break
            # With order per stream a former assignment may have answered records beyond the
            # committed offset. The objects of these records are not even decoded again.
            is_known = record.offset < self.ledger.inherited_stop
            if is_known and self.ledger.is_completed(record.offset):
                self._backlog.pass_first()
                self.ledger.open(record.offset, 0)
                continue
            tickets: Sequence[Ticket] | None = self._backlog.decoded()
            if tickets is None:
                break
            if is_known and self.ledger.is_begun(record.offset):
                tickets = self._without_delivered(tickets)
            # The ledger must also owe the objects of stopped streams, so that the commit does not
            # pass them.
            owed = len(tickets)
            if stops := self.account.stops:
                tickets = [each for each in tickets if each.stream not in stops]
            self._charge(record, tickets, self.ledger.owed + owed)
            self.ledger.open(record.offset, owed)
            for ticket in tickets:
                self._order.add(ticket)
                if not ticket.closed:
                    self.fetch_queues[ticket.model].add(ticket)
            # A ticket that was refused at decoding gets no fetcher that would wake the lane later.
            if any(ticket.closed for ticket in tickets):
                self.wake()
        self._offer()

    def _charge(self, record: Record, tickets: Sequence[Ticket], owed: int) -> None:
        """A message that is long, that names many objects, or that is one of very many that are
        owed, is itself charged to the byte budget until its objects are delivered. Other messages
        are too small to count.
        """
        is_one_of_many = owed > FEW_OBJECTS
        nbytes = message_cost(len(record.value or b""), len(tickets), is_one_of_many=is_one_of_many)
        if tickets and nbytes:
            # The tickets share the charge equally, so that each delivered object gives back its
            # part.
            share = nbytes // len(tickets)
            for ticket in tickets:
                ticket.cost_bytes = share
            self._held.spend_on_messages(share * len(tickets))

    def _offer(self) -> None:
        for model, queue in self.fetch_queues.items():
            if queue:
                self._offers[model](self)

    def _without_delivered(self, tickets: Sequence[Ticket]) -> Sequence[Ticket]:
        """The tickets that are still to be answered, each with the row to begin at. A former
        assignment may have delivered some of these objects as a whole, and only some rows of
        others.
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
        """True if the lane waits for this object and the object has nothing left to deliver. Its
        reader may then exceed the byte budget by one step, because otherwise the lane would never
        move. With order per stream this holds even while a release is on its way, because that
        release may be of another stream. On a closed lane the result is always True, so that the
        reader comes to its check of `alive`.
        """
        if not self.alive:
            return True
        # If the ticket has only one block, or none, nothing can leave: a block stays until it is
        # known whether it is the object's last.
        is_stuck = ticket.head is ticket.tail and (self._streams is not None or not self._leaving)
        return is_stuck and self._order.is_head(ticket)

    def hold(self, nbytes: int) -> None:
        # A closed lane has already given back all its bytes, so bytes that it spent now would never
        # be given back.
        if self.alive:
            self._held.spend(nbytes)

    def fetched(self, ticket: Ticket) -> None:
        self.fetch_queues[ticket.model].fetched(ticket)
        self._offer()
        # Until now it was not certain which block is the object's last. If that block is already
        # answered, it may leave now.
        if ticket.has_answers:
            self.wake()

    def wake(self) -> None:
        self._changed.set()

    async def release(self, room: Callable[[], Room]) -> list[Release]:
        """Wait for answers that may be published next, and return them in order. This may be called
        again before these are delivered. An empty list: the lane is closed.
        """
        while self.alive and not (releases := self._release(room())):
            # The event is cleared before the wait. No change is missed, because no other task has
            # run since the check above.
            self._changed.clear()
            await self._changed.wait()
        if not self.alive:
            return []
        self._leaving.append(releases)
        # After the release another object is the lane's first one, and the reader of that object
        # may exceed a spent budget.
        self._budget.review()
        return releases

    def _release(self, room: Room) -> list[Release]:
        if self.suspended:
            return []
        leaving = sum(map(len, self._leaving))
        return self._order.release(room, self.ledger.spare_marks, leaving)

    def delivered(self, releases: Sequence[Release]) -> None:
        """The broker has acknowledged all records of these releases. Must be called in the order of
        `release`.
        """
        if self.alive:
            self.advance(releases)
            self.confirm(releases)

    def advance(self, releases: Sequence[Release], stops: Iterable[LineStop] = ()) -> None:
        """Add to `progress` what these releases deliver, and the stops behind them. The publisher
        of a transaction calls this before the delivery, because the transaction carries the new
        position with it. If the delivery fails, the lane is over, and the position is lost with the
        lane.
        """
        self.account.letters.stopped_at.update(stop.offset for stop in stops)
        for release in releases:
            self.account.deliver(release)
            # A ticket that was refused at decoding was never in a fetch queue, so its end is not
            # reported to one.
            if release.finished and release.ticket.started:
                self.fetch_queues[release.ticket.model].delivered(release.ticket)
        self._offer()

    def confirm(self, releases: Sequence[Release]) -> None:
        """These releases are delivered and accounted for: give back their bytes, and admit more
        records.
        """
        if not self.alive:
            return
        self._leaving.popleft()
        self._deliveries += 1
        rows = sum(block.cost_bytes for release in releases for block in release.blocks)
        # Most lanes hold no long message, and need no second pass over the releases.
        messages = 0
        if self._held.messages_bytes:
            messages = sum(release.ticket.cost_bytes for release in releases if release.finished)
        self._held.refund(rows, messages)
        self._admit()
        if self._streams is not None:
            self.wake()  # there may be room for more marks in the commit's metadata
        self._note_idle()

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """The context in which answers or a position are on their way to the broker."""
        self._on_their_way += 1
        self._at_rest.clear()
        try:
            yield
        finally:
            self._on_their_way -= 1
            if not self._on_their_way:
                self._at_rest.set()

    @property
    def is_at_rest(self) -> bool:
        """True if nothing is on its way to the broker."""
        return self._at_rest.is_set()

    async def at_rest(self) -> None:
        await self._at_rest.wait()

    def suspend(self) -> None:
        """A rebalance has begun. Releases that are on their way are delivered, and no more are
        made.
        """
        self.suspended = True

    def go_on(self) -> None:
        """The partition came back to this worker at the position where the lane left it."""
        self.suspended = False
        self.wake()

    def drain(self) -> None:
        """Take no new records, and forget the objects that no fetcher has begun."""
        self.draining = True
        self._backlog.clear()
        self._forget_waiting()
        self._order.abandon_unstarted()
        self._note_idle()

    def _forget_waiting(self) -> None:
        for queue in self.fetch_queues.values():
            queue.clear()

    async def drained(self) -> None:
        """Return when every object that was begun is delivered, or the lane is closed."""
        await self._idle.wait()

    def stop(self, stop: LineStop, refused: Sequence[Release]) -> None:
        """Publish neither the `refused` answers nor any behind them until the assignment ends. If
        order is kept per stream, this concerns only the one stream, otherwise the whole lane. Gives
        back the bytes of all that is dropped.
        """
        self.account.stops[stop.stream] = stop
        if self._streams is None:
            # With one order for all streams, all other answers are behind the refused ones, so the
            # lane ends here. `due` still gives the position to commit.
            self._backlog.clear()
            self._forget_waiting()
            self._order = PartitionOrder()
            self._idle.set()
            self.close()
        else:
            self._leave_out(self._streams.take_out(stop.stream), refused)
        self._on_stopped(self, stop)

    def _leave_out(self, tickets: Sequence[Ticket], refused: Sequence[Release]) -> None:
        """Forget the tickets of a stopped stream everywhere except in the ledger. The ledger still
        owes them, so the committed position stays before them.
        """
        # If a refused release ended its object, the object's ticket has already left the order.
        left = [*tickets, *(release.ticket for release in refused if release.finished)]
        blocks = [block for release in refused for block in release.blocks]
        blocks += [block for ticket in left for block in ticket.blocks()]
        messages = sum(ticket.cost_bytes for ticket in left)
        # Answers may still arrive for these tickets. Their new owner does not count as alive, so
        # the answers are dropped, while the lane lives on for its other streams.
        over = StoppedOwner(self.where, self.topic_id)
        for ticket in left:
            self.fetch_queues[ticket.model].drop(ticket.queue)
            ticket.owner = over
            ticket.forget()
        self._held.refund(sum(block.cost_bytes for block in blocks), messages)
        self._admit()
        self._note_idle()

    def close(self) -> None:
        """End the generation, and give back at once all bytes that it held."""
        self.alive = False
        self._backlog.stop()
        # The partitions that stay need the room now. So the bytes are not given back block by
        # block, when the stages let go of the blocks.
        self._held.refund_all()
        # `release` and `drained` wait for deliveries that will never come. This ends their waits.
        self._changed.set()
        self._idle.set()

    def _note_idle(self) -> None:
        if self.draining and not len(self._order) and not self._leaving:
            self._idle.set()

    @property
    def due(self) -> Commit | None:
        """The position to commit; None: it has not moved since the last commit. A stopped line
        still commits what it delivered before it stopped.
        """
        if not self.alive and self.stopped is None:
            return None
        progress = self.account.progress
        return progress if progress != self.account.committed else None

    @property
    def stops(self) -> Collection[LineStop]:
        """Where a stream, or the whole lane, was stopped."""
        return self.account.stops.values()

    @property
    def stopped(self) -> LineStop | None:
        """Where the whole lane was stopped. None: it goes on, or it keeps one order for each
        stream.
        """
        return next(iter(self.account.stops.values()), None) if self._streams is None else None

    def line_of(self, ticket: Ticket) -> str:
        """The name of the ticket's line: its stream, or "" if the whole lane is one line."""
        return "" if self._streams is None else ticket.stream

    @property
    def is_publishing(self) -> bool:
        """Does the lane wait for the broker to acknowledge records?"""
        return bool(self._leaving)

    def unanswered(self) -> Iterator[Ticket]:
        """The objects whose last answer is not delivered; for status pages, as they may be many."""
        yield from self._order
        # A release leaves the order before the broker acknowledges it.
        for releases in self._leaving:
            yield from (release.ticket for release in releases if release.finished)

    def held_back(self) -> tuple[Ticket, int] | None:
        """The object whose answers all others of the lane wait for, and how many objects behind it
        are answered already. None: nothing waits, or order is kept per stream. Only the status
        pages ask.
        """
        if self._streams is not None:
            return None
        first, *rest = self._order or (None,)
        waiting = sum(ticket.closed and ticket.has_answers for ticket in rest)
        return (first, waiting) if first is not None and waiting else None

    @property
    def snapshot(self) -> Snapshot | None:
        """For the watchdog: how far the lane has come, and which stage must act next. None: the
        lane owes nothing, or it waits for its group or for an operator.
        """
        if self.suspended:
            return None  # the lane waits for the group, whose rebalance has its own time limit
        offset = self.ledger.progress.next_offset
        # The stages are asked from the end of the flow, because the last stage that has work is the
        # one that the others wait for.
        if self._leaving:
            return Snapshot("publish", offset, self._deliveries)
        if self.account.stops and not self.ledger.spare_marks():
            # The commit's metadata has no room for more rows beyond the stopped streams, so the
            # lane waits for an operator. The watchdog must not take this wait for a fault.
            return None
        if head := min(self._order, key=place, default=None):
            stage = holder(head)
            return Snapshot(stage, offset, self._deliveries, head.next_row, head.read_bytes)
        if self.account.progress != self.account.committed:
            return Snapshot("settle", self.account.committed.next_offset, self._deliveries)
        return None
