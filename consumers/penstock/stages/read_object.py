"""Makes one try to read an object, from its first byte to its last, all from one version.

Rule: a chunk is read only when the byte budget has room, so a spent budget stops the transfer
itself. The object at the head of its order goes on although the budget is spent, because all
objects behind it wait for it. While an object waits for a seat, it holds no bytes and no
connection. If one of several models falls behind, its objects give up their seats and decoders to
objects of the other models.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from penstock.core.health.limiter import InFlight
from penstock.core.routing.store_choice import DEFAULT
from penstock.core.rows.blocks import Ticket
from penstock.core.rows.log_keys import of_ticket
from penstock.core.rows.origin import START
from penstock.decoders.protocol import NEXT, TAIL, Decoder, Decoders, Died, Task, tail_of
from penstock.errors import Poison, Transient
from penstock.failures.outage import Outage
from penstock.formats.registry import Claim
from penstock.formats.source import TAIL_BYTES, Need
from penstock.lane.budget import Budget
from penstock.lane.dedupe import Dedupe
from penstock.ports import Clock, Location, ObjectBody, Objects, Part
from penstock.stages.expand import Expand
from penstock.stages.microbatch import Microbatch
from penstock.stages.result_objects import ResultTerms
from penstock.stages.store_reads import Fetcher, StoreReads
from penstock.telemetry.worker import Telemetry

log = logging.getLogger(__name__)

# An object that has a decoder waits this long for room in the window. After that it gives the
# decoder up if its model is over its share of the budget and an object that must go on needs a
# decoder.
PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class ObjectTerms:
    """How objects are fetched and read. `stores`: for each store, by name, the most reads that may
    be in flight. `begin_fetches`: for each store whose best number of reads is learned, the number
    to begin with.
    """

    fetchers: int
    object_bytes: int | None
    inline_bytes: int
    pin: bool
    wait_for_object_s: float
    # the numbers of fetchers of the other stores
    more_fetchers: Mapping[str, int] = field(default_factory=dict)
    begin_fetches: Mapping[str, int] = field(default_factory=dict)
    # the stores whose late reads are sent again
    hedged: Collection[str] = ()

    @property
    def stores(self) -> Mapping[str, int]:
        return {DEFAULT: self.fetchers, **self.more_fetchers}


class GaveWay(Exception):
    """This try gave up its seat or decoder, so that another object can go on."""


class ReadObject:
    """Reads the objects of one model. `read` makes one try; it notes whether the store began
    to answer. A result object needs all rows, so with `results` all rows are read, even if
    some were delivered before.
    """

    def __init__(
        self,
        objects: Objects,
        expand: Expand,
        budget: Budget,
        microbatch: Microbatch,
        decoders: Decoders,
        reads: Mapping[str, StoreReads],
        outages: Mapping[str, Outage],
        dedupe: Dedupe | None,
        clock: Clock,
        telemetry: Telemetry,
        terms: ObjectTerms,
        results: ResultTerms | None,
    ) -> None:
        # A cursor is valid only under the rules by which it was written. Rows that were delivered
        # only in a result object are not on the output topic. So a cursor that counts such rows
        # must become invalid when records of rows are switched on.
        of_rows = results is None or results.of_rows
        self._row_rules = expand.rules if of_rows else f"{expand.rules}/objects"
        self.objects = objects
        self.expand = expand
        self.budget = budget
        self.microbatch = microbatch
        self.decoders = decoders
        self.reads = reads
        self.outages = outages
        self.dedupe = dedupe
        self.clock = clock
        self.telemetry = telemetry
        self.terms = terms
        self.from_first_row = results is not None

    async def read(self, ticket: Ticket, fetcher: Fetcher) -> None:
        """Make one try. Returns at the object's end, or when the lane is closed. The fetcher leaves
        if this object needs a decoder. Raises `Poison`, `Transient`.
        """
        ticket.row_rules = self._row_rules
        needs_decoder, by_new = fetcher.has_left, False
        # An object comes here in four cases:
        #
        # 1. It is new. Unless its name or its size already says that it needs a decoder, it is
        #    first read here, because only the bytes show that for certain.
        # 2. It is resumed: a try broke, or a former assignment delivered some rows. The same
        #    version is read again; rows before `ticket.next_row` are counted, but not emitted.
        # 3. It is in a decoder. It keeps its seat, and its fetcher lets another one in. If the
        #    decoder dies, the object gets one more try, by a fresh one: an earlier object may have
        #    damaged the first, or the system may have refused something for a moment.
        # 4. It is handed back: it gave its seat or decoder up for an object that must go on, or it
        #    needs a seat and none is free. It lets go of all bytes and its connection, and begins
        #    again when there is room.
        while True:
            attempt = Attempt(self, ticket, fetcher)
            await attempt.next_step()
            needs_decoder |= attempt.is_for_decoders()
            try:
                if not needs_decoder:
                    if await attempt.read_here():
                        return
                    needs_decoder = True
                    if not self.reads[ticket.store].seats.has_free:
                        continue
                fetcher.leave()
                async with attempt.seat():
                    await attempt.read_by_decoder(new=by_new)
                return
            except GaveWay:
                continue
            except Died as died:
                if by_new or died.by_object:
                    died.poison.stage = "expand"
                    raise died.poison from died
                by_new = True
            finally:
                await attempt.aclose()

    @property
    def is_decoder_wanted(self) -> bool:
        """True if an object that must go on waits for a decoder or a seat."""
        return self.decoders.is_wanted or any(
            reads.seats.is_wanted for reads in self.reads.values()
        )


class Attempt:
    """One try at one object: its bytes, and the permission for each next step. The bytes come as a
    stream or by parts; a try that began as a stream may go on by parts.
    """

    def __init__(self, reader: ReadObject, ticket: Ticket, by: Fetcher) -> None:
        self._reader = reader
        self._ticket = ticket
        self._fetcher = by
        self._reads = reader.reads[ticket.store]
        self._claim: Claim
        self._is_streamed = True
        self._has_decoder = False
        self._is_answered = False  # this version was answered before
        self._size = -1  # not known yet
        self._read_bytes = 0
        self._body: ObjectBody | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._first: list[bytes] = []
        self._at_hand: bytes | None = None  # all of it, if it is small
        self._tail: tuple[int, bytes] | None = None
        # The read in flight of a body that is not read yet.
        self._in_flight: InFlight | None = None

    def is_for_decoders(self) -> bool:
        """Decide what the object is, by its name. Returns True if only a decoder can read it."""
        ticket, expand = self._ticket, self._reader.expand
        self._claim, self._is_streamed = expand.claim(ticket)
        return not self._is_streamed or expand.needs_decoder(ticket, self._claim)

    async def read_here(self) -> bool:
        """Read the object without a decoder. Returns False if the object needs a decoder."""
        if not await self._open():
            return True
        expand = self._reader.expand
        whole = await self._whole(expand.inline_bytes)
        reading = None if whole is None else expand.begin_inline(self._ticket, self._claim, whole)
        if reading is None:
            return False
        await reading.read(self.next_step)
        self._was_read()
        return True

    async def read_by_decoder(self, *, new: bool) -> None:
        """`new`: the decoder must be a fresh process that has decoded nothing yet."""
        expand = self._reader.expand
        if self._size < 0:
            if not (self._ticket.owner.alive and await self._open()):
                return
            if self._is_streamed and self._ticket.inline is None:
                # A small object is read now: while it waits for a decoder, it must hold no read.
                await self._whole(expand.inline_bytes)
        reading = expand.begin(self._ticket, self._claim, self._size, self._at_hand)
        async with self._decoder(reading.task, new=new) as decoder:
            self._has_decoder = True
            await reading.read(decoder, self._needed, self.next_step)
        self._was_read()

    def _was_read(self) -> None:
        if self._ticket.owner.alive and self._ticket.reference is not None:
            self._reads.read(self._ticket.reference)
            self._reader.telemetry.object_read(self._read_bytes)

    # What a step waits for.

    async def next_step(self) -> None:
        """Return when the next step may be taken: when the model's window has room for the stream,
        and the budget has room. The time spent waiting here does not count against the try. Raises
        `GaveWay`.
        """
        reader, stream = self._reader, self._ticket.stream
        budget = reader.budget
        if budget.has_room and not reader.microbatch.is_crowded(stream):
            return
        began_s = reader.clock.now()
        await self._room_in_window()
        if not budget.has_room:
            if self._ticket.gives_way:
                # There may be one fetcher for all backlog, and this object may wait for the first
                # one of another lane, which is backlog itself.
                self._fetcher.leave()
            await budget.room(lambda: self._must_go_on() or self._is_in_the_way())
            if self._is_in_the_way() and not self._must_go_on():
                raise GaveWay
        self._fetcher.waited_s += reader.clock.now() - began_s

    async def _room_in_window(self) -> None:
        microbatch, stream = self._reader.microbatch, self._ticket.stream
        while self._has_decoder and microbatch.is_crowded(stream):
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    await microbatch.room(stream)
            if microbatch.is_over_share and self._reader.is_decoder_wanted:
                raise GaveWay
        await microbatch.room(stream)

    def _must_go_on(self) -> bool:
        return self._ticket.owner.may_overdraw(self._ticket)

    def _is_in_the_way(self) -> bool:
        return self._has_decoder and self._reader.is_decoder_wanted

    @asynccontextmanager
    async def seat(self) -> AsyncIterator[None]:
        """A seat of the object's store."""
        began_s = self._reader.clock.now()
        must_go_on = partial(self._ticket.owner.may_overdraw, self._ticket)
        review = self._reader.budget.review
        async with self._reads.seats.one(self._ticket.stream, must_go_on, review):
            self._waited_since(began_s)
            yield

    @asynccontextmanager
    async def _decoder(self, task: Task, *, new: bool) -> AsyncIterator[Decoder]:
        reader, began_s = self._reader, self._reader.clock.now()
        must_go_on = partial(self._ticket.owner.may_overdraw, self._ticket)
        async with reader.decoders.lent(
            self._ticket.stream, must_go_on, reader.budget.review, new=new, task=task
        ) as decoder:
            self._waited_since(began_s)
            yield decoder

    def _waited_since(self, began_s: float) -> None:
        self._fetcher.waited_s += self._reader.clock.now() - began_s
        # If the model fell behind during the wait, there is no room for more of its rows.
        if self._reader.microbatch.is_over_share:
            raise GaveWay

    # Which version is read.

    def _asked_for(self) -> Location:
        """The version to ask for: the one that an earlier try began with, else the one that the
        reference names. Without `objects.pin` the newest version is asked for, unless an earlier
        try has brought rows: rows of two versions must not mix.
        """
        ticket, reference = self._ticket, self._ticket.reference
        assert reference is not None
        location = Location(
            reference.bucket, reference.key, store=ticket.store, size=reference.size
        )
        if not self._reader.terms.pin and not ticket.next_row:
            return location
        version_id, etag = ticket.pin or (reference.version_id, reference.etag)
        return location._replace(version_id=version_id, etag=etag)

    def _begun(self) -> Location:
        """The version that this try began with, if the store told one. Even without `objects.pin`
        all further parts must be of this version, because parts of two versions must not mix.
        """
        ticket, reference = self._ticket, self._ticket.reference
        assert reference is not None
        version_id, etag = ticket.pin or (None, None)
        # Both the version id and the entity tag are given: a replica has version ids of its own, so
        # it can be asked only by the entity tag.
        return Location(reference.bucket, reference.key, version_id, etag, ticket.store)

    def _has_begun(self, what: ObjectBody | Part) -> None:
        """Bind the ticket to the version that is being read."""
        reader, ticket = self._reader, self._ticket
        self._fetcher.is_answered = True
        self._size = what.size
        if (outage := reader.outages[ticket.store]).why is not None:
            outage.answered()
        if ticket.reference is not None:
            self._reads.bucket = ticket.reference.bucket
        ticket.pin = (what.version_id, what.etag)
        ticket.fetched_s = reader.clock.now()
        if not ticket.resumes(from_first_row=reader.from_first_row):
            log.warning(
                "%s, offset %d: the object is not the version that the cursor was made "
                "for, or its rows are read by other settings; its rows are repeated",
                ticket.owner.where,
                ticket.record.offset,
                extra=of_ticket(ticket),
            )
            ticket.resume = START
        # After the cursor, which may show that the delivered rows were of another version.
        most_bytes = reader.terms.object_bytes
        if most_bytes is not None and what.size > most_bytes:
            raise Poison(
                "too_large",
                f"the object has {what.size} bytes, limits.object_bytes is {most_bytes}",
            )
        self._is_answered = reader.dedupe is not None and reader.dedupe.is_duplicate(ticket)

    # Its bytes.

    async def _open(self) -> bool:
        """Returns True if the object must be read, False if it is empty or was answered before."""
        reader, ticket = self._reader, self._ticket
        if ticket.inline is not None:
            ticket.fetched_s = reader.clock.now()
            ticket.resumes(from_first_row=reader.from_first_row)
        elif self._is_streamed:
            await self._open_stream()
        else:
            await self._ends()
        if not self._size and not self._is_answered and ticket.inline is None:
            reader.expand.check_nothing(self._claim)
        return bool(self._size) and not self._is_answered

    async def _open_stream(self) -> None:
        request = await self._reads.begin(self._fetcher)
        try:
            self._body = await self._reader.objects.open(self._asked_for())
        except BaseException as error:
            self._reads.broke(request, error)
            raise
        self._in_flight = request
        self._has_begun(self._body)
        if self._size > self._reader.terms.inline_bytes:
            self._landed()
        self._chunks = aiter(self._body)

    async def _whole(self, most_bytes: int) -> bytes | None:
        """The whole object, if it is read as a stream and has at most `most_bytes`. Otherwise None,
        and no bytes are taken from the stream.
        """
        if self._ticket.inline is not None:
            self._first.append(self._ticket.inline.body())
            self._size = len(self._first[0])
        elif self._chunks is None or self._size > most_bytes:
            return None
        try:
            while chunk := await self._fetched():
                self._first.append(chunk)
        except Transient as error:
            self._landed(error)
            raise
        self._landed()
        self._at_hand = self._first[0] if len(self._first) == 1 else b"".join(self._first)
        return self._at_hand

    async def _needed(self, need: Need) -> bytes:
        """The bytes that the decoder asks for. A chunk is empty only at the end of the stream."""
        if need == NEXT:
            return self._first.pop(0) if self._first else await self._fetched()
        if need == TAIL:
            return tail_of(*await self._ends())
        begun = self._begun()
        if begun.version_id is None and begun.etag is None:
            raise Poison(
                "changed",
                f"the store tells no version of {begun.bucket}/{begun.key}, so its parts "
                "could be of different versions",
            )
        return (await self._more(begun, *need)).data

    async def _fetched(self) -> bytes:
        """The next bytes; empty only at the end. An empty chunk before it is skipped."""
        if self._chunks is None:
            return b""  # inline rows came whole, with their message
        async for chunk in self._chunks:
            if chunk:
                self._count(chunk)
                return chunk
        return b""

    async def _ends(self) -> tuple[int, bytes]:
        """The object's size, and its last bytes. After this call the object is read by ranges. If
        this try began as a stream, until its first bytes told the format, the tail is of the same
        version as the stream.
        """
        if self._tail is None:
            await self.aclose()
            if self._size < 0:
                part = await self._part(self._asked_for(), -TAIL_BYTES, None)
                self._has_begun(part)
                self._count(part.data)
            else:
                part = await self._more(self._begun(), -TAIL_BYTES, None)
            self._tail = (part.size, part.data)
        return self._tail

    async def _more(self, location: Location, start: int, stop: int | None) -> Part:
        """Another part of the object that this try reads. Some stores tell no version, and some
        answer with another version than the one asked for. So the size and the entity tag are
        compared with those of the first part.
        """
        part = await self._part(location, start, stop)
        is_same = location.etag is None or part.etag in (None, location.etag)
        if part.size != self._size or not is_same:
            raise Poison(
                "changed", f"{location.bucket}/{location.key} was replaced while it was read"
            )
        self._count(part.data)
        return part

    async def _part(self, location: Location, start: int, stop: int | None) -> Part:
        request = await self._reads.begin(self._fetcher)
        try:
            part = await self._reader.objects.part(location, start, stop)
        except BaseException as error:
            self._reads.broke(request, error)
            raise
        # Only parts as small as objects that are read whole are compared with these.
        if len(part.data) <= self._reader.terms.inline_bytes:
            self._reads.answered(request)
        else:
            self._reads.dropped(request, is_answered=True)
        return part

    def _landed(self, error: Transient | None = None) -> None:
        """The read of the body is in flight no more."""
        request, self._in_flight = self._in_flight, None
        if request is None:
            return
        if error is None:
            self._reads.answered(request)
        else:
            self._reads.broke(request, error)

    def _count(self, data: bytes) -> None:
        self._read_bytes += len(data)
        self._ticket.read_bytes += len(data)

    async def aclose(self) -> None:
        if self._in_flight is not None:
            self._reads.dropped(self._in_flight)
            self._in_flight = None
        if self._body is not None:
            await self._body.aclose()
