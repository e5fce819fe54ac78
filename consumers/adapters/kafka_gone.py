"""Positions that the broker no longer has, and what else a read raises that is no failure.

Rule: aiokafka does not choose where to go on (`auto_offset_reset="none"`): the worker would not
hear of it, and a lane that began at a later offset cannot go back. Owner: the source.
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
    "partition %d: the group is at offset %d, beyond the end of the topic (%d), which was made "
    "again or restored, or lost its end. Going on at its earliest record, %d; the ids of former "
    "answers may come again for other ones"
)


class Gone(Exception):
    """The broker has no record at these positions, and none that is to come."""

    def __init__(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets = offsets


@contextmanager
def for_ourselves() -> Iterator[None]:
    """Around a read. Raises `Gone`."""
    try:
        yield
    except kafka_errors.OffsetOutOfRangeError as error:
        if not error.args:
            raise  # an answer about the group has this code: it says nothing of positions
        raise Gone(error.args[0]) from error
    except kafka_errors.NoOffsetForPartitionError:
        return  # aiokafka asked for itself before we had said where to begin
    except kafka_errors.IllegalStateError:
        return  # a partition left between the look and the call
