"""Polls the source, hands each record to the lane of its partition, and makes tickets of a record:
one for every object that it names.

Rule: partitions without room are not polled, so the rest of their backlog stays in Kafka. The lane
has a record decoded (`Intake`) once it has room for the objects, and offers them to the fetchers
(download.py): at once, or when answers are delivered. No record is skipped. A record that cannot be
decoded keeps its position in the order: it gets a ticket that is already closed, with the reason.
Decoding waits for no service.
"""

import fnmatch
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from penstock.core.routing.model_routes import UNMATCHED_AFTER, Routes, place_of
from penstock.core.routing.store_choice import StoreChoice, compiled
from penstock.core.routing.stream_keys import KeyTimes, StreamNames, fallback, streams_of
from penstock.core.rows.blocks import Owner, Ticket
from penstock.core.rows.log_keys import of_place
from penstock.core.rows.rejections import Rejection
from penstock.core.window.priorities import Priorities
from penstock.errors import Poison, Unforeseen
from penstock.failures.unexpected_errors import Guards, works_on
from penstock.lane.lane import Lane
from penstock.lane.undecoded import Decoding
from penstock.messages.codec import PIECE_OBJECTS, Ignored, Inline, SchemaError, decoding
from penstock.messages.prediction import printable
from penstock.messages.reference import Reference
from penstock.ports import Clock, InputSource, Record, Where
from penstock.telemetry.worker import Telemetry
from penstock.tracing import Tracer

log = logging.getLogger(__name__)

# A partition that gets room during a poll of the other partitions waits for the end of that poll,
# which takes at most this long.
POLL_WAIT_MS = 50
# S3 takes such a key literally, but a proxy or a gateway before it may shorten it like a path, and
# then it names something that the globs do not.
_CLIMBS: Final = re.compile(r"(?:^|[/\\])\.\.?(?:$|[/\\])")


class Consume:
    """Polls the source, in one task. `stop` ends the task between two polls."""

    def __init__(self, source: InputSource, lanes: Mapping[Where, Lane]) -> None:
        self._source = source
        self._lanes = lanes
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        while not self._stopping:
            # Each poll names the partitions that have room. Pausing the other partitions in the
            # client instead would drop the records that the client has already fetched from them.
            wanted = [lane.where for lane in self._lanes.values() if lane.wants_records]
            records = await self._source.poll(wanted, POLL_WAIT_MS)
            for record in records:
                lane = self._lanes.get(record.where)
                # A rebalance may have taken the partition during the poll.
                if lane is not None:
                    lane.receive(record)
            if not records:
                self._pass_over()

    def _pass_over(self) -> None:
        """At the end of a partition there may be offsets without a record, such as the markers of
        transactions. Let the lanes pass over these offsets, because otherwise the backlog would
        never count as read.
        """
        for partition, offset in self._source.reached().items():
            lane = self._lanes.get(partition)
            if lane is not None:
                lane.pass_over(offset)


@dataclass(frozen=True, slots=True)
class IntakeTerms:
    """`allow`: the objects that may be read, as globs of `bucket/key`; a glob that begins with a
    store's name and `://` is about that store only. If it is None, all objects may be read.
    `streams`: globs of the streams that are answered; if it is None, all streams are. Objects of
    other streams count as `skipped`. `stream_bytes`: an object whose stream has a longer name is
    refused; None: names may be as long as messages allow. `places`: chooses the store of an object.
    `near`: for some input topics, another choice that is used instead of `places`.
    """

    stream_from: str | None = None
    time_from: str | None = None
    allow: Sequence[str] | None = None
    streams: Sequence[str] | None = None
    stream_bytes: int | None = None
    places: StoreChoice = field(default_factory=StoreChoice.one)
    near: Mapping[str, StoreChoice] = field(default_factory=dict)


class Intake:
    """Turns the value of a record into tickets. `routes` may be replaced at any time."""

    def __init__(
        self,
        terms: IntakeTerms,
        routes: Routes,
        clock: Clock,
        telemetry: Telemetry,
        guards: Guards,
        tracer: Tracer | None = None,
        priorities: Priorities | None = None,
    ) -> None:
        self._tracer = tracer
        self._priorities = priorities
        self._near = terms.near
        self._guard = guards.at("message")
        self.routes = routes
        self._clock = clock
        self._naming = StreamNames(terms.stream_from)
        self._times = KeyTimes(terms.time_from, log.warning)
        self._stream_bytes = terms.stream_bytes
        self._allow = list(map(_allowed_by, terms.allow or ()))
        self._allow_all = terms.allow is None
        self._streams = [re.compile(fnmatch.translate(glob)) for glob in terms.streams or ()]
        self._takes_all = terms.streams is None
        self.skipped = 0
        self._places = terms.places
        self._telemetry = telemetry

    def tickets(self, lane: Owner, record: Record) -> Decoding:
        """The tickets of the objects that the record names, in the record's order."""
        tickets = yield from self._guarded(lane, record)
        if not self._takes_all:
            tickets = self._chosen(tickets)
        received_s = self._clock.now()
        for ticket in tickets:
            ticket.received_s = received_s
            if self._priorities is not None:
                ticket.gives_way = self._priorities.gives_way(ticket.stream)
        if self._tracer is not None:
            self._tracer.begin(record, tickets)
        return tickets

    def _guarded(self, lane: Owner, record: Record) -> Decoding:
        works_on(partial(of_place, lane.where, record.offset))
        # If an unforeseen exception comes, the record gets a second try. If that fails as well,
        # only this record is answered by an error.
        for tries in (1, 2):
            try:
                with self._guard:
                    return (yield from self._tickets(lane, record))
            except Unforeseen as error:
                why = Rejection(error.code, str(error), "consume", tries)
        return [self._refused(lane, record, why)]

    def _chosen(self, tickets: list[Ticket]) -> list[Ticket]:
        """The tickets whose streams are answered. The other tickets are counted as skipped."""
        chosen = [
            ticket for ticket in tickets if any(glob.match(ticket.stream) for glob in self._streams)
        ]
        self.skipped += len(tickets) - len(chosen)
        return chosen

    def _tickets(self, lane: Owner, record: Record) -> Decoding:
        try:
            message = yield from decoding(record.value)
        except SchemaError as error:
            self._telemetry.record_read(ignored=False)
            why = Rejection("bad_reference", str(error), "consume")
            return [self._refused(lane, record, why)]
        self._telemetry.record_read(ignored=isinstance(message, Ignored))
        if not isinstance(message, Inline):
            for kind in message.ignored:
                self._count_ignored(kind)
        # A notification that does not tell of a new object gets no answer.
        if isinstance(message, Ignored):
            return []
        streams = streams_of(message, self._naming, record.key, lane.where.partition)
        if isinstance(message, Inline):
            return self._routed(lane, record, 0, streams[0], None, message)
        tickets: list[Ticket] = []
        for index, (reference, stream) in enumerate(zip(message.items, streams, strict=True)):
            if index and not index % PIECE_OBJECTS:
                yield
            timed = self._times.timed(reference)
            tickets += self._routed(lane, record, index, stream, timed, None)
        return tickets

    def _count_ignored(self, kind: str) -> None:
        if self._telemetry.event_ignored(kind[:80]):
            log.info(
                "events of the kind %s announce no new bytes; they are counted and not answered "
                "(penstock_events_ignored_total)",
                printable(kind[:80]),
            )

    def _routed(
        self,
        lane: Owner,
        record: Record,
        index: int,
        stream: str,
        reference: Reference | None,
        inline: Inline | None,
    ) -> list[Ticket]:
        """One ticket for each model that is to answer the object."""
        ticket = Ticket(lane, record, index, stream, reference, inline)
        if self._is_long(stream):
            message = (
                f"its stream {printable(stream[:40])}... has {len(stream.encode())} bytes, more "
                f"than {self._stream_bytes} (limits.stream_bytes)"
            )
            ticket.close(Rejection("bad_reference", message, "consume"))
        elif reference is not None:
            self._place(ticket, reference, self._near.get(lane.where.topic, self._places))
        if not self._knows_model(ticket) or not self.routes.is_needed:
            return [self._of_default(ticket)]
        models = self._models_of(ticket)
        others = [Ticket(lane, record, index, stream, reference, inline) for _ in models[1:]]
        for each, model in zip([ticket, *others], models, strict=True):
            each.model = model if model != self.routes.default else None
            if self.routes.fans_out:
                each.queue = f"{stream}\0{model}"
            if others:
                # The ledger accounts for each model's answers separately.
                each.index = place_of(index, model)
                each.store = ticket.store
                if ticket.failure is not None and each is not ticket:
                    each.close(ticket.failure)
        return [ticket, *others]

    def _is_long(self, stream: str) -> bool:
        most_bytes = self._stream_bytes
        # A character has at most four bytes, so most names need not be encoded.
        return most_bytes is not None and (
            4 * len(stream) > most_bytes and len(stream.encode()) > most_bytes
        )

    def _place(self, ticket: Ticket, reference: Reference, places: StoreChoice) -> None:
        """Set the store of the ticket's object, if it is not the default store. If the object may
        not be read, close the ticket.
        """
        if reference.store is not None or not places.is_plain:
            try:
                ticket.store = places.of(reference.store, reference.bucket, reference.key)
            except Poison as error:
                ticket.close(Rejection(error.code, str(error), "consume"))
                return
        if not self._allowed(reference, ticket.store):
            name = f"{reference.bucket}/{reference.key}"
            message = f"{name} is outside objects.allow"
            ticket.close(Rejection("not_allowed", message, "consume"))

    def _models_of(self, ticket: Ticket) -> tuple[str, ...]:
        reference, origin = ticket.reference, ticket.reference or ticket.inline
        if origin is not None and origin.model is not None:
            return (origin.model,)
        bucket, key = (reference.bucket, reference.key) if reference else (None, None)
        models = self.routes.of(ticket.stream, bucket, key)
        if self.routes.asked == UNMATCHED_AFTER:
            self._tell_unmatched(ticket.stream)
        return models

    def _tell_unmatched(self, stream: str) -> None:
        for route in self.routes.never_matched:
            log.warning(
                "none of the first %d objects matched the route of %s; streams are called like %r: "
                "correct the route, or see kafka.stream_from",
                *(UNMATCHED_AFTER, route, stream),
            )

    def _knows_model(self, ticket: Ticket) -> bool:
        """True if the message names no model or a configured model, or if the routes overrule the
        message. Otherwise the ticket is closed.
        """
        origin = ticket.reference or ticket.inline
        model = origin.model if origin else None
        if model is None or self.routes.overrule or model in self.routes.models:
            return True
        known = ", ".join(self.routes.models)
        message = f"there is no model {printable(model)}; there is {known}: see [[models]]"
        if not ticket.closed:
            ticket.close(Rejection("bad_reference", message, "consume"))
        return False

    def _refused(self, lane: Owner, record: Record, why: Rejection) -> Ticket:
        """A closed ticket for a message that could not be decoded, so that its objects are not
        known.
        """
        ticket = Ticket(lane, record, 0, fallback(record.key, lane.where.partition), None)
        ticket.close(why)
        return self._of_default(ticket)

    def _of_default(self, ticket: Ticket) -> Ticket:
        """No model is asked about this ticket, so its output record names the default model. The
        record must stay in order with the answers of that model, so the ticket goes into that
        model's queue.
        """
        if self.routes.fans_out:
            ticket.queue = f"{ticket.stream}\0{self.routes.default}"
        return ticket

    def _allowed(self, reference: Reference, store: str) -> bool:
        name = f"{reference.bucket}/{reference.key}"
        return self._allow_all or (
            not _CLIMBS.search(name)
            and any(of in (None, store) and glob.match(name) for of, glob in self._allow)
        )


def _allowed_by(glob: str) -> tuple[str | None, re.Pattern[str]]:
    """Returns two things: the store that the glob is about, or None if it is about all stores; and
    the pattern for `bucket/key`.
    """
    store, is_named, names = glob.rpartition("://")
    return store if is_named else None, compiled(names)
