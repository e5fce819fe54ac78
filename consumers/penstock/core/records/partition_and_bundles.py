"""Which partition of the output topic a record goes to, and how many records make one Kafka record.

Rule: the partition has the number of the input partition, or depends on the stream. Either way all
answers of a stream are in one partition, so their order can be seen. A bundle is a JSON array of
records of one object in their order. It has at most as many records as configured, and at most as
many bytes as the topic takes. A record has the same bytes in a bundle as alone. Owner: the settings
choose; the publish stage asks for the partition and joins the bundles.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from penstock.core.routing.stream_keys import key_of
from penstock.core.rows.blocks import Ticket


def same_partition(ticket: Ticket) -> int:
    """The partition with the number of the input partition. Both topics have the same number of
    partitions.
    """
    return ticket.owner.partition


def by_stream(partition_of: Callable[[bytes], int]) -> Callable[[Ticket], int]:
    """Returns a function from a ticket to its partition: the one that a producer would choose by
    the key of the answers. So all answers of one stream share a partition.
    """

    def of_ticket(ticket: Ticket) -> int:
        return partition_of(key_of(ticket.stream, ticket.record.key))

    return of_ticket


# The bytes of the array's two brackets.
FRAME_BYTES = 2


class Blocks(NamedTuple):
    """In which form rows are put together into one Kafka record. `rows`: the most rows of such a
    record.
    """

    rows: int
    form: Literal["json", "arrow"] = "json"


def bundled(values: Sequence[bytes], most: int, fits: Callable[[int], bool]) -> Iterator[bytes]:
    """Join the records into bundles. `fits`: does the topic take a value of this many bytes? Each
    record alone is known to fit.
    """
    start = 0
    while start < len(values):
        stop = min(start + most, len(values))
        value = b"[%b]" % b",".join(values[start:stop])
        while stop > start + 1 and not fits(len(value)):
            stop = start + (stop - start) // 2
            value = b"[%b]" % b",".join(values[start:stop])
        yield value
        start = stop
