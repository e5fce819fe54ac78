"""The partitions of this member, and whether one has been so without a break.

Rule: what was revoked and came back is another assignment, as its owner in between may have got
further: no commit and no seek from before may reach it. Owner: the reads, from the event loop; the
thread may ask.
"""

from collections.abc import Iterable, Mapping
from itertools import count


class AssignedPartitions:
    """By partition the number of its assignment."""

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
        """Those of ours, for a later question whether they are so `still`."""
        held = self._assignments
        return {one: held[one] for one in partitions if one in held}

    def still(self, held: Mapping[int, int]) -> set[int]:
        return {one for one, number in held.items() if self._assignments.get(one) == number}
