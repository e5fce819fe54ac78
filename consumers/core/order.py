"""Which answers may leave a lane now, in input order: of the whole lane, or of each stream.

Rule: a block leaves when everything before it has left and it is known whether it is the object's
last; so the last block of an object that is still being read stays. Owner: the lane.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from consumers.core.blocks import Block, Ticket


class Release(NamedTuple):
    """Answered blocks of one ticket. `finished`: the ticket's last block (if any) is among them."""

    ticket: Ticket
    blocks: list[Block]
    finished: bool

    @property
    def rows(self) -> int:
        return sum(block.rows for block in self.blocks)


class Order(Protocol):
    """The tickets of one lane that are not answered yet. Iterates in no promised order."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Ticket]: ...

    def add(self, ticket: Ticket) -> None:
        """In input order."""
        ...

    def is_head(self, ticket: Ticket) -> bool:
        """Does nothing have to leave before it?"""
        ...

    def abandon(self) -> None:
        """Forget them all."""
        ...

    def abandon_unstarted(self) -> None:
        """Forget the tickets nobody works on, and those that could only leave behind them."""
        ...

    def release(self, max_rows: int, spare_marks: Callable[[], int]) -> list[Release]:
        """Take out what may leave, stopping after the block that reaches `max_rows`. Of tickets
        beyond the first of all, no more than there is room to tell of.
        """
        ...


class PartitionOrder:
    """Offset, then object, then row, over the whole lane."""

    def __init__(self) -> None:
        self._tickets: deque[Ticket] = deque()

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._tickets)

    def add(self, ticket: Ticket) -> None:
        self._tickets.append(ticket)

    def is_head(self, ticket: Ticket) -> bool:
        return bool(self._tickets) and self._tickets[0] is ticket

    def abandon(self) -> None:
        self._tickets.clear()

    def abandon_unstarted(self) -> None:
        _cut_at_unstarted(self._tickets)

    def release(self, max_rows: int, spare_marks: Callable[[], int]) -> list[Release]:
        """Only the first of all ever leaves, so there is always room to tell of it."""
        releases: list[Release] = []
        _release_queue(self._tickets, releases, max_rows)
        return releases


class StreamOrder:
    """Offset, then object, then row, within each stream of the lane."""

    def __init__(self) -> None:
        self._streams: dict[str, deque[Ticket]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._streams.values()))

    def __iter__(self) -> Iterator[Ticket]:
        for tickets in self._streams.values():
            yield from tickets

    def add(self, ticket: Ticket) -> None:
        self._streams.setdefault(ticket.stream, deque()).append(ticket)

    def is_head(self, ticket: Ticket) -> bool:
        tickets = self._streams.get(ticket.stream)
        return tickets is not None and tickets[0] is ticket

    def abandon(self) -> None:
        self._streams.clear()

    def abandon_unstarted(self) -> None:
        for stream, tickets in list(self._streams.items()):
            _cut_at_unstarted(tickets)
            if not tickets:
                del self._streams[stream]

    def release(self, max_rows: int, spare_marks: Callable[[], int]) -> list[Release]:
        """The stream that used up the room is last in turn the next time."""
        releases: list[Release] = []
        room, marks = max_rows, spare_marks()
        first = min((tickets[0] for tickets in self._streams.values()), key=_place, default=None)
        for stream, tickets in list(self._streams.items()):
            is_first = tickets[0] is first
            before = len(releases)
            room = _release_queue(tickets, releases, room, marks + is_first)
            marks -= max(0, len(releases) - before - is_first)
            if not tickets:
                del self._streams[stream]
            elif room <= 0:
                self._streams[stream] = self._streams.pop(stream)
            if room <= 0:
                break
        return releases


def _place(ticket: Ticket) -> tuple[int, int]:
    return ticket.record.offset, ticket.index


def _cut_at_unstarted(tickets: deque[Ticket]) -> None:
    """Work starts in order, so what stands behind the first that nobody has begun can only wait."""
    for number, ticket in enumerate(tickets):
        if not (ticket.started or ticket.closed):
            while len(tickets) > number:
                tickets.pop()
            return


def _release_queue(
    tickets: deque[Ticket], releases: list[Release], room: int, most: int | None = None
) -> int:
    """Append to `releases` (at most so many) what may leave this queue; the room that is left."""
    while tickets and room > 0 and most != 0:
        ticket = tickets[0]
        release = _release_from(ticket, room)
        if release.blocks or release.finished:
            releases.append(release)
            room -= max(1, release.rows)
            most = None if most is None else most - 1
        if not release.finished:
            break
        tickets.popleft()
    return room


def _release_from(ticket: Ticket, room: int) -> Release:
    blocks: list[Block] = []
    while (block := ticket.head) is not None and block.is_answered and room > 0:
        if block.next is None and not ticket.closed:
            break
        blocks.append(block)
        room -= block.rows
        ticket.head = block.next
    finished = ticket.closed and ticket.head is None
    return Release(ticket, blocks, finished)
