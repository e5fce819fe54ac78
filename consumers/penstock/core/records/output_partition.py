"""Which partition of the output topic a record goes to: that of its reference, or its stream's.

Rule: answers of one stream share a partition either way, so their order can be seen. Owner: the
settings choose; the records ask.
"""

from collections.abc import Callable

from penstock.core.rows.blocks import Ticket


def same_partition(ticket: Ticket) -> int:
    """That of the reference: for topics with equally many partitions."""
    return ticket.owner.partition


def by_stream(partition_of: Callable[[str], int]) -> Callable[[Ticket], int]:
    """That of the stream's name, as a producer would choose it for a key."""

    def of_ticket(ticket: Ticket) -> int:
        return partition_of(ticket.stream)

    return of_ticket
