"""Records in: a lane takes records in order, and gives their objects to the fetchers.

Rule: a record is decoded only while the lane has room for its objects. In one step the record's
objects get their places in the ledger, in the order and in a fetch queue. Owner: the lane.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from penstock.core.order.fetch_queue import (
    FetchQueue,
    FetchQueueByStream,
    FetchQueueInOrder,
    StreamShare,
)
from penstock.core.order.line_stop import LineLimits, Passing
from penstock.core.rows.blocks import Owner, Ticket
from penstock.lane.account import LaneAccount
from penstock.lane.budget import FEW_OBJECTS, Budget, Held, message_cost
from penstock.ports import Commit, Record, Where


class Decode(Protocol):
    def tickets(self, lane: Owner, record: Record) -> Sequence[Ticket]:
        """Returns a ticket for each object that the record names, in the record's order. Never
        raises.
        """
        ...


class Fetchers(Protocol):
    def offer(self, lane: "ReceivingLane") -> None:
        """Tell the fetchers that the lane has objects to fetch."""
        ...


class ReceivingLane(LaneAccount):
    """`receive` records. Fetchers take tickets from `fetch_queues`, and call `fetched` when a
    ticket's object was read.
    """

    def __init__(
        self,
        where: Where,
        start: Commit,
        limits: LineLimits,
        passing: Collection[Passing],
        *,
        budget: Budget,
        decode: Decode,
        fetchers: Mapping[str | None, Fetchers],
        max_objects: int,
        stream_share: StreamShare | None,
    ) -> None:
        super().__init__(where, start, limits, passing, by_stream=stream_share is not None)
        # Each model has its own fetchers, so that a model that fails does not delay the objects of
        # other models.
        self.fetch_queues: dict[str | None, FetchQueue] = {
            model: FetchQueueInOrder() if stream_share is None else FetchQueueByStream(stream_share)
            for model in fetchers
        }
        self.draining = False
        self._backlog: deque[Record] = deque()
        self._budget = budget
        self._held = Held(budget)
        self._decode = decode
        self._fetchers = fetchers
        self._max_objects = max_objects
        self._changed = asyncio.Event()

    @property
    def read_next(self) -> int:
        """The offset after the last record that was received."""
        return self._backlog[-1].offset + 1 if self._backlog else self.ledger.seen_next

    @property
    def undecoded_ms(self) -> int | None:
        """The timestamp of the oldest record that waits to be decoded; None: no record waits."""
        return self._backlog[0].timestamp_ms if self._backlog else None

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
            self._backlog.append(record)
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
        while self._backlog and self._has_room_for(self._backlog[0].offset):
            record = self._backlog.popleft()
            # With order per stream a former assignment may have answered records beyond the
            # committed offset. The objects of these records are not even decoded again.
            if self.ledger.is_completed(record.offset):
                self.ledger.open(record.offset, 0)
                continue
            tickets = self._decode.tickets(self, record)
            if self.ledger.is_begun(record.offset):
                tickets = self._without_delivered(tickets)
            # The ledger must also owe the objects of stopped streams, so that the commit does not
            # pass them.
            self.ledger.open(record.offset, len(tickets))
            if self._stops:
                tickets = [one for one in tickets if one.stream not in self._stops]
            self._charge(record, tickets)
            for ticket in tickets:
                self._order.add(ticket)
                if not ticket.closed:
                    self.fetch_queues[ticket.model].add(ticket)
            # A ticket that was refused at decoding gets no fetcher that would wake the lane later.
            if any(ticket.closed for ticket in tickets):
                self.wake()
        self._offer()

    def _charge(self, record: Record, tickets: Sequence[Ticket]) -> None:
        """A message that is long, that names many objects, or that is one of very many that are
        owed, is itself charged to the byte budget until its objects are delivered. Other messages
        are too small to count.
        """
        is_one_of_many = self.ledger.owed > FEW_OBJECTS
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
                self._fetchers[model].offer(self)

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
