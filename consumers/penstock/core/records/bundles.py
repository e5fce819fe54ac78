"""Many records as one Kafka record, in the form of a JSON array.

Rule: a bundle has records of one object in their order, at most as many as configured, and at most
as many bytes as the topic takes. A record has the same bytes in a bundle as alone. Pure. Owner: the
publish stage.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

# The bytes of the array's two brackets.
FRAME_BYTES = 2


class Blocks(NamedTuple):
    """The form in which many rows make one Kafka record, and the most rows of one record."""

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
