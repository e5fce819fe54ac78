"""Bytes become blocks of rows, on their ticket's chain and in the window.

Rule: this is the last place that may look at rows one by one, and only at bad ones. Inflating
leaves the event loop; parsing text holds the interpreter wherever it runs, so it stays and pauses
between steps of less than a millisecond. Rows that a former try or assignment already has are
decoded and skipped, never predicted again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from consumers.core.blocks import BLOCK_COST_BYTES, ROW_COST_BYTES, Block, Rejection, Ticket
from consumers.core.payload import Payload
from consumers.core.reasons import ReasonsBuilder
from consumers.errors import Poison
from consumers.formats.base import Decoder, RowOptions, Run
from consumers.formats.registry import open_decoder
from consumers.stages.microbatch import Microbatch
from consumers.threads import in_thread

# Below this a thread costs more (about 0.1 ms) than to inflate and decode.
OFFLOAD_BYTES = 8 * 1024

_BAD_ROW = Rejection("bad_row", "", "expand")

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


class _Bad(NamedTuple):
    """Bad rows next to each other, so far."""

    first_row: int
    member: str | None
    reasons: ReasonsBuilder


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
        self._bad: _Bad | None = None

    async def feed(self, data: bytes, room: Room) -> None:
        """Decode in steps; each waits for `room`, as what a step becomes is only known after it."""
        with _in_this_stage():
            start = 0
            while start < len(data):
                # Asked for every time: sniffing may find that the bytes expand.
                step_bytes = self._decoder.step_bytes
                step = data[start : start + step_bytes] if len(data) > step_bytes else data
                await room()
                in_thread = self._decoder.expands and len(step) > OFFLOAD_BYTES
                await self._feed(step, in_thread=in_thread)
                while self._decoder.pending and self._ticket.owner.alive:
                    await asyncio.sleep(0)
                    await room()
                    await self._feed(b"", in_thread=in_thread)
                start += len(step)
                if start < len(data):
                    await asyncio.sleep(0)

    async def _feed(self, step: bytes, *, in_thread: bool) -> None:
        if in_thread:
            self._emit(await self._offload(self._decoder.feed, step))
        else:
            self._emit(self._decoder.feed(step))

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
                    if run.payload is None:
                        self._add_bad(run, first, stop - first)
                    else:
                        self._add_good(run, run.payload, start, first, stop)
                ticket.next_row = self._row
        self._end_bad()
        if runs:
            ticket.owner.wake()

    def _add_good(self, run: Run, payload: Payload, start: int, first: int, stop: int) -> None:
        self._end_bad()
        rows = stop - first
        if rows < run.rows:
            payload = payload.cut(first - start, stop - start).owned()
        block = Block(self._ticket, first, rows, payload, run.member)
        block.charge(BLOCK_COST_BYTES + payload.nbytes + rows * ROW_COST_BYTES)
        self._ticket.add(block)
        self._microbatch.add(block)

    def _add_bad(self, run: Run, first: int, rows: int) -> None:
        """Neighbours become one block, whatever the reason of each."""
        bad = self._bad
        if bad is None or (bad.first_row + bad.reasons.rows, bad.member) != (first, run.member):
            self._end_bad()
            bad = self._bad = _Bad(first, run.member, ReasonsBuilder())
        bad.reasons.add(rows, run.error or "the row cannot be read")

    def _end_bad(self) -> None:
        if self._bad is None:
            return
        first, member, builder = self._bad
        self._bad = None
        reasons = builder.build()
        block = Block(self._ticket, first, reasons.rows, None, member, _BAD_ROW, reasons)
        block.charge(BLOCK_COST_BYTES + reasons.nbytes)
        self._ticket.add(block)
