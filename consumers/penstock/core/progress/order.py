"""The order of a lane, as a whole or by stream: which of its objects is fetched next, and which
answers may leave now?

Rule of fetching: first in, first out. So the oldest object of a lane always has a fetcher, or is
the next that gets one; and only the oldest object may exceed a spent byte budget (lane/budget.py).
If any other object were preferred, the fetchers could all hold younger objects, which wait for the
budget, while the budget waits for the oldest one, which waits for a fetcher: nothing would ever
move again. Where order is kept per stream, this holds within each stream, and each stream has a
share of the fetchers and of the objects in work, so that a stream that cannot go on leaves room for
the other streams. Objects of one store never wait for objects of another store.

Rule of leaving: a block leaves when everything before it has left, and when it is certain whether
another block of its object follows. Therefore the newest block of an object stays as long as the
object is being read.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.core.rows.blocks import Block, Ticket


class FetchQueue(ABC):
    """The tickets of a lane that wait for a fetcher. `add` tickets and `take` the next; call
    `fetched` when a ticket's object was read, and `delivered` when the ticket's answers are out.
    `in_work`: the number of tickets that were added and are not delivered yet. It leaves out
    tickets that wait because their stream has used up its share.
    """

    def __init__(self) -> None:
        self.in_work = 0
        # For each store, and for its backlog: a queue of the tickets that may be taken now.
        self._ready: dict[str, deque[Ticket]] = {}

    def __len__(self) -> int:
        """How many tickets may be taken now."""
        return sum(map(len, self._ready.values()))

    @property
    def fetchers(self) -> Iterable[str]:
        """All fetchers for whom there was a ticket before. For some there may be none now."""
        return self._ready

    def waiting(self, fetchers: str) -> int:
        """How many tickets these fetchers may take now."""
        ready = self._ready.get(fetchers)
        return len(ready) if ready else 0

    def take(self, fetchers: str) -> Ticket:
        return self._ready[fetchers].popleft()

    @abstractmethod
    def add(self, ticket: Ticket) -> None: ...

    @abstractmethod
    def fetched(self, ticket: Ticket) -> None: ...

    @abstractmethod
    def delivered(self, ticket: Ticket) -> None: ...

    def clear(self) -> None:
        self._ready.clear()

    def drop(self, queue: str) -> None:
        """Forget the waiting tickets of a stream."""
        for fetchers, ready in self._ready.items():
            self._ready[fetchers] = deque(ticket for ticket in ready if ticket.queue != queue)

    def _put(self, ticket: Ticket) -> None:
        ready = self._ready.get(ticket.fetchers)
        if ready is None:
            ready = self._ready[ticket.fetchers] = deque()
        ready.append(ticket)


class FetchQueueInOrder(FetchQueue):
    """All tickets in the order in which they were added."""

    def add(self, ticket: Ticket) -> None:
        self.in_work += 1
        self._put(ticket)

    def fetched(self, ticket: Ticket) -> None:
        """Nothing changes: any number of objects may be fetched at a time."""

    def delivered(self, ticket: Ticket) -> None:
        self.in_work -= 1


class StreamShare(NamedTuple):
    """How many objects one stream may have at most: a quarter, so that three stuck streams leave
    room for all others. `fetchers`: how many objects of a store may be fetched at a time now;
    `objects`: how many objects may be in work, including those that were fetched and are not
    delivered yet.
    """

    fetchers: Callable[[str], int]
    objects: int

    def fetching(self, store: str) -> int:
        return max(1, self.fetchers(store) // 4)

    @property
    def in_work(self) -> int:
        return max(1, self.objects // 4)


@dataclass(slots=True)
class _FetchedStream:
    """The tickets of one stream. `fetching`: how many of its tickets were given to the fetchers and
    are not read yet. `admitted`: tickets in work that wait until fewer objects of the stream are
    being fetched. `waiting`: tickets that wait until an object of the stream is delivered.
    """

    fetching: int = 0
    in_work: int = 0
    admitted: deque[Ticket] = field(default_factory=deque)
    waiting: deque[Ticket] = field(default_factory=deque)


class FetchQueueByStream(FetchQueue):
    """Takes the tickets in the order in which they were added, but leaves out streams that have
    used up their share. `in_work` grows only in `add`, so the lane, which calls `add`, decides how
    many tickets may be in work.
    """

    def __init__(self, share: StreamShare) -> None:
        super().__init__()
        self._share = share
        self._streams: dict[str, _FetchedStream] = {}

    def add(self, ticket: Ticket) -> None:
        stream = self._streams.setdefault(ticket.queue, _FetchedStream())
        if stream.in_work >= self._share.in_work:
            stream.waiting.append(ticket)
            return
        stream.in_work += 1
        self.in_work += 1
        stream.admitted.append(ticket)
        self._let_in(stream)

    def fetched(self, ticket: Ticket) -> None:
        stream = self._streams[ticket.queue]
        stream.fetching -= 1
        self._let_in(stream)

    def delivered(self, ticket: Ticket) -> None:
        stream = self._streams[ticket.queue]
        # When a ticket is delivered, the stream's next ticket comes into work, so `in_work` stays
        # as it is.
        if stream.waiting:
            stream.admitted.append(stream.waiting.popleft())
            self._let_in(stream)
            return
        stream.in_work -= 1
        self.in_work -= 1
        if not stream.in_work:
            del self._streams[ticket.queue]

    def clear(self) -> None:
        super().clear()
        for stream in self._streams.values():
            stream.admitted.clear()
            stream.waiting.clear()

    def drop(self, queue: str) -> None:
        super().drop(queue)
        if stream := self._streams.pop(queue, None):
            self.in_work -= stream.in_work

    def _let_in(self, stream: _FetchedStream) -> None:
        share = self._share
        while stream.admitted and stream.fetching < share.fetching(stream.admitted[0].store):
            stream.fetching += 1
            self._put(stream.admitted.popleft())


class Release(NamedTuple):
    """Answered blocks of one ticket. `finished`: the ticket's last block is among them, or the
    ticket had no blocks at all.
    """

    ticket: Ticket
    blocks: list[Block]
    finished: bool

    @property
    def rows(self) -> int:
        return sum(block.rows for block in self.blocks)


# A dead letter names the object twice and carries a message. The record of a rejected row carries
# only one message.
LETTER_BYTES = 1_500
FAILED_ROW_BYTES = 1_000
RANGE_BYTES = 84


class Room:
    """How much may still leave now: `rows` rows, and `nbytes` bytes of records and dead letters.
    `frame_bytes`: a function that returns how many bytes a record of a ticket takes besides its
    answer.
    """

    def __init__(self, rows: int, nbytes: int, frame_bytes: Callable[[Ticket], int]) -> None:
        self.rows = rows
        self.nbytes = nbytes
        self._frame_bytes = frame_bytes
        self._is_used = False

    @property
    def is_left(self) -> bool:
        return self.rows > 0 and self.nbytes > 0

    def take(self, block: Block) -> bool:
        """Count the block against the room. True: the block leaves. If the block is larger than the
        rest of the room, it is cut first. While the room is unused, at least one row leaves, even
        if the row is larger than the room.
        """
        nbytes = self._weight(block)
        if nbytes > self.nbytes:
            fitting = self.nbytes * block.rows // nbytes
            if fitting or not self._is_used:
                # A row that is larger than the whole room leaves alone, because otherwise it would
                # never leave.
                if block.rows > 1:
                    block.split(max(1, fitting))
                nbytes = self.nbytes  # the room is used up: the rest of the block comes next time
            else:
                # Less than one row fits: the room counts as used up, and the block waits for the
                # next room.
                self.nbytes = 0
                return False
        self._is_used = True
        self.rows -= block.rows
        self.nbytes -= nbytes
        return True

    def take_end(self, ticket: Ticket) -> None:
        """Count the marker record that ends an object without rows, or an object that failed."""
        ranges = ticket.reference.rows if ticket.reference else None
        self._is_used = True
        self.rows -= 1
        self.nbytes -= (
            3 * self._frame_bytes(ticket) + LETTER_BYTES + RANGE_BYTES * len(ranges or ())
        )

    def _weight(self, block: Block) -> int:
        frame_bytes = self._frame_bytes(block.ticket) + 6 * len(block.member or "")
        nbytes = block.rows * frame_bytes + block.answer_bytes
        # Each error has a dead letter. The dead letter leaves in the same release as the error's
        # record, and stays in memory for as long as that record.
        letters = len(block.errors)
        if block.rejection is not None:
            letters = block.reasons.stretches if block.reasons is not None else 1
            nbytes += block.rows * FAILED_ROW_BYTES
        return nbytes + letters * (2 * frame_bytes + LETTER_BYTES)


class PartitionOrder:
    """The tickets of a lane that have not left completely, in one order: by offset, then object,
    then row. Tickets are added in input order.
    """

    def __init__(self) -> None:
        self._tickets: deque[Ticket] = deque()

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._tickets)

    def add(self, ticket: Ticket) -> None:
        self._tickets.append(ticket)

    def is_head(self, ticket: Ticket) -> bool:
        """Is this the ticket whose next block may leave without waiting for another ticket?"""
        return bool(self._tickets) and self._tickets[0] is ticket

    def abandon_unstarted(self) -> None:
        """Forget the first ticket that no fetcher has begun, and all tickets behind it, which have
        not been begun either.
        """
        _cut_at_unstarted(self._tickets)

    def release(
        self, room: Room, spare_marks: Callable[[], int], leaving: int = 0
    ) -> list[Release]:
        """Take out the blocks that may leave, up to the block that uses up the room. `leaving`: how
        many releases left before and are not delivered. Neither this number nor `spare_marks` is
        used here: the tickets leave one after the other, and the cursor of the first one always
        fits into the metadata.
        """
        releases: list[Release] = []
        _release_queue(self._tickets, releases, room)
        return releases


class StreamOrder:
    """Like `PartitionOrder`, but with an order for each stream of the lane."""

    def __init__(self) -> None:
        self._streams: dict[str, deque[Ticket]] = {}
        self._holds_back = False

    def __len__(self) -> int:
        return sum(map(len, self._streams.values()))

    def __iter__(self) -> Iterator[Ticket]:
        for tickets in self._streams.values():
            yield from tickets

    def add(self, ticket: Ticket) -> None:
        self._streams.setdefault(ticket.queue, deque()).append(ticket)

    def is_head(self, ticket: Ticket) -> bool:
        tickets = self._streams.get(ticket.queue)
        return tickets is not None and tickets[0] is ticket

    def abandon_unstarted(self) -> None:
        for stream, tickets in list(self._streams.items()):
            _cut_at_unstarted(tickets)
            if not tickets:
                del self._streams[stream]

    def take_out(self, stream: str) -> list[Ticket]:
        """Remove and return the tickets of this stream, whichever model answers them. Their records
        are still owed, so from now on one of these records may be the one that holds back the next
        offset.
        """
        self._holds_back = True
        queues = [queue for queue, tickets in self._streams.items() if tickets[0].stream == stream]
        return [ticket for queue in queues for ticket in self._streams.pop(queue)]

    def release(
        self, room: Room, spare_marks: Callable[[], int], leaving: int = 0
    ) -> list[Release]:
        """At most `spare_marks()` of the releases belong to tickets other than the lane's first
        one, because each other ticket needs its own mark in the commit's metadata. Those that are
        `leaving` have no marks yet, but will need them. The stream that used up the room is the
        last one to be asked next time.
        """
        releases: list[Release] = []
        # One call of `spare_marks` is enough: it looks at the whole ledger, which does not change
        # here.
        marks = max(0, spare_marks() - leaving)
        # If a stream was taken out, or other tickets are leaving, the first ticket here may not be
        # the one that moves the next offset, so every ticket needs a mark.
        is_first_elsewhere = self._holds_back or leaving > 0
        heads = () if is_first_elsewhere else (tickets[0] for tickets in self._streams.values())
        first = min(heads, key=place, default=None)
        for stream, tickets in list(self._streams.items()):
            # The first ticket of the lane moves the next offset and so needs no mark of its own.
            is_first = tickets[0] is first
            before = len(releases)
            _release_queue(tickets, releases, room, marks + is_first)
            marks -= max(0, len(releases) - before - is_first)
            if not tickets:
                del self._streams[stream]
            elif not room.is_left:
                # The stream becomes the last one in turn. Otherwise a stream that always has
                # answers would use up the room every time, and the streams behind it would never
                # leave.
                self._streams[stream] = self._streams.pop(stream)
            if not room.is_left:
                break
        return releases


Order = PartitionOrder | StreamOrder


def place(ticket: Ticket) -> tuple[int, int]:
    """The sort key of the input order."""
    return ticket.record.offset, ticket.index


def _cut_at_unstarted(tickets: deque[Ticket]) -> None:
    """Forget the first ticket that no fetcher has begun, and all tickets behind it. Fetchers begin
    tickets in order, so none of those has been begun either.
    """
    for number, ticket in enumerate(tickets):
        if not (ticket.started or ticket.closed):
            while len(tickets) > number:
                tickets.pop()
            return


def _release_queue(
    tickets: deque[Ticket], releases: list[Release], room: Room, most: int | None = None
) -> None:
    """Append the releases that may leave this queue, at most `most` of them."""
    while tickets and room.is_left and most != 0:
        ticket = tickets[0]
        release = _release_from(ticket, room)
        if release.blocks or release.finished:
            releases.append(release)
            most = None if most is None else most - 1
        if not release.finished:
            break
        tickets.popleft()


def _release_from(ticket: Ticket, room: Room) -> Release:
    blocks: list[Block] = []
    while (block := ticket.head) is not None and block.is_answered and room.is_left:
        # While the object is being read, its newest block stays. This block may hold the object's
        # last row, whose record must say that it is the last one.
        if block.next is None and not ticket.closed:
            break
        if not room.take(block):
            break
        blocks.append(block)
        ticket.head = block.next
    finished = ticket.closed and ticket.head is None
    # The record of the last row says that the object ends. An object without rows, or an object
    # that failed, has no such record, so a marker is published instead.
    if finished and (ticket.failure is not None or not blocks):
        room.take_end(ticket)
    return Release(ticket, blocks, finished)
