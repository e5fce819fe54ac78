"""Notices that an input topic was deleted and made again under its name.

Rule: an offset belongs to one incarnation of a topic, which Kafka tells apart by the topic's id. In
the next incarnation the same offset is another record, and the records before it would never be
read, without a word. A client notices this only if the new log is still shorter than its position.
So the ids are asked for at each assignment, and again with each question about the ends. The
commits of other members are trusted, because a broker that deletes a topic deletes the group's
commits of it. Pure. Owner: the source of either Kafka client.
"""

from base64 import urlsafe_b64encode
from collections.abc import Collection, Mapping

from aiokafka import TopicPartition


class Incarnations:
    """`stale`: partitions that this member reads by a position of a former incarnation."""

    def __init__(self) -> None:
        self.stale: set[TopicPartition] = set()
        self._ids: dict[str, bytes] = {}
        # For each partition of this member: the incarnation that its position belongs to.
        self._begun: dict[TopicPartition, bytes | None] = {}

    def learn(self, ids: Mapping[str, bytes]) -> None:
        """Take the ids that topics have now."""
        self._ids |= ids
        self.stale = {
            where
            for where, former in self._begun.items()
            if former is not None and former != self._ids[where.topic]
        }

    def of(self, topic: str) -> str | None:
        """The topic's present id, as Kafka's own tools write it."""
        return text_of(self._ids.get(topic))

    def begin(
        self, partitions: Collection[TopicPartition], held: Collection[TopicPartition]
    ) -> list[TopicPartition]:
        """Positions in `partitions` are of the present incarnation from now on. Returns those whose
        former position was not. `held`: the other partitions that this member has.
        """
        former = [where for where in partitions if where in self.stale]
        ids = {where: self._ids.get(where.topic) for where in partitions}
        self._begun = {where: self._begun.get(where) for where in held} | ids
        self.stale.intersection_update(held)
        self.stale.difference_update(partitions)
        return former


def text_of(id: bytes | None) -> str | None:
    """A topic's id as Kafka's own tools write it."""
    return None if id is None else urlsafe_b64encode(id).rstrip(b"=").decode()
