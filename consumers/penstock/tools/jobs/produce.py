"""`penstock produce`: announces objects that are already in the store, one reference each.

Rule: the Kafka key is the stream, so a stream's objects stay in one partition, in the order of the
listing. The last record of each batch has a mark, and Kafka keeps a batch whole or not at all: so a
partition's last mark says exactly which references are on the topic, even if the sender died.
Memory is bounded by `WAITING_BYTES` and `UNACKNOWLEDGED_BYTES`. A reference that the topic refuses
costs no other.
"""

import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from glob import has_magic
from hashlib import blake2b
from inspect import iscoroutine
from typing import NamedTuple

from msgspec import structs

from penstock import config
from penstock.adapters.kafka.announcer import announced_on
from penstock.adapters.kafka.keyed_writer import hashed
from penstock.adapters.kafka.positions_from_outside import open_positions
from penstock.adapters.kafka.reader import open_reader
from penstock.adapters.kafka.sink import KafkaSink
from penstock.adapters.kafka.topics import no_topic
from penstock.adapters.stores.choice import places_of_caller
from penstock.adapters.stores.local_files import local_path
from penstock.core.routing.model_routes import Routes
from penstock.core.routing.store_choice import StoreChoice
from penstock.core.routing.stream_keys import KeyTimes, StreamNames
from penstock.errors import usage
from penstock.failures.outage import until_answered
from penstock.messages.codec import encode_reference
from penstock.messages.prediction import printable
from penstock.messages.reference import Reference
from penstock.ports import Objects, Outgoing, Sink
from penstock.process.asyncio_additions import SystemClock, stopped_after
from penstock.tools.jobs.globs_and_manifests import At, Globs, Listing, open_manifest
from penstock.tools.jobs.listing_position import MARK, ListingPosition, open_position

log = logging.getLogger(__name__)

# A batch is sent when it has this size, a quarter of the largest that Kafka takes. Larger batches
# would not be faster.
SENT_BYTES = 256 << 10
WAITING_BYTES = 16 << 20
UNACKNOWLEDGED_BYTES = 16 << 20
# Kafka adds at most this many bytes to the key and value of a record.
_RECORD_BYTES = 24
# So many refused references are kept, to be told.
MOST_TOLD = 10
# A reference is told with so many characters, and the broker's words as well.
_TOLD_CHARS = 300


class _WaitingReferences:
    """The references of one partition that wait to be sent. `last`: the place of the last
    reference.
    """

    def __init__(self, topic: str, partition: int) -> None:
        self.out = Outgoing(topic, partition, [], [])
        self.nbytes = 0
        self.last: At = (0, 0)


class _Sent(NamedTuple):
    acknowledged: Awaitable[None]
    nbytes: int
    records: int


class Sending:
    """`position`: makes the marks, and checks before each batch that this process still owns the
    listing's position. None: batches have no marks. `refused`: how many references the topic has
    refused. `told`: what it refused first, and why.
    """

    def __init__(
        self, sink: Sink, topic: str, partitions: int, position: ListingPosition | None
    ) -> None:
        self.acknowledged = 0
        self.refused = 0
        self.first_refused: list[str] = []
        self._sink = sink
        self._topic = topic
        self._position = position
        self._full_bytes = min(SENT_BYTES, WAITING_BYTES // partitions)
        self._waiting: dict[int, _WaitingReferences] = {}
        self._sent: deque[_Sent] = deque()
        self._sent_bytes = 0

    def add(self, partition: int, key: bytes, value: bytes, at: At) -> bool:
        """Let a reference wait with the others of its partition. Returns True if so many wait now
        that the caller must `send` them.
        """
        waiting = self._waiting.get(partition)
        if waiting is None:
            waiting = self._waiting[partition] = _WaitingReferences(self._topic, partition)
        waiting.out.keys.append(key)
        waiting.out.values.append(value)
        waiting.last = at
        waiting.nbytes += len(key) + len(value) + _RECORD_BYTES
        return waiting.nbytes >= self._full_bytes

    async def send(self, partition: int) -> None:
        """Send the references that wait for a partition, as one batch. Waits while too many bytes
        are not acknowledged.
        """
        waiting = self._waiting.pop(partition)
        out, count = waiting.out, len(waiting.out.values)
        out.instead = self._leave_out
        if self._position is not None:
            out.headers = [[] for _ in range(count - 1)]
            out.headers.append([(MARK, self._position.mark(waiting.last, count))])
        while self._sent and self._sent_bytes + waiting.nbytes > UNACKNOWLEDGED_BYTES:
            await self._next_acknowledged()
        if self._position is not None:
            await self._position.be_sure()
        self._sent.append(_Sent(await self._sink.send(out), waiting.nbytes, count))
        self._sent_bytes += waiting.nbytes

    async def settle(self) -> None:
        """Send all references that still wait, and return when all that were sent are
        acknowledged.
        """
        for partition in list(self._waiting):
            await self.send(partition)
        while self._sent:
            await self._next_acknowledged()

    def drop(self) -> None:
        """Call this if the command has failed. After this call, nobody awaits acknowledgements any
        more.
        """
        for sent in self._sent:
            if iscoroutine(sent.acknowledged):
                sent.acknowledged.close()
        self._sent.clear()

    def _leave_out(self, index: int, value: bytes, reason: str) -> Sequence[bytes]:
        self.refused += 1
        self.acknowledged -= 1  # its batch counts it when the others are acknowledged
        if len(self.first_refused) < MOST_TOLD:
            reference = printable(value[:_TOLD_CHARS].decode(errors="replace"))
            self.first_refused.append(f"{reference}: {reason[:_TOLD_CHARS]}")
        return []

    async def _next_acknowledged(self) -> None:
        sent = self._sent.popleft()
        await sent.acknowledged
        self._sent_bytes -= sent.nbytes
        self.acknowledged += sent.records


# Below this number of objects there is no warning that all are in one partition.
FEW = 10
# At most this many streams are counted.
MANY = 1_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user wants to be announced: the objects that `urls` name (they may be globs), or
    those in the rows of `manifest`. `stream`: the stream of all objects; or a regular expression
    for their keys, in which a group named `stream` finds the stream; None: the worker's own rules
    name the streams. `resume`: True to go on where an earlier process ended. `anew`: True to begin
    again, and to keep the position for a later process.
    """

    urls: Sequence[str] = ()
    manifest: str | None = None
    stream: str | None = None
    resume: bool = False
    anew: bool = False

    @property
    def is_kept(self) -> bool:
        """True if the position is kept. It is not, if each object is named by itself."""
        is_listed = self.manifest is not None or any(map(has_magic, self.urls))
        return self.resume or self.anew or is_listed

    def group(self, cfg: config.Kafka) -> str:
        """The name of the group that keeps the position. The same arguments always give the same
        name.
        """
        message = "\n".join([announced_on(cfg), self.manifest or "", self.stream or "", *self.urls])
        return f"{cfg.group}.produce.{blake2b(message.encode(), digest_size=6).hexdigest()}"


@dataclass(slots=True)
class ProducedStream:
    """What is known of a stream: the number of its objects, and the models that answer them if the
    workers have the same settings.
    """

    objects: int = 0
    models: set[str] = field(default_factory=set)


class Produced(NamedTuple):
    """`references`: how many references were acknowledged. `streams`: a mapping from a stream's
    name to the stream; it has the first `MANY` streams. `before`: how many references earlier
    processes had announced. `refused`: how many references the topic refused. `first_refused`: what
    it refused first, and why.
    """

    references: int
    streams: Mapping[str, ProducedStream]
    before: int = 0
    refused: int = 0
    first_refused: Sequence[str] = ()

    @property
    def hint(self) -> str | None:
        """A warning if all objects are in one stream, because then only one worker has work.
        Otherwise None.
        """
        if len(self.streams) != 1 or self.references < FEW:
            return None
        return (
            "all of them are one stream, so one partition and one worker: for more, give each "
            "stream a folder of its own, or announce them with a --stream each"
        )


async def produce(
    cfg: config.Config,
    objects: Objects,
    wanted: Wanted,
    routes: Routes,
    *,
    on_sent: Callable[[int], None],
) -> Produced:
    """Publish a reference for each object. `on_sent`: a function that is called with the number of
    references so far, including those of earlier processes.
    """
    named = _name_of(wanted.stream, StreamNames(cfg.kafka.stream_from))
    listing = await _listing(cfg, objects, wanted)
    topic, sink = announced_on(cfg.kafka), KafkaSink(cfg.kafka, SystemClock())
    async with stopped_after(sink.stop):
        await sink.start()
        partitions = await sink.partitions(topic)
        if not partitions:
            raise no_topic(topic, cfg.kafka)
        async with _position(cfg, wanted, listing, topic, partitions) as position:
            if position is not None and position.is_done:
                return Produced(0, {}, position.before)
            times = KeyTimes(cfg.kafka.time_from, log.warning)
            made = _Announcing(sink, topic, partitions, position, wanted, routes, named, times)
            return await made.run(listing, on_sent)


class _Announcing:
    """One announcement. Call `run` once."""

    def __init__(
        self,
        sink: KafkaSink,
        topic: str,
        partitions: int,
        position: ListingPosition | None,
        wanted: Wanted,
        routes: Routes,
        named: Callable[[Reference], str],
        times: KeyTimes,
    ) -> None:
        count = partitions if position is None else position.partitions
        self._sending = Sending(sink, topic, count, position)
        self._partition_of = hashed(count)
        self._position = position
        self._said_stream = wanted.stream is not None
        self._routes = routes
        self._named = named
        self._times = times
        self._streams: dict[str, ProducedStream] = {}

    async def run(self, listing: Listing, on_sent: Callable[[int], None]) -> Produced:
        try:
            return await self._run(listing, on_sent)
        finally:
            self._sending.drop()

    async def _run(self, listing: Listing, on_sent: Callable[[int], None]) -> Produced:
        position, sending = self._position, self._sending
        before = 0 if position is None else position.before
        last = None if position is None else position.at
        count = 0
        async for chunk in listing.chunks(last):
            if position is not None:
                await position.begin()
            for at, reference in chunk:
                count += await self._announce(at, reference)
                last = at
            on_sent(before + count)
            if position is not None and position.is_due(last):
                await sending.settle()
                await position.keep(last, sending.acknowledged)
        await sending.settle()
        if position is not None:
            await position.keep(last, sending.acknowledged, is_done=True)
        return Produced(
            sending.acknowledged, self._streams, before, sending.refused, sending.first_refused
        )

    async def _announce(self, at: At, reference: Reference) -> bool:
        """Announce a reference. Returns False, and announces nothing, if an earlier process has
        announced it.
        """
        name = self._named(reference)
        partition = self._partition_of(name.encode())
        if self._position is not None:
            reached = self._position.reached.get(partition)
            if reached is not None and at <= reached:
                return False
        self._count(name, reference)
        if self._said_stream and reference.stream is None:
            # The stream is also written into the reference, because a worker's kafka.stream_from
            # overrides the Kafka key, but not this field.
            reference = structs.replace(reference, stream=name)
        value = encode_reference(self._times.timed(reference))
        if self._sending.add(partition, name.encode(), value, at):
            await self._sending.send(partition)
        return True

    def _count(self, name: str, reference: Reference) -> None:
        known = self._streams.get(name)
        if known is None:
            if len(self._streams) == MANY:
                return
            known = self._streams[name] = ProducedStream()
        known.objects += 1
        known.models.update(self._routes.of(name, reference.bucket, reference.key))


async def _listing(cfg: config.Config, objects: Objects, wanted: Wanted) -> Listing:
    places = StoreChoice(places_of_caller(cfg))
    if wanted.manifest is not None:
        return await open_manifest(objects, wanted.manifest, places)
    for url in wanted.urls:
        if local_path(url) is not None:
            raise usage(
                f"{url} is not an object of a store; write s3://bucket/key. A local folder "
                'is a store by objects.endpoint_url = "file:///FOLDER", or by a [stores.NAME] with '
                "a route, and each folder in it a bucket (penstock predict reads local files "
                "without)"
            )
    return Globs(objects, wanted.urls, places)


@asynccontextmanager
async def _position(
    cfg: config.Config, wanted: Wanted, listing: Listing, topic: str, partitions: int
) -> AsyncIterator[ListingPosition | None]:
    """Gives the block the position of the listing, or None if no position is kept. Raises `Fatal`
    if an earlier process ended before it was done, and the command has neither --resume nor --anew.
    """
    if not wanted.is_kept:
        yield None
        return
    async with (
        open_reader(cfg.kafka, "read_uncommitted") as reader,
        open_positions(cfg.kafka, wanted.group(cfg.kafka), topic, range(partitions)) as kept,
    ):
        # A broker that has just come up does not know yet which broker coordinates the group.
        await until_answered("Kafka broker", kept.read, SystemClock(), cfg.limits.start_ms / 1000)
        yield await open_position(
            kept,
            reader,
            topic,
            pin=listing.pin,
            partitions=partitions,
            resume=wanted.resume,
            anew=wanted.anew,
        )


def _name_of(stream: str | None, naming: StreamNames) -> Callable[[Reference], str]:
    """Returns a function that gives the name of a reference's stream. Raises `Fatal` for a wrong
    regular expression.
    """
    if stream is not None and "(?P<stream>" not in stream:
        return lambda _: stream
    if stream is not None:
        try:
            naming = StreamNames(stream)
        except re.error as error:
            message = f"--stream {stream!r} is no regular expression ({error})"
            raise usage(message) from None
    return lambda reference: naming.of(reference, "")
