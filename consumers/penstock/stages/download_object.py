"""Reads one object: one try, from its first byte to its last.

Rule: an object is pinned to the version it began with; a try after one that broke reads the same
version and skips the rows that it has already. A chunk is read only when the byte budget has room,
so a spent budget stops the transfer itself. An object that needs a decoder leaves its fetcher to
others, and holds no bytes and no connection while it waits for a seat. Owner: the fetchers.
"""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

from penstock.calls.outage import Outage
from penstock.core.health.download_retry import Tries
from penstock.core.progress.cursor import START
from penstock.core.routing.places import DEFAULT
from penstock.core.rows.blocks import Ticket
from penstock.core.rows.log_keys import of_ticket
from penstock.decoders.protocol import Died
from penstock.errors import LockedOut, Poison, Transient, Unreachable
from penstock.formats.base.ranged import TAIL_BYTES
from penstock.lane.dedupe import Dedupe
from penstock.ports import Body, Clock, Location, Objects, Part
from penstock.stages.expand import Expand
from penstock.stages.reading_permits import Admission, GaveWay, Permit
from penstock.stages.result_objects import ResultPlan
from penstock.telemetry.worker import Telemetry

log = logging.getLogger(__name__)

# A key that need not exist: any answer about it shows that the store is there.
PROBE_KEY = "penstock-probe"


@dataclass(frozen=True, slots=True)
class ObjectTerms:
    """How objects are fetched and read. `stores`: how many fetchers each model has, by store."""

    fetchers: int
    object_bytes: int | None
    inline_bytes: int
    pin: bool
    wait_for_object_s: float
    more_fetchers: Mapping[str, int] = field(default_factory=dict)  # of stores beside `[objects]`

    @property
    def stores(self) -> Mapping[str, int]:
        return {DEFAULT: self.fetchers, **self.more_fetchers}


class Fetcher:
    """One of a store's fetchers, until it leaves: `begin_another` then takes its place. It reads
    its object to the end, as every try of it waits for a seat from then on.
    """

    def __init__(self, begin_another: Callable[[], object]) -> None:
        self.has_left = False
        self._begin_another = begin_another

    def leave(self) -> None:
        if not self.has_left:
            self.has_left = True
            self._begin_another()


class ObjectReader:
    """`read` is one try. It notes in `tries` whether the store began to answer."""

    def __init__(
        self,
        objects: Objects,
        expand: Expand,
        admission: Admission,
        clock: Clock,
        telemetry: Telemetry,
        outages: Mapping[str, Outage],
        dedupe: Dedupe,
        terms: ObjectTerms,
        results: ResultPlan | None,
    ) -> None:
        # A result object needs all rows, so its object is read from the first row on, also when
        # some rows are delivered.
        self._from_first_row = results is not None
        # A part of what binds a cursor: rows delivered within a result object only are not on the
        # output topic, so the cursor must not hold after records of rows are switched on.
        self._row_rules = "" if results is None or results.of_rows else "/objects"
        self.objects = objects
        self._expand = expand
        self._admission = admission
        self._clock = clock
        self._telemetry = telemetry
        self._outages = outages
        self._dedupe = dedupe
        self._pin = terms.pin
        self._object_bytes = terms.object_bytes

    async def read(self, ticket: Ticket, tries: Tries, fetcher: Fetcher) -> None:
        """Returns at the object's end, or when the lane is over. The fetcher leaves when other
        objects may have its place. Raises `Poison`, `Transient`.
        """
        ticket.row_rules = self._expand.rules + self._row_rules
        is_new = False
        is_streamed = self._expand.is_streamed(ticket)
        needs_decoder = not is_streamed or self._expand.is_large(ticket) or fetcher.has_left
        while True:
            permit = self._admission.permit(ticket, tries)
            await permit.next_step()
            supply = _Supply(self, ticket, tries, is_streamed=is_streamed)
            try:
                if not needs_decoder:
                    if await self._read_here(ticket, supply, permit):
                        return
                    needs_decoder = True
                    if not self._admission.has_seat(ticket):
                        continue
                fetcher.leave()
                async with self._admission.seat(ticket, tries):
                    await self._read_by_decoder(ticket, tries, supply, permit, new=is_new)
                return
            except GaveWay:
                continue
            except Died as died:
                if died.was_alone:
                    died.poison.stage = "expand"
                    raise died.poison from died
                # An earlier object may have damaged the decoder: one more time, by a fresh one.
                is_new = True
            finally:
                await supply.aclose()

    async def _read_here(self, ticket: Ticket, supply: "_Supply", permit: Permit) -> bool:
        """Without a decoder. False: the object needs one."""
        if not await self._begin(ticket, supply):
            return True
        whole = await supply.whole(self._expand.inline_bytes)
        reading = None if whole is None else self._expand.begin_inline(ticket, whole)
        if reading is None:
            return False
        await reading.read(permit)
        self._was_read(ticket, supply)
        return True

    async def _read_by_decoder(
        self, ticket: Ticket, tries: Tries, supply: "_Supply", permit: Permit, *, new: bool
    ) -> None:
        is_open = supply.size >= 0
        if not is_open and not (ticket.owner.alive and await self._begin(ticket, supply)):
            return
        async with self._admission.decoder(ticket, tries, new=new) as decoder:
            by_decoder = self._expand.begin(ticket, supply.size)
            permit.has_decoder = True
            await by_decoder.read(decoder, supply, permit)
        self._was_read(ticket, supply)

    def _was_read(self, ticket: Ticket, supply: "_Supply") -> None:
        if ticket.owner.alive and ticket.inline is None:
            self._telemetry.object_read(supply.read_bytes)

    async def _begin(self, ticket: Ticket, supply: "_Supply") -> bool:
        """Open the object. False: it need not be read."""
        if ticket.inline is not None:
            ticket.fetched_s = self._clock.now()
            ticket.resumes(from_first_row=self._from_first_row)
        elif supply.is_streamed:
            await supply.open()
        else:
            await supply.tail()
        return bool(supply.size) and not supply.is_answered

    def location(self, ticket: Ticket) -> Location:
        """The version that an earlier try began with, else the one that the reference names.
        Without `objects.pin` an earlier try counts only if it brought rows: then two versions must
        not mix.
        """
        reference = ticket.reference
        assert reference is not None
        location = Location(reference.bucket, reference.key, store=ticket.store)
        if not self._pin and not ticket.next_row:
            return location
        version_id, etag = ticket.pin or (reference.version_id, reference.etag)
        return location._replace(version_id=version_id, etag=etag)

    def answered(self, ticket: Ticket) -> None:
        """The store answered about this object."""
        self._outages[ticket.store].answered()

    def pinned(self, ticket: Ticket) -> Location:
        """The version of which we have a part already. It is required even without `objects.pin`,
        as parts of two versions must not mix.
        """
        reference, (version_id, etag) = ticket.reference, ticket.pin or (None, None)
        assert reference is not None
        if version_id is None and etag is None:
            raise Poison(
                "changed",
                f"the store tells no version of {reference.bucket}/{reference.key}, so its parts "
                "could be of different versions",
            )
        etag = None if version_id else etag
        return Location(reference.bucket, reference.key, version_id, etag, ticket.store)

    def begin_version(self, ticket: Ticket, body: Body | Part) -> bool:
        """Bind the ticket to the version that is being read. False: this version is answered
        already.
        """
        ticket.pin = (body.version_id, body.etag)
        ticket.fetched_s = self._clock.now()
        if not ticket.resumes(from_first_row=self._from_first_row):
            log.warning(
                "partition %d, offset %d: the object is not the version that the cursor was made "
                "for, or its rows are read by other settings; its rows are repeated",
                ticket.owner.partition,
                ticket.record.offset,
                extra=of_ticket(ticket),
            )
            ticket.resume = START
        # Checked after the cursor, which may show that the delivered rows were of another version.
        if self._object_bytes is not None and body.size > self._object_bytes:
            raise Poison(
                "too_large",
                f"the object has {body.size} bytes, limits.object_bytes is {self._object_bytes}",
            )
        return not self._dedupe.is_duplicate(ticket)

    async def is_away(self, ticket: Ticket, error: Transient) -> bool:
        """Is the store away, or does it fail for this object only? Asks for another name in the
        bucket: if that is answered, the store is there, and the tries at this object must end.
        """
        if not isinstance(error, Unreachable) or ticket.reference is None:
            return False
        if isinstance(error, LockedOut):
            return True
        probe = Location(ticket.reference.bucket, PROBE_KEY, store=ticket.store)
        try:
            body = await self.objects.open(probe)
        except Unreachable:
            return True
        except (Poison, Transient):
            return False
        await body.aclose()
        return False


class _Supply:
    """The bytes of one object, during one try: first as a stream, then by its parts."""

    def __init__(
        self, reader: ObjectReader, ticket: Ticket, tries: Tries, *, is_streamed: bool
    ) -> None:
        self.size = -1
        self.is_streamed = is_streamed
        self.read_bytes = 0
        self.is_answered = False
        self._reader = reader
        self._ticket = ticket
        self._tries = tries
        self._body: Body | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._first: list[bytes] = []
        self._tail: tuple[int, bytes] | None = None

    async def open(self) -> None:
        reader, ticket = self._reader, self._ticket
        self._body = await reader.objects.open(reader.location(ticket))
        self._has_begun(self._body)
        self._chunks = aiter(self._body)

    async def whole(self, most_bytes: int) -> bytes | None:
        """The whole object, if it is a stream of at most `most_bytes`. None: it is not, and no
        bytes were taken from the stream.
        """
        if self._ticket.inline is not None:
            self._first.append(self._ticket.inline.body())
            self.size = len(self._first[0])
        elif self._chunks is None or self.size > most_bytes:
            return None
        while chunk := await self._fetched():
            self._first.append(chunk)
        return self._first[0] if len(self._first) == 1 else b"".join(self._first)

    async def chunk(self) -> bytes:
        if self._first:
            return self._first.pop(0)
        return await self._fetched()

    async def _fetched(self) -> bytes:
        """The next bytes; empty only at the end. A store may hand over an empty chunk before the
        end, which is skipped here.
        """
        if self._chunks is None:
            return b""  # inline rows came whole, with their message
        async for chunk in self._chunks:
            if chunk:
                self._count(chunk)
                return chunk
        return b""

    async def tail(self) -> tuple[int, bytes]:
        if self._tail is None:
            await self.aclose()
            reader, ticket = self._reader, self._ticket
            part = await reader.objects.part(reader.location(ticket), -TAIL_BYTES)
            self._has_begun(part)
            self._count(part.data)
            self._tail = (part.size, part.data)
        return self._tail

    async def part(self, start: int, stop: int) -> bytes:
        location = self._reader.pinned(self._ticket)
        part = await self._reader.objects.part(location, start, stop)
        self._count(part.data)
        return part.data

    async def aclose(self) -> None:
        if self._body is not None:
            await self._body.aclose()

    def _has_begun(self, what: Body | Part) -> None:
        self._tries.is_open = True
        self._reader.answered(self._ticket)
        self.size = what.size
        self.is_answered = not self._reader.begin_version(self._ticket, what)

    def _count(self, data: bytes) -> None:
        self.read_bytes += len(data)
        self._ticket.read_bytes += len(data)
