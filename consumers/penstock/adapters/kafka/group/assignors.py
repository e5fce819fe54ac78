"""Two ways in which a group divides its partitions: they stay with their members as far as even
shares allow (`sticky`), or one member gets all (`OneOwner`).

Rule: of two members that tell that they had a partition, that of the later generation keeps it: the
other was expelled meanwhile. While one member divides for all, its own lanes stand still, so the
work may not grow faster than the number of partitions.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from heapq import heapify, heapreplace
from typing import Any

from aiokafka import TopicPartition
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

Had = tuple[int, Iterable[TopicPartition]]


def sticky() -> type[StickyPartitionAssignor]:
    """Returns an assignor class that only one consumer may use, because aiokafka keeps a member's
    partitions in the class.

    The class has the name "range": a group takes a member only if the member offers an assignor
    that all others offer, and older releases and other clients offer "range". One member is asked
    to divide the partitions. It does so in its own way, and the other members accept the result.
    """

    class Sticky(StickyPartitionAssignor):  # type: ignore[misc]
        name = "range"

        @classmethod
        def assign(cls, cluster: Any, members: Mapping[str, Any]) -> dict[str, Any]:
            topics = {topic for member in members.values() for topic in member.subscription}
            if any(set(member.subscription) != topics for member in members.values()):
                # The members' topics differ for a while when workers with other topics replace the
                # former ones, or when only some members know a new topic that matches
                # kafka.input_pattern. Then not every member can take every partition. aiokafka's
                # own way of dividing heeds this.
                return dict(super().assign(cluster, members))
            known = {topic: cluster.partitions_for_topic(topic) or () for topic in topics}
            partitions = {
                TopicPartition(topic, number) for topic in known for number in known[topic]
            }
            metadata = {name: cls.parse_member_metadata(member) for name, member in members.items()}
            had = {
                name: (member.generation, member.partitions) for name, member in metadata.items()
            }
            return {
                name: ConsumerProtocolMemberAssignment(cls.version, _by_topic(parts), b"")
                for name, parts in divided(partitions, had).items()
            }

    return Sticky


def divided(
    partitions: Collection[TopicPartition], had: Mapping[str, Had]
) -> dict[str, list[TopicPartition]]:
    """The partitions of each member. Shares differ by one at most, and no partition moves without
    need. `had`: a mapping from each member to its last generation and its partitions in that
    generation.
    """
    kept, free = _kept(partitions, had)
    least, more = divmod(len(partitions), len(had))
    # If the partitions cannot be divided evenly, the members that had most get one more each.
    for place, name in enumerate(sorted(kept, key=lambda name: (-len(kept[name]), name))):
        most = least + (place < more)
        # Sorted by number before topic, so that each member keeps some partitions of every topic.
        kept[name].sort(key=lambda topic_part: (topic_part.partition, topic_part.topic))
        free += kept[name][most:]
        del kept[name][most:]
    fewest = [(len(parts), name) for name, parts in kept.items()]
    heapify(fewest)
    # Sorted by topic before number, so that all members get some partitions of every topic.
    for part in sorted(free):
        count, name = fewest[0]
        kept[name].append(part)
        heapreplace(fewest, (count + 1, name))
    return kept


def _kept(
    partitions: Collection[TopicPartition], had: Mapping[str, Had]
) -> tuple[dict[str, list[TopicPartition]], list[TopicPartition]]:
    """Returns two things: a mapping from each member to those of the partitions that it had; and
    the partitions that no member had.
    """
    owners: dict[TopicPartition, tuple[int, str]] = {}
    for name, (generation, parts) in had.items():
        for part in parts:
            owners[part] = max(owners.get(part, (generation, name)), (generation, name))
    kept: dict[str, list[TopicPartition]] = {name: [] for name in had}
    free: list[TopicPartition] = []
    for part in partitions:
        owner = owners.get(part)
        (free if owner is None else kept[owner[1]]).append(part)
    return kept, free


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for partition in sorted(partitions):
        numbers[partition.topic].append(partition.partition)
    return list(numbers.items())


class OneOwner(AbstractPartitionAssignor):  # type: ignore[misc]
    """Gives every partition to the member with the smallest id; the other members stand by."""

    name = "penstock-one-owner"
    version = 0

    @classmethod
    def assign(cls, cluster: Any, members: Mapping[str, Any]) -> dict[str, Any]:
        topics = sorted({topic for member in members.values() for topic in member.subscription})
        everything = [
            (topic, sorted(numbers))
            for topic in topics
            if (numbers := cluster.partitions_for_topic(topic))
        ]
        owner = min(members)
        return {
            member: ConsumerProtocolMemberAssignment(
                cls.version, everything if member == owner else [], b""
            )
            for member in members
        }

    @classmethod
    def metadata(cls, topics: Iterable[str]) -> Any:
        return ConsumerProtocolMemberMetadata(cls.version, list(topics), b"")

    @classmethod
    def on_assignment(cls, assignment: Any) -> None:
        """Does nothing: the assignor remembers no assignment."""
