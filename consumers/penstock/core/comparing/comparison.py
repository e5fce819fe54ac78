"""Do two models say the same? Agreement is counted row by row for each stream, and so are the times
that they took. `Pairs` joins two topics that answer the same messages row by row.

Rule: two predictions agree when their JSON says the same: numbers within the tolerance, everything
else exactly; with pointers only the values there. If a pointer finds no value, only answers equal
as a whole agree, so that a mistyped pointer shows as disagreement. Comparisons can be added up over
intervals and workers. Times are in classes, twenty for each factor of ten, so a quantile is at most
twelve percent too high.

Of two topics, within a stream of an input partition both have the rows in the input's order, so
only those by which one side is ahead are kept. A repeated row is recognised by its place. Above
`most_bytes` rows are dropped and counted.
"""

import math
from collections import Counter, deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

import msgspec

from penstock.core.records.json_pointers import resolve

# In a normal distribution 95 percent lie within this many standard deviations of the mean.
Z_95 = 1.959964
# This many streams are counted by name; all further streams are counted together.
MOST_STREAMS = 1_000
OTHERS = "(others)"
# The first class holds all times up to `FIRST_S`.
FIRST_S: Final = 1e-4
CLASSES_A_DECADE: Final = 20

_decode = msgspec.json.Decoder().decode
_NUMBERS = (int, float)
# A value that no document can have.
_NOTHING = object()


class Agreement:
    """`tolerance`: the largest difference between two numbers that agree. Numbers with a fraction
    may also differ by this share of the larger number, because the noise of arithmetic grows with
    the size of the numbers.
    """

    def __init__(self, tolerance: float = 0.0, pointers: Sequence[str] = ()) -> None:
        self._tolerance = tolerance
        self._pointers = tuple(pointers) or ("",)
        self._close = partial(math.isclose, rel_tol=min(tolerance, 1.0), abs_tol=tolerance)

    def same(self, a: bytes, b: bytes) -> bool:
        """Compare two predictions as JSON text. A text that cannot be read as JSON, or that has a
        number too large for a float, equals only itself.
        """
        if a == b:
            return True
        try:
            ours, other = _decode(a), _decode(b)
            for pointer in self._pointers:
                if not self._same(resolve(ours, pointer), resolve(other, pointer)):
                    return False
        except (msgspec.DecodeError, LookupError, RecursionError, OverflowError):
            return False
        return True

    def differing(self, a: Sequence[bytes], b: Sequence[bytes]) -> list[int]:
        """The indexes of the rows on which two models disagree."""
        if a == b:
            return []
        return [
            index
            for index, (value, other) in enumerate(zip(a, b, strict=True))
            if value != other and not self.same(value, other)
        ]

    def _same(self, a: Any, b: Any) -> bool:
        kind = type(a)
        if kind is float or kind is int:
            return type(b) in _NUMBERS and self._near(a, b)
        if kind is dict:
            return type(b) is dict and len(a) == len(b) and self._same_members(a, b)
        if kind is list:
            return type(b) is list and len(a) == len(b) and self._same_elements(a, b)
        return kind is type(b) and bool(a == b)

    def _same_members(self, a: dict[str, Any], b: dict[str, Any]) -> bool:
        """This is called for most rows, so it must be fast: if two values are one Python object
        (such as a small number or null), they are equal without another call.
        """
        for name, value in a.items():
            other = b.get(name, _NOTHING)
            if value is not other and not self._same(value, other):
                return False
        return True

    def _same_elements(self, a: list[Any], b: list[Any]) -> bool:
        """Vectors of numbers are compared in C, without a Python call for each number."""
        if set(map(type, a)) | set(map(type, b)) == {float}:
            return all(map(self._close, a, b))
        return all(map(self._same, a, b))

    def _near(self, a: float, b: float) -> bool:
        """Whole numbers may be labels or counts. A difference between them is never noise, so for
        whole numbers the tolerance does not grow with their size.
        """
        if type(a) is int and type(b) is int:
            return abs(a - b) <= self._tolerance
        return self._close(a, b)


class AgreementShare(NamedTuple):
    """`rows` were compared; in `agreed` of them both models said the same."""

    rows: int
    agreed: int

    @property
    def value(self) -> float:
        return self.agreed / self.rows if self.rows else 0.0

    def interval(self) -> tuple[float, float]:
        """Wilson's interval: if rows are independent, it contains the true share 95 times of 100.
        The usual interval is wrong for few rows and for shares near 0 and 1, but Wilson's is right
        for them.
        """
        if not self.rows:
            return 0.0, 1.0
        n, p, z = self.rows, self.value, Z_95
        middle = p + z * z / (2 * n)
        spread = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        scale = 1 + z * z / n
        low, high = max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)
        # If all rows agreed, the upper bound is exactly 1; if none agreed, the lower bound is
        # exactly zero. The floats computed above only come close to that.
        return (0.0 if not self.agreed else low), (1.0 if self.agreed == n else high)

    def plus(self, rows: int, agreed: int) -> "AgreementShare":
        return AgreementShare(self.rows + rows, self.agreed + agreed)


NOTHING = AgreementShare(0, 0)


@dataclass(slots=True)
class Tally:
    """The agreement of all rows and of each stream. Streams beyond `most` are counted together, as
    `OTHERS`.
    """

    streams: dict[str, AgreementShare]
    most: int
    total: AgreementShare

    def __init__(self, most: int = MOST_STREAMS) -> None:
        self.streams, self.most, self.total = {}, most, NOTHING

    def add(self, stream: str, rows: int, agreed: int) -> None:
        if stream not in self.streams and len(self.streams) >= self.most:
            stream = OTHERS
        self.streams[stream] = self.streams.get(stream, NOTHING).plus(rows, agreed)
        self.total = self.total.plus(rows, agreed)

    def worst(self, most: int) -> list[tuple[str, AgreementShare]]:
        """Streams with disagreements, the worst first. They are ordered by the upper end of the
        interval, so that a stream with few rows does not come first by chance.
        """
        wrong = [(name, share) for name, share in self.streams.items() if share.agreed < share.rows]
        return sorted(wrong, key=lambda pair: (pair[1].interval()[1], pair[0]))[:most]


class ComparedTimes:
    """How many calls took how long. Class k holds times up to 0.1 ms * 10^(k/20)."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def add(self, took_s: float) -> None:
        above = math.log10(max(took_s, FIRST_S) / FIRST_S) * CLASSES_A_DECADE
        self.counts[math.ceil(above)] += 1

    def merge(self, counts: Mapping[int, int]) -> None:
        self.counts.update(counts)

    def quantile_s(self, share: float) -> float | None:
        """The time within which this share of the calls was answered. None: there were no calls."""
        left = share * self.counts.total()
        for number in sorted(self.counts):
            left -= self.counts[number]
            if left <= 0:
                return float(FIRST_S * 10 ** (number / CLASSES_A_DECADE))
        return None


# Why a disagreement has no record: too many came between two writes, it is too long for a record of
# the topic, or the topic could not be written.
Unsent = Literal["many", "long", "unwritten"]


@dataclass(slots=True)
class Comparison:
    """The counts of a comparison. `dropped`: rows for which the buffer had no room. `unanswered`:
    rows that the shadow did not answer. `unsent`: by its reason, the number of rows that disagreed,
    but for which no record was written.
    """

    tally: Tally = field(default_factory=Tally)
    live_took: ComparedTimes = field(default_factory=ComparedTimes)
    shadow_took: ComparedTimes = field(default_factory=ComparedTimes)
    dropped: int = 0
    unanswered: int = 0
    unsent: Counter[Unsent] = field(default_factory=Counter)

    @property
    def is_empty(self) -> bool:
        return not (self.tally.total.rows or self.dropped or self.unanswered or self.unsent)


Item = TypeVar("Item")

# How much memory a waiting row takes besides its answer, roughly.
ROW_BYTES = 300


class RowPlace(NamedTuple):
    """The place of a row within its input partition; row -1 stands for the object itself."""

    offset: int
    object_index: int
    row: int


BEFORE = RowPlace(-1, -1, -1)


class _WaitingItem(NamedTuple, Generic[Item]):
    place: RowPlace
    item: Item
    nbytes: int


@dataclass(slots=True)
class _JoinedStream(Generic[Item]):
    """One stream of one partition. `sides`: for each side the rows that wait for their
    counterparts. `done`: rows up to this place are decided. `lost`: of the rows up to this place
    some were dropped.
    """

    sides: tuple[deque[_WaitingItem[Item]], deque[_WaitingItem[Item]]]
    done: RowPlace = BEFORE
    lost: RowPlace = BEFORE


@dataclass(slots=True)
class Pairs(Generic[Item]):
    """`put` each row that comes from side 0 or 1. `only`: for each side the number of rows that had
    no counterpart; `waiting`: for each side the number of rows that wait for one; `repeated`: the
    number of rows that had come before; `unseen`: the number of rows that were dropped or whose
    counterpart was dropped.
    """

    most_bytes: int
    only: list[int] = field(default_factory=lambda: [0, 0])
    waiting: list[int] = field(default_factory=lambda: [0, 0])
    repeated: int = 0
    unseen: int = 0
    _bytes: int = 0
    _streams: dict[Hashable, _JoinedStream[Item]] = field(default_factory=dict)

    def put(
        self, side: int, stream: Hashable, place: RowPlace, item: Item, nbytes: int
    ) -> Item | None:
        """The row's counterpart, if it has come. None: the counterpart may still come, or the row
        was counted as `repeated` or `unseen`.
        """
        pairing = self._streams.get(stream)
        if pairing is None:
            pairing = self._streams[stream] = _JoinedStream((deque(), deque()))
        own, other = pairing.sides[side], pairing.sides[1 - side]
        if place <= pairing.done or (own and place <= own[-1].place):
            self.repeated += 1
            return None
        if place <= pairing.lost:
            self.unseen += 1
            return None
        # This side has passed the places of these rows, so they have no counterpart.
        while other and other[0].place < place:
            pairing.done = other[0].place
            self._alone(other, 1 - side)
        if not other or other[0].place != place:
            own.append(_WaitingItem(place, item, nbytes))
            self.waiting[side] += 1
            self._bytes += nbytes + ROW_BYTES
            if self._bytes > self.most_bytes:
                self._let_go(0 if self.waiting[0] > self.waiting[1] else 1)
            return None
        # The other side has reached this row's place. So it has passed the places of this side's
        # waiting rows, and they have no counterpart.
        while own:
            self._alone(own, side)
        pairing.done = place
        return self._pop(other, 1 - side).item

    def end(self) -> None:
        """No more rows come, so the rows that wait have no counterpart."""
        for stream in self._streams.values():
            for side, waiting in enumerate(stream.sides):
                while waiting:
                    self._alone(waiting, side)
        self._streams.clear()

    def _alone(self, waiting: deque[_WaitingItem[Item]], side: int) -> None:
        self._pop(waiting, side)
        self.only[side] += 1

    def _pop(self, waiting: deque[_WaitingItem[Item]], side: int) -> _WaitingItem[Item]:
        first = waiting.popleft()
        self.waiting[side] -= 1
        self._bytes -= first.nbytes + ROW_BYTES
        return first

    def _let_go(self, side: int) -> None:
        for stream in self._streams.values():
            waiting = stream.sides[side]
            while waiting:
                stream.lost = self._pop(waiting, side).place
                self.unseen += 1
