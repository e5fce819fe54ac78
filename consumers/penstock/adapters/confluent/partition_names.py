"""Names partitions as librdkafka wants them, and numbers the partitions that librdkafka names.

Rule: the numbers are the source's, the same as with aiokafka (`partition_numbers`). Owner: the
source.
"""

from collections.abc import Collection, Mapping
from typing import Any

from confluent_kafka import OFFSET_INVALID, TopicPartition

from penstock.adapters.kafka.partition_numbers import Numbers
from penstock.ports import Commit


class PartitionNames:
    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    def named(self, number: int) -> Any:
        """As aiokafka names it, which asks about the group."""
        return self._numbers.of(number)

    def place(self, number: int, offset: int = OFFSET_INVALID, metadata: str = "") -> Any:
        topic, partition = self._numbers.of(number)
        return TopicPartition(topic, partition, offset, metadata)

    def places(self, numbers: Collection[int]) -> list[Any]:
        return [self.place(number) for number in numbers]

    def starts(self, starts: Mapping[int, Commit]) -> list[Any]:
        """At 0 where nothing is decided. Never at "the end", which librdkafka would have to ask the
        broker for: it obeys the answer even if a seek came first.
        """
        return [self.place(number, max(0, start.next_offset)) for number, start in starts.items()]

    def number(self, place: Any) -> int:
        return self._numbers.number_of(place.topic, place.partition)

    def number_of(self, message: Any) -> int:
        return self._numbers.number_of(message.topic(), message.partition())
