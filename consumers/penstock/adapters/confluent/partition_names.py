"""Turns the worker's numbers of partitions into librdkafka's names for them, and back.

Rule: the numbers are those of `Numbers`, the same as with aiokafka. Owner: the source.
"""

from collections.abc import Collection, Mapping
from typing import Any

from confluent_kafka import OFFSET_INVALID, TopicPartition

from penstock.adapters.kafka.assigned_partitions import Numbers
from penstock.ports import Commit


class PartitionNames:
    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    def named(self, number: int) -> Any:
        """The partition in the form of aiokafka, because aiokafka asks for the group's
        positions.
        """
        return self._numbers.of(number)

    def place(self, number: int, offset: int = OFFSET_INVALID, metadata: str = "") -> Any:
        topic, partition = self._numbers.of(number)
        return TopicPartition(topic, partition, offset, metadata)

    def places(self, numbers: Collection[int]) -> list[Any]:
        return [self.place(number) for number in numbers]

    def starts(self, starts: Mapping[int, Commit]) -> list[Any]:
        """The partitions with their first offsets. If a position is undecided, the offset is 0, and
        never "the end": librdkafka would ask the broker for the end, and go there even after a
        later seek.
        """
        return [self.place(number, max(0, start.next_offset)) for number, start in starts.items()]

    def number(self, place: Any) -> int:
        return self._numbers.number_of(place.topic, place.partition)

    def number_of(self, message: Any) -> int:
        return self._numbers.number_of(message.topic(), message.partition())
