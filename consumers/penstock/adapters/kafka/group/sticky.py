"""How the group divides its partitions: they stay where they are, as far as even shares allow.

Rule: a member says which partitions it had, and in which generation. If two say that they had one,
it stays with that of the later generation: the other was expelled meanwhile. The member who is
asked to divide stands still meanwhile, with all its lanes; so this takes a step for each partition.
Owner: the source.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from heapq import heapify, heapreplace
from typing import Any

from aiokafka import TopicPartition
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

Had = tuple[int, Iterable[TopicPartition]]


def sticky() -> type[StickyPartitionAssignor]:
    """It goes by the name of range, as a group only takes members that offer an assignor of all its
    others: older releases and other clients offer range. Whichever member is asked to assign does
    it in its own way; the others take what they are given. aiokafka keeps a member's partitions in
    the class, so each consumer has a class of its own.
    """

    class Sticky(StickyPartitionAssignor):  # type: ignore[misc]
        name = "range"

        @classmethod
        def assign(cls, cluster: Any, members: Mapping[str, Any]) -> dict[str, Any]:
            topics = {topic for one in members.values() for topic in one.subscription}
            if any(set(one.subscription) != topics for one in members.values()):
                # While workers with other topics take the place of the former ones, or a topic that
                # matches kafka.input_pattern is known to some.
                return dict(super().assign(cluster, members))
            known = {topic: cluster.partitions_for_topic(topic) or () for topic in topics}
            partitions = {TopicPartition(topic, one) for topic in known for one in known[topic]}
            said = {name: cls.parse_member_metadata(one) for name, one in members.items()}
            had = {name: (one.generation, one.partitions) for name, one in said.items()}
            return {
                name: ConsumerProtocolMemberAssignment(cls.version, _by_topic(its), b"")
                for name, its in divided(partitions, had).items()
            }

    return Sticky


def divided(
    partitions: Collection[TopicPartition], had: Mapping[str, Had]
) -> dict[str, list[TopicPartition]]:
    """By member its partitions: shares differ by one at most, and nothing moves that need not.
    `had`: by member the generation, and what it had in it.
    """
    kept, free = _kept(partitions, had)
    least, more = divmod(len(partitions), len(had))
    # If the division leaves a rest, the members who have most keep one more each.
    for place, name in enumerate(sorted(kept, key=lambda name: (-len(kept[name]), name))):
        most = least + (place < more)
        # By number before topic, so that of several topics each member keeps some of each.
        kept[name].sort(key=lambda one: (one.partition, one.topic))
        free += kept[name][most:]
        del kept[name][most:]
    fewest = [(len(its), name) for name, its in kept.items()]
    heapify(fewest)
    # By topic before number, so that of each topic all get some.
    for one in sorted(free):
        count, name = fewest[0]
        kept[name].append(one)
        heapreplace(fewest, (count + 1, name))
    return kept


def _kept(
    partitions: Collection[TopicPartition], had: Mapping[str, Had]
) -> tuple[dict[str, list[TopicPartition]], list[TopicPartition]]:
    """What each member had, of what there is; and what nobody had."""
    owners: dict[TopicPartition, tuple[int, str]] = {}
    for name, (generation, its) in had.items():
        for one in its:
            owners[one] = max(owners.get(one, (generation, name)), (generation, name))
    kept: dict[str, list[TopicPartition]] = {name: [] for name in had}
    free: list[TopicPartition] = []
    for one in partitions:
        owner = owners.get(one)
        (free if owner is None else kept[owner[1]]).append(one)
    return kept, free


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    found: dict[str, list[int]] = defaultdict(list)
    for one in sorted(partitions):
        found[one.topic].append(one.partition)
    return list(found.items())
