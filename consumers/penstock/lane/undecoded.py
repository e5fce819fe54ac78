"""The records of a lane that wait to be decoded.

Rule: a record that names many objects is decoded in pieces. Between two of them others have a turn:
heartbeats must be sent meanwhile. Until all are done, the record stays the first.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator

from penstock.core.rows.blocks import Ticket
from penstock.lane.budget import Held, message_cost
from penstock.ports import Record

# Ends with a ticket for each object that the record names, in the record's order. Never raises.
Decoding = Generator[None, None, list[Ticket]]


class Undecoded:
    """`go_on`: a function that is called when the next piece of the first record may be decoded."""

    def __init__(
        self, decode: Callable[[Record], Decoding], held: Held, go_on: Callable[[], object]
    ) -> None:
        self._records: deque[Record] = deque()
        self._decode = decode
        self._held = held
        self._go_on = go_on
        self._decoding: Decoding | None = None
        self._is_paused = False
        # Charged for the pieces, as long as it is not known what the whole costs.
        self._ahead_bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    @property
    def first(self) -> Record:
        return self._records[0]

    @property
    def last(self) -> Record:
        return self._records[-1]

    @property
    def is_begun(self) -> bool:
        """True if the first record was decoded in part."""
        return self._decoding is not None

    def add(self, record: Record) -> None:
        self._records.append(record)

    def pass_first(self) -> None:
        self._records.popleft()

    def clear(self) -> None:
        self._records.clear()
        self.stop()

    def decoded(self) -> list[Ticket] | None:
        """Take out the first record, and return its tickets. None: it is not decoded yet."""
        if self._is_paused:
            return None
        if self._decoding is None:
            self._decoding = self._decode(self.first)
        try:
            next(self._decoding)
        except StopIteration as end:
            self.stop()
            self.pass_first()
            tickets: list[Ticket] = end.value
            return tickets
        if not self._ahead_bytes:
            self._ahead_bytes = message_cost(len(self.first.value or b""), 1)
            self._held.spend_on_messages(self._ahead_bytes)
        self._is_paused = True
        asyncio.get_running_loop().call_soon(self._resume, self._decoding)
        return None

    def _resume(self, decoding: Decoding) -> None:
        if decoding is self._decoding:  # else it was dropped
            self._is_paused = False
            self._go_on()

    def stop(self) -> None:
        """Decode no further."""
        self._decoding, self._is_paused = None, False
        if self._ahead_bytes:
            self._held.refund(0, self._ahead_bytes)
            self._ahead_bytes = 0
