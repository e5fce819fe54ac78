"""Which partition of the output topic a record goes to: the one with the number of the input
partition, or the one that belongs to the stream.

Rule: either way all answers of a stream are in one partition, so their order can be seen. Owner:
the settings choose the rule; the publish stage asks for the partition.
"""

from collections.abc import Callable

from penstock.core.rows.blocks import Ticket


def same_partition(ticket: Ticket) -> int:
    """The partition with the number of the input partition. Both topics have equally many
    partitions.
    """
    return ticket.owner.partition


def by_stream(partition_of: Callable[[str], int]) -> Callable[[Ticket], int]:
    """Returns the rule for the streams' own partitions: a ticket's partition is the one that a
    producer would choose if the stream were the key. So all answers of one stream share a
    partition.
    """

    def of_ticket(ticket: Ticket) -> int:
        return partition_of(ticket.stream)

    return of_ticket
