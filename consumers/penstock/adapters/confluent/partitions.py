"""The partitions of this member: librdkafka's name for each, and a number that is new with every
assignment.

Rule: if a partition was revoked and has come back, another member may have got further with it in
between. So no commit and no seek that was made before the revocation may reach the new assignment:
its number differs from that of the old assignment. Owner: the reads. They change the numbers only
in the event loop; the thread of the reads only looks the numbers up.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import count
from typing import Any

from confluent_kafka import OFFSET_INVALID, TopicPartition

from penstock.adapters.kafka.assigned_partitions import Numbers
from penstock.ports import Commit


class PartitionNames:
    """Turns the worker's numbers of partitions into librdkafka's names for them, and back."""

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


class AssignedPartitions:
    """Holds, for each partition of this member, the number of its assignment."""

    def __init__(self) -> None:
        self._assignments: dict[int, int] = {}
        self._next = count(1)

    def begin(self, partitions: Iterable[int]) -> None:
        self._assignments |= {one: next(self._next) for one in partitions}

    def end(self, partitions: Iterable[int]) -> None:
        for one in partitions:
            self._assignments.pop(one, None)

    def all(self) -> set[int]:
        return set(self._assignments)

    def held(self, partitions: Iterable[int]) -> dict[int, int]:
        """Those of the partitions that are ours, with the numbers of their assignments. Later,
        `still` tells which of these assignments last.
        """
        held = self._assignments
        return {one: held[one] for one in partitions if one in held}

    def still(self, held: Mapping[int, int]) -> set[int]:
        """The partitions whose assignment is still the one in `held`."""
        return {one for one, number in held.items() if self._assignments.get(one) == number}
