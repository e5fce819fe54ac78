"""The partitions of this member, each with a number that is new with every assignment.

Rule: if a partition was revoked and has come back, another member may have got further with it in
between. So no commit and no seek that was made before the revocation may reach the new assignment:
its number differs from that of the old assignment. Owner: the reads. They change the numbers only
in the event loop; the thread of the reads only looks the numbers up.
"""

from collections.abc import Iterable, Mapping
from itertools import count


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
