"""Bytes become blocks of rows, on their ticket's chain and in the window.

Rule: this is the last place that may look at rows one by one, and only at bad ones. Inflating
leaves the event loop; parsing text holds the interpreter wherever it runs, so it stays and pauses
between steps of less than a millisecond. Rows that a former try or assignment already has are
decoded and skipped, never predicted again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from consumers.core.blocks import Block, Rejection, Ticket
from consumers.core.costs import BLOCK_COST_BYTES, ROW_COST_BYTES
from consumers.core.kept import Kept
from consumers.core.payload import Payload
from consumers.core.reasons import ReasonsBuilder
from consumers.formats.base import Decoder, RowOptions, Run
from consumers.formats.format import Format
from consumers.formats.ranged import Need, RangedDecoder
from consumers.formats.registry import open_decoder, ranged_format
from consumers.services.unforeseen import Guard, Guards
from consumers.stages.microbatch import Microbatch
from consumers.threads import in_thread
from schemas.reference import LATEST_MS, epoch_ms

# Below this a thread costs more (about 0.1 ms) than to inflate and decode.
OFFLOAD_BYTES = 8 * 1024

_BAD_ROW = Rejection("bad_row", "", "expand")

T = TypeVar("T")
Room = Callable[[], Awaitable[None]]
# Bytes `start` to `stop` of the object that is read.
Fetch = Callable[[int, int], Awaitable[bytes]]


class Offload(Protocol):
    """Calls a decoder where it may take its time."""

    async def __call__(self, decode: Callable[[bytes], T], data: bytes) -> T: ...


async def decode_in_thread(decode: Callable[[bytes], T], data: bytes) -> T:
    return await in_thread(lambda: decode(data))


class Expand:
    """`begin` a reading per try, or `begin_ranged` where the object's name or first bytes tell that
    it is read here and there.
    """

    def __init__(
        self,
        options: RowOptions,
        microbatch: Microbatch,
        guards: Guards,
        offload: Offload = decode_in_thread,
    ) -> None:
        self._options = options
        # What fails at decoding says so, whether anybody foresaw it or not.
        self._guard = guards.at("decode", stage="expand")
        self._microbatch = microbatch
        self._offload = offload

    @property
    def rules(self) -> str:
        """What the numbers of an object's rows depend on."""
        return self._options.rules

    def ranged(self, ticket: Ticket) -> Format | None:
        """The format, if the name tells that the object is read here and there."""
        reference = ticket.reference
        if reference is None:
            return None
        with self._guard:
            return ranged_format(
                self._options,
                key=reference.key,
                format=reference.format or self._options.format,
                compression=reference.compression,
            )

    def begin(self, ticket: Ticket) -> "Reading":
        """May raise `WantsRanges` while it is fed."""
        reference = ticket.reference
        with self._guard:
            decoder = open_decoder(
                self._options,
                key=reference.key if reference else "",
                format="json" if reference is None else reference.format or self._options.format,
                compression=reference.compression if reference else "none",
            )
        rows = _Rows(ticket, self._microbatch)
        return Reading(decoder, rows, self._guard, self._offload, is_slow=self._options.is_slow)

    def begin_ranged(
        self, ticket: Ticket, format: Format, size: int, tail: bytes
    ) -> "RangedReading":
        """`tail`: the object's last bytes."""
        assert format.ranged is not None
        decoder = RangedDecoder(format.ranged, self._options, size, tail, ticket.wants_any)
        rows = _Rows(ticket, self._microbatch)
        return RangedReading(decoder, rows, self._guard, self._offload)


class RangedReading:
    """One try at one object of which only some parts are read."""

    def __init__(
        self, decoder: RangedDecoder, rows: "_Rows", guard: Guard, offload: Offload
    ) -> None:
        self._decoder = decoder
        self._rows = rows
        self._guard = guard
        self._offload = offload

    async def read(self, fetch: Fetch, room: Room) -> None:
        """To the end, or until the lane is over. Each step waits for `room`."""
        try:
            data = b""
            while self._rows.alive:
                await room()
                with self._guard:
                    found = await self._offload(self._decoder.advance, data)
                    if isinstance(found, list):
                        _checked(found)
                if found is None:
                    return
                data = b""
                if isinstance(found, Need):
                    data = await fetch(found.start, found.stop)
                else:
                    self._rows.emit(found)
        finally:
            self._decoder.abandon()


class Reading:
    """One try at one object: feed it chunks, then close it."""

    def __init__(
        self, decoder: Decoder, rows: "_Rows", guard: Guard, offload: Offload, *, is_slow: bool
    ) -> None:
        self._decoder = decoder
        self._rows = rows
        self._guard = guard
        self._offload = offload
        self._is_slow = is_slow

    async def feed(self, data: bytes, room: Room) -> None:
        """Decode in steps; each waits for `room`, as what a step becomes is only known after it."""
        start = 0
        while start < len(data):
            # Asked for every time: sniffing may find that the bytes expand.
            step_bytes = self._decoder.step_bytes
            step = data[start : start + step_bytes] if len(data) > step_bytes else data
            await room()
            in_thread = self._decoder.expands and (self._is_slow or len(step) > OFFLOAD_BYTES)
            await self._feed(step, in_thread=in_thread)
            await self._rest(room, in_thread=in_thread)
            start += len(step)
            if start < len(data):
                await asyncio.sleep(0)

    async def whole(self, data: bytes, room: Room) -> None:
        """All of an object, in the place of `feed` and `close`: of a small one in a single step."""
        if self._is_slow or len(data) > OFFLOAD_BYTES:
            await self.feed(data, room)
        else:
            await room()
            with self._guard:
                runs = _checked(self._decoder.whole(data))
            self._rows.emit(runs)
            await self._rest(room, in_thread=False)
        # Of a lane that is over nobody wants the rest, and to decode it may take seconds.
        if self._rows.alive:
            await self.close()

    async def _rest(self, room: Room, *, in_thread: bool) -> None:
        """What the last step had too much of."""
        while self._decoder.pending and self._rows.alive:
            await asyncio.sleep(0)
            await room()
            await self._feed(b"", in_thread=in_thread)

    async def _feed(self, step: bytes, *, in_thread: bool) -> None:
        with self._guard:
            feed = self._decoder.feed
            runs = _checked(await self._offload(feed, step) if in_thread else feed(step))
        self._rows.emit(runs)

    async def close(self) -> None:
        while runs := await self._close():
            self._rows.emit(runs)

    async def _close(self) -> list[Run]:
        with self._guard:
            if self._is_slow:
                return _checked(await self._offload(lambda _: self._decoder.close(), b""))
            return _checked(self._decoder.close())


def _checked(runs: list[Run]) -> list[Run]:
    """What a decoder gave, as far as the window goes by it: rows that it cannot count or compare
    would stop all that wait there.
    """
    for run in runs:
        payload = run.payload
        if payload is not None and (payload.rows != run.rows or not payload.shape[0]):
            raise ValueError(f"{payload.rows} rows of {payload.shape} came for {run.rows}")
    return runs


class _Bad(NamedTuple):
    """Bad rows next to each other, so far."""

    first_row: int
    member: str | None
    reasons: ReasonsBuilder


class _Rows:
    """Runs become blocks. Rows below `ticket.next_row` are skipped."""

    def __init__(self, ticket: Ticket, microbatch: Microbatch) -> None:
        self._ticket = ticket
        self._microbatch = microbatch
        self._row = 0
        self._bad: _Bad | None = None

    @property
    def alive(self) -> bool:
        return self._ticket.owner.alive

    def emit(self, runs: Sequence[Run]) -> None:
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
        if ticket.has_answers:
            ticket.owner.wake()

    def _add_good(self, run: Run, payload: Payload, start: int, first: int, stop: int) -> None:
        self._end_bad()
        rows = stop - first
        if rows < run.rows:
            payload = payload.cut(first - start, stop - start).owned()
        block = Block(self._ticket, first, rows, payload, run.member)
        block.charge(BLOCK_COST_BYTES + payload.nbytes + rows * ROW_COST_BYTES)
        kept = run.kept if run.since_ms is None else self._timed(run.since_ms)
        if kept is not None:
            whole = rows == run.rows
            block.kept = kept if whole else kept.cut(first - start, stop - start)
            block.charge(block.kept.nbytes)
        self._ticket.add(block)
        self._microbatch.add(block)

    def _timed(self, since_ms: npt.NDArray[np.int64]) -> Kept | None:
        """None: the reference does not say when the object began."""
        origin = self._ticket.reference or self._ticket.inline
        begin_ms = epoch_ms(origin.event_time) if origin is not None else None
        return None if begin_ms is None else Kept(None, (since_ms + begin_ms).clip(max=LATEST_MS))

    def _add_bad(self, run: Run, first: int, rows: int) -> None:
        """Neighbours become one block, whatever the reason of each."""
        bad = self._bad
        if bad is None or (bad.first_row + bad.reasons.rows, bad.member) != (first, run.member):
            self._end_bad()
            bad = self._bad = _Bad(first, run.member, ReasonsBuilder())
        assert run.error is not None, "rows that are wanted were not read"
        bad.reasons.add(rows, run.error)

    def _end_bad(self) -> None:
        if self._bad is None:
            return
        first, member, builder = self._bad
        self._bad = None
        reasons = builder.build()
        block = Block(self._ticket, first, reasons.rows, None, member, _BAD_ROW, reasons)
        block.charge(BLOCK_COST_BYTES + reasons.nbytes)
        self._ticket.add(block)
