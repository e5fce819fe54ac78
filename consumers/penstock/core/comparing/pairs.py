"""Two topics that answer the same messages, joined row by row.

Rule: within a stream of an input partition both have the rows in the input's order, so only those
by which one side is ahead are kept. A repeated row is recognised by its place. Above `most_bytes`
rows are dropped and counted.
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")

# How much memory a waiting row takes besides its answer, roughly.
ROW_BYTES = 300


class RowPlace(NamedTuple):
    """The place of a row within its input partition; row -1 stands for the object itself."""

    offset: int
    object_index: int
    row: int


BEFORE = RowPlace(-1, -1, -1)


class _Waiting(NamedTuple, Generic[Item]):
    place: RowPlace
    item: Item
    nbytes: int


@dataclass(slots=True)
class _Stream(Generic[Item]):
    """One stream of one partition. `sides`: for each side the rows that wait for their
    counterparts. `done`: rows up to this place are decided. `lost`: of the rows up to this place
    some were dropped.
    """

    sides: tuple[deque[_Waiting[Item]], deque[_Waiting[Item]]]
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
    _streams: dict[Hashable, _Stream[Item]] = field(default_factory=dict)

    def put(
        self, side: int, stream: Hashable, place: RowPlace, item: Item, nbytes: int
    ) -> Item | None:
        """The row's counterpart, if it has come. None: the counterpart may still come, or the row
        was counted as `repeated` or `unseen`.
        """
        pairing = self._streams.get(stream)
        if pairing is None:
            pairing = self._streams[stream] = _Stream((deque(), deque()))
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
            own.append(_Waiting(place, item, nbytes))
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

    def _alone(self, waiting: deque[_Waiting[Item]], side: int) -> None:
        self._pop(waiting, side)
        self.only[side] += 1

    def _pop(self, waiting: deque[_Waiting[Item]], side: int) -> _Waiting[Item]:
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
