"""Finds the record about one row in a partition that has its records in the input's order.

Rule: it halves the range, so about fifteen reads search a million records. After a crash the order
jumps back and repeats a run of records, but never jumps forward over one, so the search finds one
of the two copies. Owner: `penstock trace`.
"""

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

# So few offsets are read through.
NEAR = 400


class Place(NamedTuple):
    """Which row of the input a record is about; `row` is infinite for the end of an object."""

    offset: int
    object_index: int
    row: float


def place_of(offset: int, object_index: int, row: str) -> Place:
    return Place(offset, object_index, int(row) if row.isdecimal() else math.inf)


class Told(NamedTuple):
    """What a record is about, from its first row to its last; `value`: what is returned."""

    first: Place
    last: Place
    value: Any


Read = Callable[[int], Awaitable[Sequence[Any]]]
Tell = Callable[[Any], Iterable[Told]]


async def search(read: Read, tell: Tell, span: tuple[int, int], wanted: Place) -> Any | None:
    """`read` gives records from an offset on; `tell` what one is about: nothing of other inputs."""
    low, high = span
    while low < high:
        middle = low if high - low <= NEAR else (low + high) // 2
        told, after = await _told(read, tell, middle, high)
        for one in told:
            if one.first <= wanted <= one.last:
                return one.value
        if told and told[0].first < wanted:
            if told[-1].last > wanted:
                return None
            low = after
        elif middle == low and not told:
            return None
        else:
            high = middle
    return None


async def _told(read: Read, tell: Tell, at: int, end: int) -> tuple[list[Told], int]:
    """From the first records that say something, and the offset after them."""
    while at < end:
        records = [record for record in await read(at) if record.offset < end]
        if not records:
            return [], end
        at = records[-1].offset + 1
        if told := [one for record in records for one in tell(record)]:
            return told, at
    return [], end
