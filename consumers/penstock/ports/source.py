"""The input topics, which are read as a member of a consumer group, and the positions of that
group.

Rule: topic and partition together are the key of a partition, because a group may read several
topics.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from penstock.core.health.other_groups import RegionState
from penstock.core.progress.cursor import Commit
from penstock.core.progress.line_stop import Word
from penstock.core.rows.origin import Record, Where

# `assigned` gets this value instead of a position if an open transaction of another member may
# still move the position. `rewind` tells the position once that transaction has ended.
UNDECIDED = Commit(-1)


class Rebalance(Protocol):
    """The source calls these methods, in its own task. If one of them raises an exception, the
    worker ends.
    """

    async def suspended(self, partitions: Collection[Where]) -> None:
        """A rebalance begins, so the work on these partitions pauses. After this returns, nothing
        of them is published or committed until they are assigned again. Partitions that are not
        assigned again are revoked.
        """
        ...

    async def assigned(self, starts: Mapping[Where, Commit]) -> Mapping[Where, int]:
        """These partitions belong to this member from now on. `starts`: the position at which each
        of them begins; `UNDECIDED` comes only with exactly-once delivery. No record of this
        assignment was given out before this call.

        Returns, for each suspended partition that goes on with its work, the offset at which its
        reading goes on: it has read further than it has committed. All other partitions begin at
        the position in `starts`.
        """
        ...

    async def revoked(self, partitions: Collection[Where]) -> None:
        """Give these partitions up. After this returns, nothing of them is published or committed
        any more.
        """
        ...


class Polled(Protocol):
    """Topics that are read as one member of a consumer group. Only one task may use them."""

    async def start(self, rebalance: Rebalance) -> None:
        """Join the group. Raises `Unreachable`, or `Fatal` if waiting cannot help."""
        ...

    async def poll(self, partitions: Collection[Where], wait_ms: int) -> Sequence[Record]:
        """The next records of these partitions. The records of each partition are in the order of
        their offsets. The list is empty if no record came within about `wait_ms`.

        If `partitions` is empty, nothing is read, but the call shows the group that this member
        lives.
        """
        ...

    def reached(self) -> Mapping[Where, int]:
        """For each partition: the offset from which it is read next. All records before that offset
        were given out. After the last record there may be offsets without a record, such as the end
        of a transaction; these are passed over, too.
        """
        ...

    async def stop(self) -> None:
        """Leave the group, without a call of `revoked`. May be called twice."""
        ...


class Followed(Polled, Protocol):
    def known_ends(self) -> Mapping[Where, int]:
        """For each partition: the offset after its last record, as the latest read told it."""
        ...


class InputSource(Polled, Protocol):
    """The input topics. Only one task may use them, but another one may call `commit`."""

    async def commit(self, commits: Mapping[Where, Commit]) -> None:
        """Commit these positions, in one request. A partition that no longer belongs to this member
        is left out without an error. Raises `Transient`.
        """
        ...

    def pause(self, partition: Where) -> None:
        """Fetch no more records of this partition until it is rewound or assigned again."""
        ...

    async def rewind(self, partitions: Collection[Where]) -> Mapping[Where, Commit]:
        """Read the committed positions of these partitions again, and go on reading from there.
        Returns the positions; a partition that no longer belongs to this member is left out. Raises
        `Transient`; with exactly-once delivery also `Undecided`, if an open transaction may still
        move one of the positions.
        """
        ...

    async def words(self, partitions: Collection[Where]) -> Mapping[Where, str]:
        """For each of these partitions: what operators have said about stops of the partition or of
        its streams, as text for `core.progress.line_stop.decode_words`. Raises `Transient`, or
        `Fatal` if reading these texts is not allowed.
        """
        ...

    async def mark_obeyed(self, partition: Where, words: Collection[Word]) -> None:
        """Mark these words about the partition, so that no worker obeys them again. Raises
        `Transient`, or `Fatal` if writing them is not allowed.
        """
        ...

    def topic_id(self, partition: Where) -> str | None:
        """The id of the partition's topic, as Kafka's own tools write it. A topic that is deleted
        and created again has another id. None: the broker does not tell it.
        """
        ...

    def partitions(self) -> int:
        """How many partitions the topics had when the source last asked: topics may grow."""
        ...

    async def end_offsets(self) -> Mapping[Where, int]:
        """For each assigned partition: the offset that the next written record will have."""
        ...


class Neighbours(Protocol):
    """Other regions, each with a consumer group that a worker may join. Each region is used by one
    task.
    """

    async def look(self, region: str | None) -> RegionState:
        """The state of a region. If `region` is None: the state of our own region. Raises
        `Transient`, or `Fatal` if waiting cannot help.
        """
        ...

    def join(self, region: str) -> InputSource:
        """Make a new member of the region's group; the caller must start it. The worker's own
        source commits the positions of both members.
        """
        ...

    def left(self, region: str) -> None:
        """Tell that the member of this region's group has stopped."""
        ...
