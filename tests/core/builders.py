"""Short constructors for the core's tests."""

from dataclasses import dataclass, field

import numpy as np

from penstock.core.progress.order import Room
from penstock.core.rows.blocks import Block, Ticket
from penstock.core.rows.payload import Matrix
from penstock.ports import Record, Where
from tests.support.partitions import P0


@dataclass(eq=False)
class StubLane:
    """A lane as the core sees it."""

    where: Where = P0
    topic_id: str | None = None
    alive: bool = True
    held_bytes: int = 0
    woken: int = field(default=0)

    def may_overdraw(self, ticket: Ticket) -> bool:
        return False

    def fetched(self, ticket: Ticket) -> None:
        return

    def hold(self, nbytes: int) -> None:
        self.held_bytes += nbytes

    def wake(self) -> None:
        self.woken += 1


def space(rows: int, nbytes: int = 1 << 40, frame_bytes: int = 0) -> Room:
    return Room(rows, nbytes, lambda _: frame_bytes)


def ticket(stream: str = "s", offset: int = 0, lane: StubLane | None = None) -> Ticket:
    return Ticket(lane or StubLane(), Record(P0, offset, None, None, 0), 0, stream, None)


def matrix(rows: int, columns: int = 2, start: int = 0) -> Matrix:
    """Row i holds the number `start` + i in every column."""
    numbers = np.arange(start, start + rows, dtype=np.float32)
    return Matrix(np.ascontiguousarray(np.repeat(numbers[:, None], columns, axis=1)))


def block(of: Ticket, rows: int, columns: int = 2) -> Block:
    """The next `rows` rows of the ticket, added to its chain; row numbers are the values."""
    made = Block(of, of.next_row, rows, matrix(rows, columns, of.next_row))
    of.next_row += rows
    of.add(made)
    return made


def answered(of: Block) -> Block:
    answers = [b"%d" % (of.first_row + index) for index in range(of.rows)]
    of.answer(answers, {}, sum(map(len, answers)))
    return of
