"""Gets the bytes of one object during one try, all from one version of the object.

Rule: all bytes of an object are of the same version as its first bytes. If a try breaks, the next
try reads that version again, and skips the rows that were read already. Owner: the reader of
objects.
"""

import logging
from collections.abc import AsyncIterator, Mapping

from penstock.calls.outage import Outage
from penstock.core.health.limiter import Request
from penstock.core.health.retry_and_failover import Tries
from penstock.core.progress.cursor import START
from penstock.core.rows.blocks import Ticket
from penstock.core.rows.log_keys import of_ticket
from penstock.errors import Poison, Transient
from penstock.formats.base.source import TAIL_BYTES
from penstock.lane.dedupe import Dedupe
from penstock.ports import Body, Clock, Location, Objects, Part
from penstock.stages.store_reads import StoreReads

log = logging.getLogger(__name__)


class Versions:
    """Decides which version of an object is read. `pin`: True if the version that the reference
    names must be read. `from_first_row`: True if results are written as objects. A result object
    needs all rows, so all rows are read, even if some were delivered before.
    """

    def __init__(
        self,
        objects: Objects,
        outages: Mapping[str, Outage],
        dedupe: Dedupe | None,
        clock: Clock,
        *,
        reads: Mapping[str, StoreReads],
        most_bytes: int | None,
        inline_bytes: int,
        pin: bool,
        from_first_row: bool,
    ) -> None:
        self.objects = objects
        self.reads = reads
        self.inline_bytes = inline_bytes
        self.from_first_row = from_first_row
        self._outages = outages
        self._dedupe = dedupe
        self._clock = clock
        self._pin = pin
        self._most_bytes = most_bytes

    def location(self, ticket: Ticket) -> Location:
        """The version to ask for: the one that an earlier try began with, else the one that the
        reference names. Without `objects.pin` the newest version is asked for, unless an earlier
        try has brought rows: rows of two versions must not mix.
        """
        reference = ticket.reference
        assert reference is not None
        location = Location(
            reference.bucket, reference.key, store=ticket.store, size=reference.size
        )
        if not self._pin and not ticket.next_row:
            return location
        version_id, etag = ticket.pin or (reference.version_id, reference.etag)
        return location._replace(version_id=version_id, etag=etag)

    def begun(self, ticket: Ticket) -> Location:
        """The version that this try began with, if the store told one. Even without `objects.pin`
        all further parts must be of this version, because parts of two versions must not mix.
        """
        reference, (version_id, etag) = ticket.reference, ticket.pin or (None, None)
        assert reference is not None
        # Both the version id and the entity tag are given: a replica has version ids of its own, so
        # it can be asked only by the entity tag.
        return Location(reference.bucket, reference.key, version_id, etag, ticket.store)

    def pinned(self, ticket: Ticket) -> Location:
        """Like `begun`. Raises `Poison` if the store tells no version."""
        location = self.begun(ticket)
        if location.version_id is None and location.etag is None:
            raise Poison(
                "changed",
                f"the store tells no version of {location.bucket}/{location.key}, so its parts "
                "could be of different versions",
            )
        return location

    def begin(self, ticket: Ticket, body: Body | Part) -> bool:
        """Bind the ticket to the version that is being read. Returns True if the object's rows are
        to be answered; False if this version of the object was answered before.
        """
        self._outages[ticket.store].answered()
        if ticket.reference is not None:
            self.reads[ticket.store].bucket = ticket.reference.bucket
        ticket.pin = (body.version_id, body.etag)
        ticket.fetched_s = self._clock.now()
        if not ticket.resumes(from_first_row=self.from_first_row):
            log.warning(
                "%s/%d, offset %d: the object is not the version that the cursor was made "
                "for, or its rows are read by other settings; its rows are repeated",
                ticket.owner.topic,
                ticket.owner.partition,
                ticket.record.offset,
                extra=of_ticket(ticket),
            )
            ticket.resume = START
        # The cursor was checked first, because it may show that the delivered rows were of another
        # version. Only then is the size checked.
        if self._most_bytes is not None and body.size > self._most_bytes:
            raise Poison(
                "too_large",
                f"the object has {body.size} bytes, limits.object_bytes is {self._most_bytes}",
            )
        return self._dedupe is None or not self._dedupe.is_duplicate(ticket)


class Supply:
    """Gives out the bytes of one object, during one try. The bytes come as a stream or by parts; a
    try that began as a stream may go on by parts.
    """

    def __init__(
        self, versions: Versions, ticket: Ticket, tries: Tries, *, is_streamed: bool
    ) -> None:
        self.size = -1
        self.is_streamed = is_streamed
        self.read_bytes = 0
        self.is_answered = False
        self._versions = versions
        self._ticket = ticket
        self._tries = tries
        self._body: Body | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._first: list[bytes] = []
        self._tail: tuple[int, bytes] | None = None
        self._reads = versions.reads[ticket.store]
        # The read in flight of a body that is not read yet.
        self._in_flight: Request | None = None

    async def open(self) -> None:
        versions, ticket = self._versions, self._ticket
        request = await self._reads.begin(self._tries)
        try:
            self._body = await versions.objects.open(versions.location(ticket))
        except BaseException as error:
            self._reads.broke(request, error)
            raise
        self._in_flight = request
        self._has_begun(self._body)
        if self.size > versions.inline_bytes:
            self._landed()
        self._chunks = aiter(self._body)

    async def whole(self, most_bytes: int) -> bytes | None:
        """The whole object, if it is read as a stream and has at most `most_bytes`. Otherwise None,
        and no bytes are taken from the stream.
        """
        if self._ticket.inline is not None:
            self._first.append(self._ticket.inline.body())
            self.size = len(self._first[0])
        elif self._chunks is None or self.size > most_bytes:
            return None
        try:
            while chunk := await self._fetched():
                self._first.append(chunk)
        except Transient as error:
            self._landed(error)
            raise
        self._landed()
        return self._first[0] if len(self._first) == 1 else b"".join(self._first)

    async def chunk(self) -> bytes:
        """The next chunk of the stream, which is empty only at the end."""
        if self._first:
            return self._first.pop(0)
        return await self._fetched()

    async def _fetched(self) -> bytes:
        """The next bytes, which are empty only at the end. If a store hands over an empty chunk
        before the end, that chunk is skipped here.
        """
        if self._chunks is None:
            return b""  # inline rows came whole, with their message
        async for chunk in self._chunks:
            if chunk:
                self._count(chunk)
                return chunk
        return b""

    async def tail(self) -> tuple[int, bytes]:
        """The object's size, and its last bytes. After this call the object is read by ranges. If
        this try began as a stream, until its first bytes told the format, the tail is of the same
        version as the stream.
        """
        if self._tail is None:
            await self.aclose()
            versions, ticket = self._versions, self._ticket
            if self.size < 0:
                part = await self._read(versions.location(ticket), -TAIL_BYTES, None)
                self._has_begun(part)
                self._count(part.data)
            else:
                part = await self._more(versions.begun(ticket), -TAIL_BYTES, None)
            self._tail = (part.size, part.data)
        return self._tail

    async def part(self, start: int, stop: int) -> bytes:
        part = await self._more(self._versions.pinned(self._ticket), start, stop)
        return part.data

    async def _more(self, location: Location, start: int, stop: int | None) -> Part:
        """Another part of the object that this try reads. Some stores tell no version, and some
        answer with another version than the one asked for. So the size and the entity tag are
        compared with those of the first part.
        """
        part = await self._read(location, start, stop)
        is_same = location.etag is None or part.etag in (None, location.etag)
        if part.size != self.size or not is_same:
            raise Poison(
                "changed", f"{location.bucket}/{location.key} was replaced while it was read"
            )
        self._count(part.data)
        return part

    async def _read(self, location: Location, start: int, stop: int | None) -> Part:
        request = await self._reads.begin(self._tries)
        try:
            part = await self._versions.objects.part(location, start, stop)
        except BaseException as error:
            self._reads.broke(request, error)
            raise
        # Only parts as small as objects that are read whole are compared with these.
        if len(part.data) <= self._versions.inline_bytes:
            self._reads.answered(request)
        else:
            self._reads.dropped(request, is_answered=True)
        return part

    async def aclose(self) -> None:
        if self._in_flight is not None:
            self._reads.dropped(self._in_flight)
            self._in_flight = None
        if self._body is not None:
            await self._body.aclose()

    def _landed(self, error: Transient | None = None) -> None:
        """The read of the body is in flight no more."""
        request, self._in_flight = self._in_flight, None
        if request is None:
            return
        if error is None:
            self._reads.answered(request)
        else:
            self._reads.broke(request, error)

    def _has_begun(self, what: Body | Part) -> None:
        self._tries.is_open = True
        self.size = what.size
        self.is_answered = not self._versions.begin(self._ticket, what)

    def _count(self, data: bytes) -> None:
        self.read_bytes += len(data)
        self._ticket.read_bytes += len(data)
