"""Many records as one Kafka record: how many, in which form, and the form of a JSON array.

Rule: a bundle has records of one object in their order, at most so many, and no more bytes than the
topic takes; each stands in it as it would alone. Pure; owner: the publish stage.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

# The brackets around a record that is alone in its bundle.
FRAME_BYTES = 2


class Blocks(NamedTuple):
    """At most so many rows in each."""

    rows: int
    form: Literal["json", "arrow"] = "json"


def bundled(values: Sequence[bytes], most: int, fits: Callable[[int], bool]) -> Iterator[bytes]:
    """`fits`: does the topic take a value of so many bytes? Of a single record that is known."""
    start = 0
    while start < len(values):
        stop = min(start + most, len(values))
        value = b"[%b]" % b",".join(values[start:stop])
        while stop > start + 1 and not fits(len(value)):
            stop = start + (stop - start) // 2
            value = b"[%b]" % b",".join(values[start:stop])
        yield value
        start = stop
