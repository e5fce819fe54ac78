"""The boundaries of the pipeline, as promises an adapter keeps.

Rule: stages know these and no client library; adapters know these and no stage. Every adapter of a
port passes the one contract suite in `tests/adapters/`. Only errors of `consumers.errors` cross a
port, besides cancellation.
"""

from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from consumers.core.payload import Payload
from consumers.core.places import DEFAULT
from consumers.core.regions import Standing


class Record(NamedTuple):
    """A Kafka message of an input topic. `timestamp_ms` is the broker's or producer's epoch time;
    `partition` is the number that the source has for it.
    """

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


class Where(NamedTuple):
    """A partition of an input topic."""

    topic: str
    partition: int


class Commit(NamedTuple):
    """`next_offset` is the next record to read; `metadata` is ASCII of at most 4,000 characters."""

    next_offset: int
    metadata: str = ""


class Rebalance(Protocol):
    """Called by the source, in its own task. What these raise ends the worker."""

    async def assigned(self, starts: Mapping[int, Commit]) -> None:
        """These partitions are ours from the given positions on. Their records
        follow, none before.
        """
        ...

    async def revoked(self, partitions: Collection[int]) -> None:
        """Hand back: returns when nothing of these partitions will be published or
        committed any more.
        """
        ...


class Source(Protocol):
    """The input topics, as one member of the consumer group. Used by one task, except `commit`.

    Partitions have a number for each here: their own where there is one topic, any where there are
    several; `where` says which is which.
    """

    async def start(self, rebalance: Rebalance) -> None:
        """Join the group. Raises `Unreachable`, or `Fatal` for what waiting cannot mend."""
        ...

    async def poll(self, partitions: Collection[int], wait_ms: int) -> Sequence[Record]:
        """Records of these partitions, in offset order each; empty after about `wait_ms` without
        any.

        An empty `partitions` reads nothing, yet counts as a sign of life for the group.
        """
        ...

    async def commit(self, commits: Mapping[int, Commit]) -> None:
        """One request for all. Raises `Transient`; a partition no longer ours is
        silently left out.
        """
        ...

    def pause(self, partition: int) -> None:
        """Fetch nothing of it for the rest of this assignment."""
        ...

    def where(self, partition: int) -> Where:
        """Topic and partition behind a number of ours, for good."""
        ...

    def reached(self) -> Mapping[int, int]:
        """Where the next read of each partition of ours begins. All records before were given out;
        behind the last of them may be offsets that are none, as a transaction's end is.
        """
        ...

    def partitions(self) -> int:
        """How many the topics have, as far as is known by now: they may grow."""
        ...

    async def end_offsets(self) -> Mapping[int, int]:
        """The next offset to be written, for each assigned partition."""
        ...

    async def stop(self) -> None:
        """Leave the group; does not call `revoked`. Safe to call twice."""
        ...


class Neighbours(Protocol):
    """Other regions, each with a group of its own that a worker may join. One task a region."""

    async def look(self, region: str | None) -> Standing:
        """How it stands; None: how our own does. Raises `Transient`, or `Fatal` for what waiting
        cannot mend.
        """
        ...

    def join(self, region: str) -> Source:
        """A member of its group, to be started. The worker's own source commits for it, too, and
        knows its partitions by the numbers that it gives them.
        """
        ...

    def left(self, region: str) -> None:
        """That member has stopped."""
        ...


class Location(NamedTuple):
    """Which bytes: exactly this key, of this version when one is given, else of this entity tag.
    `store`: by its name in the configuration.
    """

    bucket: str
    key: str
    version_id: str | None = None
    etag: str | None = None
    store: str = DEFAULT


class Body(Protocol):
    """An object being read, pinned to one version. Iterate once; `aclose` in any case."""

    @property
    def size(self) -> int: ...

    @property
    def etag(self) -> str | None:
        """As the store gives it, quotes included."""
        ...

    @property
    def version_id(self) -> str | None: ...

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Chunks of at most a few MiB. A broken transfer raises `Transient` after own retries."""
        ...

    async def aclose(self) -> None: ...


class Part(NamedTuple):
    """Some bytes of an object, and which version of which size they are of."""

    data: bytes
    size: int
    etag: str | None
    version_id: str | None


class Listed(NamedTuple):
    """An object as a listing names it."""

    location: Location
    size: int


class Objects(Protocol):
    """The object stores. Any number of tasks."""

    async def open(self, location: Location) -> Body:
        """Start reading. Raises `Poison` (not_found, forbidden, changed),
        `Transient` or `Unreachable`.
        """
        ...

    async def part(self, location: Location, start: int, stop: int | None = None) -> Part:
        """Bytes `start` to `stop` (half open; None: to the end), read whole. A negative `start`
        counts from the end; of a shorter object that is all of it. Raises as `open` does; a start
        at or behind the end of an object that is not empty is `changed`.
        """
        ...

    def list(self, bucket: str, pattern: str, store: str = DEFAULT) -> AsyncIterator[Listed]:
        """Objects whose key matches the glob (`*`, `?`, `[...]` within a folder, `**`
        across), by key.
        """
        ...

    async def aclose(self) -> None: ...


class Stored(NamedTuple):
    """A result object that is complete: its version id, else its entity tag, if the store says."""

    version: str | None


class Upload(Protocol):
    """A result object being written. One task; ends by `complete` or by `abort`."""

    async def write(self, data: bytes) -> None:
        """The next bytes. Waits while those before are on their way: that is the brake. Raises
        `Transient` after own retries, `Fatal` for what waiting cannot mend.
        """
        ...

    async def complete(self) -> Stored:
        """All is written: from here on the object can be read, in place of one that was there
        before. Raises as `write` does, and then there is no more to be seen than before.
        """
        ...

    async def abort(self) -> None:
        """Nothing is left of it, as far as the store answers within the adapter's deadline."""
        ...


class Results(Protocol):
    """Where result objects are written. Any number of tasks, one for each name."""

    def begin(self, location: Location) -> Upload:
        """What an earlier worker began under this name and did not end is removed, at the latest
        when a new one is too long for one request.
        """
        ...

    async def aclose(self) -> None: ...


class Answers(NamedTuple):
    """What the model said, one entry per row of the batch, in order.

    `values[i]` is prediction i as JSON text; `errors` has the rows the model rejected by themselves
    (their value is `b"null"`). `nbytes`: the values together have no more, where the adapter knows
    that without counting.
    """

    values: Sequence[bytes]
    errors: Mapping[int, str]
    nbytes: int | None = None


class Model(Protocol):
    """The model server. Any number of tasks; the caller bounds them."""

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        """One request with all rows of `payloads` (equal shape), in order. Without payloads: is the
        model there? How that is asked is the adapter's to know.

        Raises `Rejected`/`Poison` for the rows, `Transient`/`Unreachable` for the server,
        `Fatal` for settings.
        """
        ...

    async def ready(self) -> bool:
        """Does the model answer? Never raises for a server that is away."""
        ...

    @property
    def version(self) -> str | None: ...

    @property
    def most_rows(self) -> int | None:
        """In one request, as far as the server says; None: any number."""
        ...

    async def aclose(self) -> None: ...


@dataclass(slots=True)
class Outgoing:
    """Records for one output partition, in order, and the position they complete."""

    topic: str
    partition: int
    keys: list[bytes | None]
    values: list[bytes]


class Sink(Protocol):
    """The output topics. One task per output partition, so that order is the order of the calls."""

    async def start(self) -> None: ...

    async def partitions(self, topic: str) -> int:
        """How many partitions; 0 when there is no such topic. From then on no batch is larger than
        the topic takes. Raises `Unreachable`.
        """
        ...

    async def send(self, outgoing: Outgoing) -> Awaitable[None]:
        """Hand over; returns when accepted, with an awaitable that is done when the broker has it
        all.

        Blocks while earlier records of that partition are still being handed over: that
        is the brake.
        """
        ...

    def fits(self, topic: str, key: bytes | None, value_bytes: int) -> bool:
        """Would the topic take a record with a value of so many bytes?"""
        ...

    async def forget(self) -> None:
        """Nothing of what was accepted and is not delivered is sent from now on, except what is on
        the wire already. Nobody waits for its deliveries any more.
        """
        ...

    async def stop(self) -> None:
        """Deliver what was accepted, within the adapter's deadline; then close."""
        ...


class Positions(Protocol):
    """A source that can go back to where its group is."""

    async def rewind(self, partitions: Collection[int]) -> Mapping[int, Commit]:
        """Read the committed positions again and go on from there. Raises `Transient`; a partition
        no longer ours is left out.
        """
        ...


class Outlet(Protocol):
    """The way out of one partition of the input, exactly once. One task at a time."""

    async def publish(self, outgoing: Sequence[Outgoing], position: Commit) -> None:
        """The records and the partition's new position become visible together, or neither.

        After a failure or a cancellation the outlet is spent: which of the two it was is said by
        the committed position, once the next outlet is open. Raises `Fenced`, `Transient`, `Fatal`.
        """
        ...

    async def close(self) -> None:
        """Take back what is not committed, within the adapter's deadline. Safe to call twice."""
        ...


class Outlets(Protocol):
    """Transactions, an outlet per partition of the input topic. Any number of tasks."""

    async def open(self, partition: int) -> Outlet:
        """When this returns, earlier outlets of the partition are fenced, those of other
        workers too, and what they had begun is decided: its committed position stays. Raises
        `Transient` or `Fatal`.
        """
        ...


class Transactions(NamedTuple):
    """What exactly-once takes."""

    outlets: Outlets
    positions: Positions


class Clock(Protocol):
    """Time as an argument of the whole pipeline, so that tests can own it."""

    def now(self) -> float:
        """Monotonic seconds, the running event loop's own."""
        ...

    def wall_ms(self) -> int:
        """Epoch milliseconds."""
        ...


class Guest(NamedTuple):
    """A shadow model, and a way out of its own: nothing of it is shared with live work."""

    model: Model
    sink: Sink


@dataclass(frozen=True, slots=True)
class Adapters:
    """One implementation of each port. With `transactions` answers leave exactly once; with
    `results` they are written as objects. `models` are those beside the default one, by name;
    `neighbours` the regions that may be helped; `shadow` is asked what the default one was.
    """

    source: Source
    objects: Objects
    model: Model
    sink: Sink
    clock: Clock
    transactions: Transactions | None = None
    results: Results | None = None
    models: Mapping[str, Model] = field(default_factory=dict)
    neighbours: Neighbours | None = None
    shadow: Guest | None = None
