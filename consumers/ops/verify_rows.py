"""Which rows of an object were seen, as runs, with four bytes a row to recognise the same answer.

Rule: an object costs memory by its runs and four bytes a row, never a Python object a row; ranges
are half open, ascending and disjoint.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from schemas.reference import RowRange

# Stands for "to the object's end" where that is not known.
ENDLESS = 1 << 63

Ranges = list[tuple[int, int]]


def closed(rows: Iterable[RowRange] | None) -> Ranges:
    """A reference's selection with `ENDLESS` for open ends; None selects everything."""
    if rows is None:
        return [(0, ENDLESS)]
    return [(start, ENDLESS if stop is None else stop) for start, stop in rows]


def union(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """What any of the ranges covers; they may come in any order and overlap."""
    merged: Ranges = []
    for start, stop in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        elif start < stop:
            merged.append((start, stop))
    return merged


def between(ranges: Iterable[tuple[int, int]], start: int, stop: int) -> Ranges:
    """The parts within [start, stop)."""
    clipped = ((max(low, start), min(high, stop)) for low, high in ranges)
    return [(low, high) for low, high in clipped if low < high]


def minus(wanted: Ranges, present: Ranges) -> Ranges:
    """What is in `wanted` and not in `present`."""
    left: Ranges = []
    holes = iter(present)
    hole = next(holes, None)
    for start, stop in wanted:
        low = start
        while hole is not None and hole[0] < stop:
            if hole[0] > low:
                left.append((low, hole[0]))
            low = max(low, hole[1])
            if hole[1] > stop:
                break
            hole = next(holes, None)
        if low < stop:
            left.append((low, stop))
    return left


def text(ranges: Ranges, shown: int = 3) -> str:
    """For people: `rows 3-7, 9 and 2 more ranges`."""
    parts = [_range_text(*one) for one in ranges[:shown]]
    more = f" and {len(ranges) - shown} more ranges" if len(ranges) > shown else ""
    return f"rows {', '.join(parts) or 'none'}{more}"


def _range_text(start: int, stop: int) -> str:
    if stop >= ENDLESS:
        return f"{start} to the end"
    return str(start) if stop == start + 1 else f"{start}-{stop - 1}"


class Runs:
    """The rows seen so far and a digest of each one's answer."""

    __slots__ = ("_digests", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._digests: list[array[int]] = []

    def add(self, row: int, digest: int) -> int | None:
        """Note a row. None if it is new, else the digest (32 bits) it had the first time."""
        starts = self._starts
        if starts and row == starts[-1] + len(self._digests[-1]):
            self._digests[-1].append(digest)
            return None
        place = bisect_right(starts, row) - 1
        if place >= 0:
            index = row - starts[place]
            digests = self._digests[place]
            if index < len(digests):
                return digests[index]
            if index == len(digests):
                digests.append(digest)
                self._close_gap(place)
                return None
        self._starts.insert(place + 1, row)
        self._digests.insert(place + 1, array("I", (digest,)))
        self._close_gap(place + 1)
        return None

    def _close_gap(self, place: int) -> None:
        """Join a run with the next one where they now touch."""
        following = place + 1
        stop = self._starts[place] + len(self._digests[place])
        if following < len(self._starts) and stop == self._starts[following]:
            self._digests[place].extend(self._digests.pop(following))
            del self._starts[following]

    @property
    def ranges(self) -> Ranges:
        pairs: Sequence[tuple[int, array[int]]] = list(
            zip(self._starts, self._digests, strict=True)
        )
        return [(start, start + len(digests)) for start, digests in pairs]

    @property
    def first(self) -> int | None:
        return self._starts[0] if self._starts else None

    @property
    def last(self) -> int | None:
        return self._starts[-1] + len(self._digests[-1]) - 1 if self._starts else None
