"""The partitions of this member. `PartitionNames` translates their numbers into librdkafka's names.
`AssignedPartitions` gives a new number to every assignment of a partition.

Rule: if a partition was revoked and has come back, another member may have read further in it
meanwhile. So a commit or a seek that was made before the revocation may not reach the new
assignment. We recognise such a commit or seek by the number of its assignment. Owner: the reads.
Only the event loop changes the numbers; the thread of the reads only looks them up.
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
        """The partition as aiokafka names it. We need this name because aiokafka asks for the
        group's positions.
        """
        return self._numbers.of(number)

    def place(self, number: int, offset: int = OFFSET_INVALID) -> Any:
        topic, partition = self._numbers.of(number)
        return TopicPartition(topic, partition, offset)

    def places(self, numbers: Collection[int]) -> list[Any]:
        return [self.place(number) for number in numbers]

    def starts(self, starts: Mapping[int, Commit]) -> list[Any]:
        """The partitions, each with its first offset, for librdkafka. If a position is undecided,
        we give the offset 0. "The end" would be wrong, because librdkafka would ask the broker for
        the end, and go there even after a later seek.
        """
        return [self.place(number, max(0, start.next_offset)) for number, start in starts.items()]

    def number(self, place: Any) -> int:
        return self._numbers.number_of(place.topic, place.partition)

    def number_of(self, message: Any) -> int:
        return self._numbers.number_of(message.topic(), message.partition())


class AssignedPartitions:
    """Knows the number of the present assignment of each partition of this member."""

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
        """A mapping from those of the partitions that are ours to the numbers of their assignments.
        Later, `still` tells which of these assignments still hold.
        """
        held = self._assignments
        return {one: held[one] for one in partitions if one in held}

    def still(self, held: Mapping[int, int]) -> set[int]:
        """The partitions whose assignment is still the one in `held`."""
        return {one for one, number in held.items() if self._assignments.get(one) == number}
