"""Positions that the broker no longer has, and the errors of a read that are harmless.

Rule: aiokafka may not choose where to go on (`auto_offset_reset="none"`). The worker would not
learn of it, and a lane that began at a later offset cannot go back. Owner: the source.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from aiokafka import TopicPartition
from aiokafka import errors as kafka_errors

GONE_BEFORE = (
    "partition %d: offsets %d to %d were deleted before they were read; going on at %d. The "
    "topic's retention must be longer than the longest outage"
)
GONE_BEYOND = (
    "partition %d: the group is at offset %d, beyond the end of the topic (%d): the topic was "
    "created again, restored, or lost its last records. Going on at its earliest record, %d; new "
    "answers may get ids that former answers had"
)


class Gone(Exception):
    """The broker has no records at these positions and will never have any there."""

    def __init__(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets = offsets


@contextmanager
def for_ourselves() -> Iterator[None]:
    """Goes around a read: raises `Gone`, and swallows the harmless errors."""
    try:
        yield
    except kafka_errors.OffsetOutOfRangeError as error:
        if not error.args:
            raise  # an answer about the group can carry this code, too: it names no positions
        raise Gone(error.args[0]) from error
    except kafka_errors.NoOffsetForPartitionError:
        return  # aiokafka looked for a position before our `seek` had set one
    except kafka_errors.IllegalStateError:
        return  # a partition was revoked between our check and the call
