"""Turns the bytes of an object into blocks of rows. Each block is added to the object's ticket and
to the window.

Rule: single rows are handled here only if they are bad; no later stage handles single rows. Small
objects of plain text are decoded here, in turns of a few milliseconds. All other objects go to a
decoder: a process that holds no partition and no credential, so that its crash harms nothing else.
Rows that an earlier try has read, or an earlier assignment has delivered, are skipped and never
predicted again. Owner: the reader of objects.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from sys import getsizeof
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.json import encode

from penstock.core.rows.blocks import Block, Ticket
from penstock.core.rows.origin import About, selected
from penstock.core.rows.payload import (
    BLOCK_COST_BYTES,
    ROW_COST_BYTES,
    BytesRows,
    Kept,
    Payload,
)
from penstock.core.rows.rejections import ReasonsBuilder, Rejection
from penstock.decoders.protocol import Decoder, Task
from penstock.errors import Poison
from penstock.failures.unexpected_errors import Guard, Guards
from penstock.formats.reading import Turn, open_inline
from penstock.formats.registry import Claim, claim_of
from penstock.formats.runs import FREE_BYTES, PIECE_ROWS, RowOptions, Run
from penstock.formats.source import Need
from penstock.formats.text.json_layout import JsonOptions
from penstock.messages.prediction import as_text
from penstock.messages.times import EARLIEST_MS, LATEST_MS, epoch_ms
from penstock.stages.microbatch import Microbatch

# Returns when the next step of reading may be taken.
NextStep = Callable[[], Awaitable[None]]

_BAD_ROW = Rejection("bad_row", "", "expand")
# A sign of a name takes so many bytes in JSON, at most: `\u0001`.
_SIGN_BYTES = 6


class Expand:
    """Begins a reading for each try. `begin_inline` begins one in this process, and `begin` one by
    a decoder.
    """

    def __init__(
        self,
        options: RowOptions,
        microbatch: Microbatch,
        guards: Guards,
        inline_bytes: int,
        *,
        is_told_about: bool = False,
    ) -> None:
        """`is_told_about`: True if the model is told of which object its rows are."""
        self._options = options
        self._is_told_about = is_told_about
        # The rows of a message are an array already.
        own = tuple(part for part in options.own if not isinstance(part, JsonOptions))
        self._inline_options = replace(options, own=own)
        self.rules = options.rules  # the settings on which the row numbers of an object depend
        # If decoding an object raises an unforeseen exception, the object is answered by a decoding
        # error.
        self._guard = guards.at("decode", stage="expand")
        self._microbatch = microbatch
        self.inline_bytes = inline_bytes

    def claim(self, ticket: Ticket) -> tuple[Claim, bool]:
        """What the object is, as far as its reference and its name tell; and True if it is read as
        a stream, from its first byte on, False if the parser asks for ranges of its bytes.
        """
        reference = ticket.reference
        if reference is None:
            return claim_of("", "json", "none"), True
        with self._guard:
            format = reference.format or self._options.format
            claim = claim_of(reference.key, format, reference.compression)
            return claim, claim.ranged(self._options) is None

    def needs_decoder(self, ticket: Ticket, claim: Claim) -> bool:
        """True if its claim, or the size that its reference says, tells that it needs a decoder."""
        reference = ticket.reference
        if reference is None:
            return False
        with self._guard:
            is_large = (reference.size or 0) > self.inline_bytes
            return is_large or claim.is_for_decoders(self._options)

    def check_nothing(self, claim: Claim) -> None:
        """Raises `Poison` if an object of no bytes cannot be what its name says."""
        with self._guard:
            claim.check_nothing()

    def begin_inline(self, ticket: Ticket, claim: Claim, data: bytes) -> "InlineReading | None":
        """Begin to read a whole object in this process. None: the object needs a decoder."""
        most_bytes = self.inline_bytes if ticket.reference is not None else None
        try:
            with self._guard:
                parser = open_inline(self._options_of(ticket), data, most_bytes, claim)
        except MemoryError:  # a decoder has memory of its own
            return None
        if parser is None:
            return None
        return InlineReading(parser, self._rows(ticket, len(data)), self._guard)

    def begin(
        self, ticket: Ticket, claim: Claim, size: int, whole: bytes | None
    ) -> "DecoderReading":
        """`whole`: all bytes of the object, if they are at hand."""
        task = Task(
            self._options_of(ticket),
            claim,
            size=size,
            next_row=ticket.next_row,
            rows=ticket.reference.rows if ticket.reference is not None else None,
            whole=whole,
        )
        return DecoderReading(task, self._rows(ticket, size), self._guard)

    def _rows(self, ticket: Ticket, size: int) -> "_Rows":
        repeated = Repeated(ticket, size, self._options.expansion_ratio)
        return _Rows(ticket, self._microbatch, repeated, is_told_about=self._is_told_about)

    def _options_of(self, ticket: Ticket) -> RowOptions:
        return self._options if ticket.reference is not None else self._inline_options


class DecoderReading:
    """One try at one object, by a decoder."""

    def __init__(self, task: Task, rows: "_Rows", guard: Guard) -> None:
        self.task = task
        self._rows = rows
        self._guard = guard

    async def read(
        self, decoder: Decoder, needed: Callable[[Need], Awaitable[bytes]], next_step: NextStep
    ) -> None:
        """Read to the end, or until the lane is closed. `needed`: gets the bytes for which the
        decoder asks. Raises `Died`.
        """
        answer: Task | bytes = self.task
        while self._rows.alive:
            with self._guard:
                message = await decoder.turn(answer)
            if message is None:
                return
            if isinstance(message, list):
                # Thousands of runs may have a row each.
                for start in range(0, len(message), PIECE_ROWS):
                    if start:
                        await asyncio.sleep(0)
                    self._rows.emit(message[start : start + PIECE_ROWS])
                answer = b""
            else:
                answer = await needed(message)
            await next_step()


class InlineReading:
    """One try at a whole object of plain text, in this process."""

    def __init__(self, turns: Iterator[Turn], rows: "_Rows", guard: Guard) -> None:
        self._turns = turns
        self._rows = rows
        self._guard = guard

    async def read(self, next_step: NextStep) -> None:
        """Read in turns; a small object takes one."""
        # If the lane is closed, the remaining rows are not needed.
        while self._rows.alive:
            await next_step()
            with self._guard:
                turn = next(self._turns)
            self._rows.emit(turn.runs)
            if turn.is_last:
                return
            await asyncio.sleep(0)


class _Bad(NamedTuple):
    """Consecutive bad rows that are not a block yet."""

    first_row: int
    member: str | None
    reasons: ReasonsBuilder


class Repeated:
    """Counts what the records of one object repeat: its names, the names of its members, the
    sender's attributes, and why rows are bad. A message of 65 kB with an object of 1 kB could
    otherwise make 30 GB of records.
    """

    def __init__(self, ticket: Ticket, size: int, ratio: int) -> None:
        self._ticket = ticket
        self._size, self._ratio = size, ratio
        # So many rows may have a record in any case: a sign of a name takes 6 bytes at most. Only
        # behind these, and for members and errors, the names are measured.
        key = "" if ticket.reference is None else ticket.reference.key
        most_bytes = _SIGN_BYTES * (len(ticket.stream) + len(key) + 1) + _attributes_bytes(ticket)
        self._passed = 0
        self._free_rows = FREE_BYTES // most_bytes
        self._frame_bytes = -1  # not measured yet
        self._nbytes = self._most_bytes = self._row_bytes = 0
        self._member: str | None = None
        self._member_bytes = 0
        self._error: str | None = None

    def add(self, rows: int, member: str | None, error: str | None) -> int:
        """Count the records of these rows. Returns how many of the rows may have a record: all of
        them if the object's size is not known.
        """
        if self._frame_bytes < 0:
            if member is None and error is None and self._passed + rows <= self._free_rows:
                self._passed += rows
                return rows
            self._measure()
        if member != self._member or error != self._error:
            if member != self._member:
                self._member = member
                self._member_bytes = 0 if member is None else len(as_text(member))
            self._error = error
            error_bytes = 0 if error is None else len(as_text(error))
            self._row_bytes = _excess(self._frame_bytes + self._member_bytes + error_bytes)
        if self._size >= 0 and self._row_bytes:
            rows = min(rows, (self._most_bytes - self._nbytes) // self._row_bytes)
            self._nbytes += rows * self._row_bytes
        return rows

    def _measure(self) -> None:
        ticket = self._ticket
        self._frame_bytes = len(as_text(ticket.stream)) + _attributes_bytes(ticket)
        if ticket.reference is not None:
            self._frame_bytes += len(as_text(ticket.reference.key))
        self._most_bytes = max(FREE_BYTES, (self._size + self._frame_bytes) * self._ratio)
        self._row_bytes = _excess(self._frame_bytes)
        self._nbytes = self._passed * self._row_bytes

    def error(self) -> Poison:
        refusal = Poison(
            "too_large",
            f"each record repeats {self._row_bytes + ROW_COST_BYTES} bytes of names, "
            f"attributes and reasons, which makes more than {self._most_bytes} bytes in sum: above "
            f"{self._ratio} times the {self._size} bytes of the object (limits.expansion_ratio). "
            "Give the object and its members shorter names, or send fewer attributes",
        )
        refusal.stage = "expand"
        return refusal


def _attributes_bytes(ticket: Ticket) -> int:
    origin = ticket.reference or ticket.inline
    return 0 if origin is None or origin.attributes is None else len(encode(origin.attributes))


def _excess(repeated_bytes: int) -> int:
    """A row counts as `ROW_COST_BYTES` already where the rows of an object are limited."""
    return max(0, repeated_bytes - ROW_COST_BYTES)


class _Rows:
    """Turns runs into blocks. Rows below `ticket.next_row` are skipped."""

    def __init__(
        self, ticket: Ticket, microbatch: Microbatch, repeated: Repeated, *, is_told_about: bool
    ) -> None:
        self._is_told_about = is_told_about
        self._ticket = ticket
        self._microbatch = microbatch
        self._repeated = repeated
        self._row = 0
        self._bad: _Bad | None = None

    @property
    def alive(self) -> bool:
        return self._ticket.owner.alive

    def emit(self, runs: Sequence[Run]) -> None:
        ticket = self._ticket
        if not ticket.owner.alive:
            return
        wanted = ticket.reference.rows if ticket.reference else None
        for run in runs:
            start, self._row = self._row, self._row + run.rows
            for first, stop in (
                ((start, self._row),) if wanted is None else selected(wanted, start, self._row)
            ):
                # Rows are counted in every try, so that each try ends the object at the same row.
                end = first + self._repeated.add(stop - first, run.member, run.error)
                # Rows below `next_row` were read by an earlier try, or delivered by an earlier
                # assignment.
                fresh = max(first, ticket.next_row)
                if fresh < end and run.payload is None:
                    self._add_bad(run, fresh, end - fresh)
                elif fresh < end and run.payload is not None:
                    self._add_good(run, run.payload, start, fresh, end)
                if end < stop:
                    ticket.next_row = max(ticket.next_row, end)
                    self._end()
                    raise self._repeated.error()
            ticket.next_row = max(ticket.next_row, self._row)
        self._end()

    def _end(self) -> None:
        if self._bad is not None:
            self._end_bad()
        if self._ticket.has_answers:
            self._ticket.owner.wake()

    def _add_good(self, run: Run, payload: Payload, start: int, first: int, stop: int) -> None:
        if self._bad is not None:
            self._end_bad()
        rows = stop - first
        if rows < run.rows:
            payload = payload.cut(first - start, stop - start).owned()
        if self._is_told_about and isinstance(payload, BytesRows):
            origin = self._ticket.reference or self._ticket.inline
            about = About(self._ticket.stream, run.member, origin)
            payload = replace(payload, about=about)
        block = Block(self._ticket, first, rows, payload, run.member)
        nbytes = BLOCK_COST_BYTES + payload.nbytes + rows * ROW_COST_BYTES
        block.charge(nbytes + (getsizeof(run.member) if run.member is not None else 0))
        kept = run.kept if run.since_ms is None else self._timed(run.since_ms)
        if kept is not None:
            whole = rows == run.rows
            block.kept = kept if whole else kept.cut(first - start, stop - start)
            block.charge(block.kept.nbytes)
        self._ticket.add(block)
        self._microbatch.add(block)

    def _timed(self, since_ms: npt.NDArray[np.int64]) -> Kept | None:
        """The times of the rows. None: the reference does not say when the object began."""
        origin = self._ticket.reference or self._ticket.inline
        begin_ms = epoch_ms(origin.event_time) if origin is not None else None
        if begin_ms is None:
            return None
        # What a film says may be any number, and a sum that is too large would be a small one.
        times = since_ms.clip(EARLIEST_MS, LATEST_MS) + begin_ms
        return Kept(None, times.clip(EARLIEST_MS, LATEST_MS))

    def _add_bad(self, run: Run, first: int, rows: int) -> None:
        """Bad rows next to each other become one block, even if their reasons differ."""
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
        block.charge(BLOCK_COST_BYTES + reasons.nbytes + getsizeof(member))
        self._ticket.add(block)
