"""How the group divides its partitions: they stay where they are, as far as even shares allow.

Rule: a member says which partitions it had, and in which generation. If two say that they had one,
it stays with that of the later generation: the other was expelled meanwhile. Owner: the source.
"""

from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor


def sticky() -> type[StickyPartitionAssignor]:
    """It goes by the name of range, as a group only takes members that offer an assignor of all its
    others: older releases and other clients offer range. Whichever member is asked to assign does
    it in its own way; the others take what they are given. aiokafka keeps a member's partitions in
    the class, so each consumer has a class of its own.
    """

    class Sticky(StickyPartitionAssignor):  # type: ignore[misc]
        name = "range"

    return Sticky
