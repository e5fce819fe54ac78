"""Which answers may leave a lane now? Answers leave in input order, either of the whole lane or of
each stream.

Rule: a block leaves when everything before it has left, and when it is certain whether another
block of its object follows. Therefore the newest block of an object stays as long as the object is
being read.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.core.rows.blocks import Block, Ticket


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
