"""Copies of batches, which wait for a shadow model.

Rule: rows and bytes of all copies are bounded, also of those being asked or compared; a batch
without room is not copied. A copy keeps no part of the live batch in memory.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.core.rows.blocks import Block
from penstock.core.rows.payload import Payload
from penstock.messages.prediction import ObjectId, Source, encodable


class CopiedRows(NamedTuple):
    """Rows of one object in the order of the batch, with the fields of their records."""

    stream: str
    source: Source
    object_index: int
    object: ObjectId | None
    member: str | None
    first_row: int
    rows: int

    def id_of(self, row: int) -> str:
        """The row's id, as in the record of its answer."""
        topic, partition, offset = self.source.topic, self.source.partition, self.source.offset
        return f"{topic}/{partition}/{offset}/{self.object_index}/{row}"


def run_of(block: Block) -> CopiedRows:
    ticket, owner = block.ticket, block.ticket.owner
    named, about = ticket.reference, None
    if named is not None:
        bucket, key = encodable(named.bucket), encodable(named.key)
        about = ObjectId(bucket, key, ticket.version, named.store)
    return CopiedRows(
        encodable(ticket.stream),
        Source(*owner.where, ticket.record.offset, owner.topic_id),
        ticket.object_index,
        about,
        None if block.member is None else encodable(block.member),
        block.first_row,
        block.rows,
    )


@dataclass(frozen=True, slots=True, eq=False)
class ShadowCopy:
    """A batch, the live model's answers to it, and the time that these answers took."""

    payloads: Sequence[Payload]
    runs: Sequence[CopiedRows]
    answers: Sequence[bytes]
    errors: Mapping[int, str]
    took_s: float
    rows: int
    nbytes: int


class Copies:
    """If `has_room` is true for a copy, `put` it. Later `take` it, and call `done` when it was
    compared and dropped.
    """

    def __init__(self, most_rows: int, most_bytes: int) -> None:
        self._most_rows = most_rows
        self._most_bytes = most_bytes
        self._waiting: deque[ShadowCopy] = deque()
        self.rows = 0
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def has_room(self, rows: int, nbytes: int) -> bool:
        return self.rows + rows <= self._most_rows and self.nbytes + nbytes <= self._most_bytes

    def put(self, copy: ShadowCopy) -> None:
        self.rows += copy.rows
        self.nbytes += copy.nbytes
        self._waiting.append(copy)

    def take(self) -> ShadowCopy | None:
        return self._waiting.popleft() if self._waiting else None

    def done(self, copy: ShadowCopy) -> None:
        self.rows -= copy.rows
        self.nbytes -= copy.nbytes


def requests(payloads: Sequence[Payload], most_rows: int) -> Iterator[list[Payload]]:
    """Divide the rows in order into requests of at most `most_rows` rows."""
    request: list[Payload] = []
    room = most_rows
    for payload in payloads:
        start = 0
        while start < payload.rows:
            stop = min(payload.rows, start + room)
            whole = start == 0 and stop == payload.rows
            request.append(payload if whole else payload.cut(start, stop))
            room -= stop - start
            start = stop
            if not room:
                yield request
                request, room = [], most_rows
    if request:
        yield request
