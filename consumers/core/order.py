"""Which answers may leave a lane now, in input order: offset, then object, then row.

Rule: a block leaves when everything before it has left and it is known whether it is the object's
last; so the last block of an object that is still being read stays. Owner: the lane.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from consumers.core.blocks import Block, Ticket


class Release(NamedTuple):
    """Answered blocks of one ticket. `finished`: the ticket's last block (if any) is among them."""

    ticket: Ticket
    blocks: list[Block]
    finished: bool

    @property
    def rows(self) -> int:
        return sum(block.rows for block in self.blocks)


class Order:
    """The tickets of one lane, in the order in which they must be answered."""

    def __init__(self) -> None:
        self._tickets: deque[Ticket] = deque()

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._tickets)

    @property
    def head(self) -> Ticket | None:
        return self._tickets[0] if self._tickets else None

    def add(self, ticket: Ticket) -> None:
        self._tickets.append(ticket)

    def abandon(self) -> None:
        """Forget them all."""
        self._tickets.clear()

    def abandon_unstarted(self) -> list[Ticket]:
        """Forget the tickets nobody works on; they are the newest, as work starts in order."""
        abandoned: list[Ticket] = []
        while self._tickets and not (self._tickets[-1].started or self._tickets[-1].closed):
            abandoned.append(self._tickets.pop())
        return abandoned

    def release(self, max_rows: int) -> list[Release]:
        """Take out what may leave, stopping after the block that reaches `max_rows`."""
        releases: list[Release] = []
        room = max_rows
        while self._tickets and room > 0:
            ticket = self._tickets[0]
            release = self._release_from(ticket, room)
            if release.blocks or release.finished:
                releases.append(release)
                room -= max(1, release.rows)
            if not release.finished:
                break
            self._tickets.popleft()
        return releases

    @staticmethod
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
