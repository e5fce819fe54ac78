"""Where a ticket comes from: a record, and the partition that has it. Where rows come from: an
object, and what the sender told of it. Which of them: ranges; up to where a former assignment
delivered them: a cursor.
"""

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

from penstock.messages.reference import Inline, Reference

# Larger than every row number and offset. As a stop it means "to the end"; as a row it stands for
# the object's marker, which comes after all rows.
END = 1 << 63
VERSION_DIGITS = 16


class Where(NamedTuple):
    """A partition of an input topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class Record(NamedTuple):
    """A Kafka message of an input topic. `timestamp_ms`: epoch milliseconds, set by the broker or
    the producer. `traceparent`: the header of this name, unchecked. `headers`: all headers, but
    only if the source does not decode headers into the value.
    """

    where: Where
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    traceparent: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()


class About(NamedTuple):
    """What is known of the object of some rows. `member`: the part of an archive that has the
    rows.
    """

    stream: str
    member: str | None
    reference: Reference | Inline | None


class Cursor(NamedTuple):
    """The rows before `row` of one object are delivered. `version`: the digest of the object's
    name, its version, and the rules by which its bytes become rows.
    """

    row: int
    version: str


START = Cursor(0, "")


def digest(name: str, version: str | None, row_rules: str = "") -> str:
    """The digest that binds a cursor to one version of one object, and to the rules by which its
    bytes become rows: under other rules row 200 is a different row. Empty if the object has no
    version.
    """
    if version is None:
        return ""
    bound = f"{name}\0{version}\0{row_rules}"
    return hashlib.sha256(bound.encode()).hexdigest()[:VERSION_DIGITS]


class Ranges:
    """A set of numbers as ascending, disjoint, half-open ranges, so memory grows only with the
    gaps. Iterates as (start, stop); false when empty.
    """

    __hash__ = None  # type: ignore[assignment]

    __slots__ = ("starts", "stops")

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self.starts: list[int] = []
        self.stops: list[int] = []
        for start, stop in pairs:
            self.add(start, stop)

    @classmethod
    def of(cls, selection: Iterable[tuple[int, int | None]] | None) -> Self:
        """`selection`: the `rows` of a reference or dead letter. A range without a stop goes to
        `END`; None selects everything.
        """
        if selection is None:
            return cls([(0, END)])
        return cls((start, END if stop is None else stop) for start, stop in selection)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.starts, self.stops, strict=True)

    def __bool__(self) -> bool:
        return bool(self.starts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and (self.starts, self.stops) == (
            other.starts,
            other.stops,
        )

    @property
    def stop(self) -> int:
        """The number after the last one."""
        return self.stops[-1] if self.stops else 0

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self.starts, number) - 1
        return place >= 0 and number < self.stops[place]

    def behind(self, number: int) -> int:
        """The smallest number that is not in the set and not below `number`."""
        place = bisect_right(self.starts, number) - 1
        return max(number, self.stops[place]) if place >= 0 else number

    def __str__(self) -> str:
        """For people, with inclusive ends: `5-7, 12 and 3 more ranges`."""
        shown = [_text(start, stop) for start, stop in list(self)[:3]]
        more = len(self.starts) - len(shown)
        return ", ".join(shown) + (f" and {more} more ranges" if more else "")

    def add(self, start: int, stop: int) -> None:
        """Add [start, stop), `stop` > `start`, and join it with all ranges that it touches."""
        starts, stops = self.starts, self.stops
        if not stops or start > stops[-1]:
            starts.append(start)
            stops.append(stop)
            return
        low, high = bisect_left(stops, start), bisect_right(starts, stop)
        if low < high:
            start, stop = min(start, starts[low]), max(stop, stops[high - 1])
        starts[low:high], stops[low:high] = [start], [stop]

    def drop_below(self, number: int) -> None:
        """Forget the ranges that end at or before `number`."""
        passed = bisect_right(self.stops, number)
        del self.starts[:passed], self.stops[:passed]

    def within(self, start: int, stop: int) -> "Ranges":
        """The numbers that lie in [start, stop)."""
        if start >= stop:
            return Ranges()
        low, high = bisect_right(self.stops, start), bisect_left(self.starts, stop)
        return Ranges(
            (max(start, self.starts[place]), min(stop, self.stops[place]))
            for place in range(low, high)
        )

    def minus(self, other: "Ranges") -> "Ranges":
        """The numbers of this set that are not in `other`."""
        left = Ranges()
        for start, stop in self:
            free = start
            for taken_start, taken_stop in other.within(start, stop):
                if free < taken_start:
                    left.add(free, taken_start)
                free = taken_stop
            if free < stop:
                left.add(free, stop)
        return left


def selected(
    rows: Sequence[tuple[int, int | None]] | None, start: int, stop: int
) -> Iterator[tuple[int, int]]:
    """The parts of [start, stop) that a reference's `rows` select; None selects all."""
    if rows is None:
        yield start, stop
        return
    # The place is found by bisection, because an archive may have a run for each of 100,000
    # members.
    place = bisect_right(rows, start, key=_end)
    for first, end in rows[place:]:
        if first >= stop:
            return
        yield max(first, start), stop if end is None else min(end, stop)


def _end(run: tuple[int, int | None]) -> int:
    return END if run[1] is None else run[1]


def _text(start: int, stop: int) -> str:
    if stop >= END:
        return f"{start} to the end"
    return str(start) if stop == start + 1 else f"{start}-{stop - 1}"
