"""Bytes become blocks of rows, on their ticket's chain and in the window.

Rule: this is the last place that may look at rows one by one, and only at bad ones. Inflating
leaves the event loop; parsing text holds the interpreter wherever it runs, so it stays and pauses
between steps of less than a millisecond. Rows that a former try or assignment already has are
decoded and skipped, never predicted again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

from consumers.core.blocks import Block, Rejection, Ticket
from consumers.errors import Poison
from consumers.formats.base import Decoder, RowOptions, Run
from consumers.formats.registry import open_decoder
from consumers.stages.microbatch import Microbatch
from consumers.threads import in_thread

# Below this a thread costs more (about 0.1 ms) than to inflate and decode.
OFFLOAD_BYTES = 8 * 1024

# What a row costs besides its payload until it is delivered: its answer and its share of a record.
ROW_COST_BYTES = 128

Decode = Callable[[bytes], list[Run]]
Room = Callable[[], Awaitable[None]]
Offload = Callable[[Decode, bytes], Awaitable[list[Run]]]


async def decode_in_thread(decode: Decode, data: bytes) -> list[Run]:
    return await in_thread(lambda: decode(data))


@contextmanager
def _in_this_stage() -> Iterator[None]:
    try:
        yield
    except Poison as error:
        error.stage = "expand"
        raise


class Expand:
    """`begin` a reading per try."""

    def __init__(
        self, options: RowOptions, microbatch: Microbatch, offload: Offload = decode_in_thread
    ) -> None:
        self._options = options
        self._microbatch = microbatch
        self._offload = offload

    def begin(self, ticket: Ticket) -> "Reading":
        reference = ticket.reference
        ticket.row_rules = self._options.rules
        with _in_this_stage():
            decoder = open_decoder(
                self._options,
                key=reference.key if reference else "",
                format="json" if reference is None else reference.format or self._options.format,
                compression=reference.compression if reference else "none",
            )
        return Reading(ticket, decoder, self._microbatch, self._offload)


class Reading:
    """One try at one object: feed it chunks, then close it. Rows below `ticket.next_row` are
    skipped.
    """

    def __init__(
        self, ticket: Ticket, decoder: Decoder, microbatch: Microbatch, offload: Offload
    ) -> None:
        self._ticket = ticket
        self._decoder = decoder
        self._microbatch = microbatch
        self._offload = offload
        self._row = 0

    async def feed(self, data: bytes, room: Room) -> None:
        """Decode in steps; each waits for `room`, as what a step becomes is only known after it."""
        with _in_this_stage():
            start = 0
            while start < len(data):
                # Asked for every time: sniffing may find that the bytes expand.
                step_bytes = self._decoder.step_bytes
                step = data[start : start + step_bytes] if len(data) > step_bytes else data
                await room()
                if self._decoder.expands and len(step) > OFFLOAD_BYTES:
                    self._emit(await self._offload(self._decoder.feed, step))
                else:
                    self._emit(self._decoder.feed(step))
                start += len(step)
                if start < len(data):
                    await asyncio.sleep(0)

    async def close(self) -> None:
        with _in_this_stage():
            while runs := self._decoder.close():
                self._emit(runs)

    def _emit(self, runs: Sequence[Run]) -> None:
        ticket = self._ticket
        if not ticket.owner.alive:
            return
        for run in runs:
            start, self._row = self._row, self._row + run.rows
            fresh = max(start, ticket.next_row)
            if fresh < self._row:
                for first, stop in ticket.wants(fresh, self._row):
                    self._add(run, start, first, stop)
                ticket.next_row = self._row
        if runs:
            ticket.owner.wake()

    def _add(self, run: Run, start: int, first: int, stop: int) -> None:
        rows = stop - first
        if run.payload is None:
            rejection = Rejection("bad_row", run.error or "the row cannot be read", "expand")
            self._ticket.add(Block(self._ticket, first, rows, None, run.member, rejection))
            return
        payload = run.payload if rows == run.rows else run.payload.cut(first - start, stop - start)
        block = Block(self._ticket, first, rows, payload, run.member)
        block.cost_bytes = payload.nbytes + rows * ROW_COST_BYTES
        self._ticket.owner.hold(block.cost_bytes)
        self._ticket.add(block)
        self._microbatch.add(block)
