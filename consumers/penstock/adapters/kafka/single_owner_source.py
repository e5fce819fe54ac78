"""The input topics, read by a single member of the group; the other members stand by.

Rule: one member gets all partitions, because only a member that reads all of them can put their
records in order. Owner: the rekeyer.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiokafka import TopicPartition
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from penstock import config
from penstock.adapters.kafka.inside.handles import client_of
from penstock.adapters.kafka.positions import positions
from penstock.adapters.kafka.source import KafkaSource
from penstock.ports import Commit, Record

# How long a rebalance may wait for the open transaction.
DRAIN_MS = 5_000


class OneOwner(AbstractPartitionAssignor):  # type: ignore[misc]
    """Gives every partition to the member with the smallest id."""

    name = "penstock-one-owner"
    version = 0

    @classmethod
    def assign(cls, cluster: Any, members: Mapping[str, Any]) -> dict[str, Any]:
        topics = sorted({topic for one in members.values() for topic in one.subscription})
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


class SingleOwnerSource(KafkaSource):
    """Hands over each record with value and headers unchanged. `before`: the group of the workers,
    which read these topics until now. That group's positions are used as long as our group has
    none.
    """

    assignor = OneOwner

    def __init__(self, settings: config.Kafka, *, before: str) -> None:
        # `decided`: the end of a former owner's transaction may come a moment before its positions
        # count.
        super().__init__(settings, drain_ms=DRAIN_MS, decided=True)
        self._before = before

    @staticmethod
    def record(number: int, message: Any) -> Record:
        return Record(
            number,
            message.offset,
            message.key,
            message.value,
            message.timestamp,
            headers=message.headers,
        )

    async def group_positions(
        self, wanted: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Commit | None]:
        found = dict(await super().group_positions(wanted))
        fresh = [where for where, commit in found.items() if commit is None]
        if fresh:
            former = await positions(client_of(self._consumer), self._before, fresh)
            # Only the offset counts. The metadata tells how many rows of a record the workers have
            # answered, and they answer these rows again.
            found |= {
                where: commit and Commit(commit.next_offset) for where, commit in former.items()
            }
        return found
