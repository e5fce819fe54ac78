"""Gives each partition of the input topics one number that is unique within the worker.

Rule: with one topic the number is Kafka's own number of the partition. With several topics a
partition gets the next free number when it is first seen, and keeps it as long as the process
lives. Owner: the source; the sources of several regions share one `Numbers`.
"""

from collections.abc import Sequence

from aiokafka import TopicPartition


class Numbers:
    """`number` gives the number of a partition, and `of` gives the partition of a number."""

    def __init__(self, topics: Sequence[str]) -> None:
        """`topics`: the input topics; empty if a pattern selects them."""
        self._topic = topics[0] if len(topics) == 1 else None
        self._numbers: dict[TopicPartition, int] = {}
        self._met: list[TopicPartition] = []

    def number(self, where: TopicPartition) -> int:
        if self._topic is not None:
            return int(where.partition)
        if where not in self._numbers:
            self._numbers[where] = len(self._met)
            self._met.append(where)
        return self._numbers[where]

    def number_of(self, topic: str, partition: int) -> int:
        return self.number(TopicPartition(topic, partition))

    def of(self, number: int) -> TopicPartition:
        if self._topic is not None:
            return TopicPartition(self._topic, number)
        return self._met[number]
