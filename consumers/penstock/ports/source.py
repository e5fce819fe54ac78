"""The input: topics read as a member of a consumer group, and where that group is.

Rule: partitions have numbers here; `where` says which is which. Owner: the consume task polls,
settle commits.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from penstock.core.health.region_help import Standing


class Record(NamedTuple):
    """A Kafka message of an input topic. `timestamp_ms` is the broker's or producer's epoch time;
    `partition` is the number that the source has for it; `traceparent` the header, unchecked.
    `headers`: all of them, from a source that leaves the value as it came.
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


# A start in `assigned`: another member's transaction, which is still open, may move the position.
# `rewind` tells it once that is decided.
UNDECIDED = Commit(-1)


class Rebalance(Protocol):
    """Called by the source, in its own task. What these raise ends the worker."""

    async def suspended(self, partitions: Collection[int]) -> None:
        """A rebalance begins: returns when nothing of these partitions will be published or
        committed until they are assigned again. Those that are not are revoked.
        """
        ...

    async def assigned(self, starts: Mapping[int, Commit]) -> Mapping[int, int]:
        """These partitions are ours from the given positions on. Their records
        follow, none before. `UNDECIDED` is only given exactly once.

        Returns the offsets from which suspended partitions go on, which have read further than
        they committed. All others begin at their start.
        """
        ...

    async def revoked(self, partitions: Collection[int]) -> None:
        """Hand back: returns when nothing of these partitions will be published or
        committed any more.
        """
        ...


class Polled(Protocol):
    """Topics that are read as one member of a consumer group. Used by one task.

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

    def reached(self) -> Mapping[int, int]:
        """Where the next read of each partition of ours begins. All records before were given out;
        behind the last of them may be offsets that are none, as a transaction's end is.
        """
        ...

    async def stop(self) -> None:
        """Leave the group; does not call `revoked`. Safe to call twice."""
        ...


class Followed(Polled, Protocol):
    def known_ends(self) -> Mapping[int, int]:
        """For each partition the offset after its last record, as the last reads saw it."""
        ...


class Source(Polled, Protocol):
    """The input topics. Used by one task, except `commit`."""

    async def commit(self, commits: Mapping[int, Commit]) -> None:
        """One request for all. Raises `Transient`; a partition no longer ours is
        silently left out.
        """
        ...

    def pause(self, partition: int) -> None:
        """Fetch no more records of this partition until it is rewound or assigned again."""
        ...

    async def rewind(self, partitions: Collection[int]) -> Mapping[int, Commit]:
        """Read the committed positions again and go on from there. Raises `Transient`, exactly once
        `Undecided` while an open transaction may move one of them; a partition no longer ours is
        left out.
        """
        ...

    async def words(self, partitions: Collection[int]) -> Mapping[int, str]:
        """What people say of their lines (`core.order.operator_words`). Raises `Transient`, or
        `Fatal` where that may not be read.
        """
        ...

    def where(self, partition: int) -> Where:
        """Topic and partition behind a number of ours, for good."""
        ...

    def partitions(self) -> int:
        """How many the topics have, as far as is known by now: they may grow."""
        ...

    async def end_offsets(self) -> Mapping[int, int]:
        """The next offset to be written, for each assigned partition."""
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
