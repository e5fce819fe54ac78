"""The input: topics that are read as a member of a consumer group, and the positions of that group.

Rule: partitions have numbers here; `where` tells topic and partition of a number. Owner: the
consume task polls, and settle commits.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from penstock.core.health.other_groups import RegionState


class Record(NamedTuple):
    """A Kafka message of an input topic. `partition`: the source's number of the partition.
    `timestamp_ms`: epoch milliseconds, by the broker or the producer. `traceparent`: the header,
    unchecked. `headers`: all headers, from a source that does not decode them into the value.
    """

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    traceparent: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()


class Where(NamedTuple):
    """A partition of an input topic."""

    topic: str
    partition: int


class Commit(NamedTuple):
    """`next_offset` is the next record to read; `metadata` is ASCII of at most 4,000 characters."""

    next_offset: int
    metadata: str = ""


# Given to `assigned` in the place of a position that an open transaction of another member may
# still move. `rewind` tells the position once that transaction has ended.
UNDECIDED = Commit(-1)


class Rebalance(Protocol):
    """Called by the source, in the source's own task. An exception that these methods raise ends
    the worker.
    """

    async def suspended(self, partitions: Collection[int]) -> None:
        """A rebalance begins. Returns when nothing of these partitions will be published or
        committed until they are assigned again. Partitions that are not assigned again are revoked.
        """
        ...

    async def assigned(self, starts: Mapping[int, Commit]) -> Mapping[int, int]:
        """These partitions are ours from the given positions on. No record of them was given out
        before this call. `UNDECIDED` is given only with exactly-once delivery.

        Returns the offsets from which suspended partitions go on; such a partition has read further
        than it has committed. All other partitions begin at the position in `starts`.
        """
        ...

    async def revoked(self, partitions: Collection[int]) -> None:
        """Give these partitions up. Returns when nothing of them will be published or committed any
        more.
        """
        ...


class Polled(Protocol):
    """Topics that are read as one member of a consumer group. Used by one task.

    Each partition has a number here: its own where there is one topic, any number where there are
    several. `where` tells topic and partition of a number.
    """

    async def start(self, rebalance: Rebalance) -> None:
        """Join the group. Raises `Unreachable`, or `Fatal` for what waiting cannot mend."""
        ...

    async def poll(self, partitions: Collection[int], wait_ms: int) -> Sequence[Record]:
        """Records of these partitions, each partition's in the order of offsets; an empty list if
        none came within about `wait_ms`.

        An empty `partitions` reads nothing, yet shows the group that this member lives.
        """
        ...

    def reached(self) -> Mapping[int, int]:
        """The offset from which each partition is read next. All records before that offset were
        given out. Behind the last record there may be offsets without a record, such as the end of
        a transaction.
        """
        ...

    async def stop(self) -> None:
        """Leave the group, without a call of `revoked`. May be called twice."""
        ...


class Followed(Polled, Protocol):
    def known_ends(self) -> Mapping[int, int]:
        """For each partition the offset after its last record, as the latest reads told it."""
        ...


class Source(Polled, Protocol):
    """The input topics. Used by one task, except for `commit`."""

    async def commit(self, commits: Mapping[int, Commit]) -> None:
        """Commit these positions, in one request. Raises `Transient`. A partition that is no longer
        ours is left out without an error.
        """
        ...

    def pause(self, partition: int) -> None:
        """Fetch no more records of this partition until it is rewound or assigned again."""
        ...

    async def rewind(self, partitions: Collection[int]) -> Mapping[int, Commit]:
        """Read the committed positions again, and go on from there. Raises `Transient`; with
        exactly-once delivery also `Undecided`, while an open transaction may move one of them. A
        partition that is no longer ours is left out.
        """
        ...

    async def words(self, partitions: Collection[int]) -> Mapping[int, str]:
        """For each of these partitions, what operators say about stops of the partition or of its
        streams, encoded (`core.order.line_stop.decode_words`). Raises `Transient`, or `Fatal` if
        reading these texts is not allowed.
        """
        ...

    def where(self, partition: int) -> Where:
        """Topic and partition of a number. A number never changes its meaning."""
        ...

    def partitions(self) -> int:
        """How many partitions the topics have, as far as is known by now: topics may grow."""
        ...

    async def end_offsets(self) -> Mapping[int, int]:
        """The offset that the next written record will have, for each assigned partition."""
        ...


class Neighbours(Protocol):
    """Other regions, each with a consumer group that a worker may join. Each region is used by one
    task.
    """

    async def look(self, region: str | None) -> RegionState:
        """The state of a region; None: of our own. Raises `Transient`, or `Fatal` for what waiting
        cannot mend.
        """
        ...

    def join(self, region: str) -> Source:
        """A new member of the region's group, which the caller must start. The worker's own source
        commits the positions of both members: it knows the new member's partitions by the numbers
        that the new member gives them.
        """
        ...

    def left(self, region: str) -> None:
        """The member of this region's group has stopped."""
        ...
