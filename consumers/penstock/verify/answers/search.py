"""Finds the record about one row in a partition whose records are in the order of the input.

Rule: each read halves the range, so about fifteen reads search a million records. After a crash the
order jumps back, and a run of records is repeated. The order never jumps forward over a record, so
the search finds one of the two copies. Owner: `penstock trace`.
"""

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

# A range of at most this many offsets is read from its beginning instead of being halved.
NEAR = 400


class Place(NamedTuple):
    """The row of the input that a record is about. `row` is infinite for a record that ends an
    object.
    """

    offset: int
    object_index: int
    row: float


def place_of(offset: int, object_index: int, row: str) -> Place:
    return Place(offset, object_index, int(row) if row.isdecimal() else math.inf)


class Told(NamedTuple):
    """The first and the last row that a record is about. `value`: what `search` returns for this
    record.
    """

    first: Place
    last: Place
    value: Any


Read = Callable[[int], Awaitable[Sequence[Any]]]
Tell = Callable[[Any], Iterable[Told]]


async def search(read: Read, tell: Tell, span: tuple[int, int], wanted: Place) -> Any | None:
    """The `value` of the record about the wanted row; None: there is no such record. `read` gives
    some records from an offset on. `tell` says which rows a record is about: no rows if the record
    belongs to another input partition.
    """
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
    """The rows that the first records at or after `at` are about, and the offset after the records
    that were read. Records of which `tell` gives no rows are left out.
    """
    while at < end:
        records = [record for record in await read(at) if record.offset < end]
        if not records:
            return [], end
        at = records[-1].offset + 1
        if told := [one for record in records for one in tell(record)]:
            return told, at
    return [], end
