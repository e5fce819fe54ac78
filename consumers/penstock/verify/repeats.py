"""Checks that the repeats of a row have the same content, by a second reading of the output topic.

Rule: the first reading only notes which rows were repeated, and how often. The second reading keeps
the content of a repeated row from its first record to its last one. Rows that came once need no
memory. Numbers count as equal if they differ by no more than float32's rounding, because in a batch
of another size the model adds numbers up in another order. Owner: the judge.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from penstock.core.progress.ranges import END, Ranges

# float32 has 24 bits (6e-8); sums of some hundred terms lose two to three digits.
RELATIVE = 1e-5
ABSOLUTE = 1e-6


class ObjectAt(NamedTuple):
    """An object of the input topic: its message, and its index in the message."""

    partition: int
    offset: int
    object_index: int


class Content(NamedTuple):
    """The parts of a record that all repeats of its row must share."""

    stream: str
    prediction: bytes
    error: str | None = None
    rows: int | None = None

    def agrees(self, other: "Content") -> bool:
        if (self.stream, self.error, self.rows) != (other.stream, other.error, other.rows):
            return False
        if self.prediction == other.prediction:
            return True
        try:
            return _close(orjson.loads(self.prediction), orjson.loads(other.prediction))
        except orjson.JSONDecodeError:
            return False  # a number that no double can hold, or JSON nested too deeply


class _Times:
    """Counts how often each number was added. `levels[n]`: the numbers that were added more than n
    times.
    """

    def __init__(self) -> None:
        self.levels: list[Ranges] = []

    def add(self, number: int) -> None:
        for level in self.levels:
            if number not in level:
                level.add(number, number + 1)
                return
        self.levels.append(Ranges([(number, number + 1)]))

    def of(self, number: int) -> int:
        return sum(number in level for level in self.levels)


class Repeats:
    """Call `note` in the first reading, `compare` in the second, then `once`."""

    def __init__(self) -> None:
        self.count = 0
        self.partitions: set[int] = set()
        self._rows: dict[ObjectAt, _Times] = {}
        self._again: dict[ObjectAt, _Times] = {}
        self._first: dict[tuple[ObjectAt, int], Content] = {}

    def note(self, output_partition: int, where: ObjectAt, row: int) -> None:
        self.count += 1
        self.partitions.add(output_partition)
        self._rows.setdefault(where, _Times()).add(row)

    def includes(self, where: ObjectAt, row: int) -> bool:
        rows = self._rows.get(where)
        return rows is not None and row in rows.levels[0]

    def compare(self, where: ObjectAt, row: int, content: Content) -> bool:
        """True if the content agrees with the content of the row's first record."""
        first = self._first.setdefault((where, row), content)
        if first is content:
            return True
        again = self._again.setdefault(where, _Times())
        again.add(row)
        if again.of(row) == self._rows[where].of(row):
            del self._first[where, row]
        return first.agrees(content)

    def once(self) -> Iterator[tuple[ObjectAt, Ranges]]:
        """The rows that were noted as repeats because they came after their object's end, but that
        have only one record.
        """
        nothing = Ranges()
        for where, rows in self._rows.items():
            again = self._again.get(where)
            alone = rows.levels[0].minus(again.levels[0] if again else nothing)
            if alone:
                yield where, alone


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_close, one, other))
    if isinstance(one, float) and isinstance(other, float | int):
        return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    if isinstance(one, int) and isinstance(other, float):
        return _close(other, one)
    return type(one) is type(other) and bool(one == other)


def row_text(row: int) -> str:
    return "the marker" if row == END else f"row {row}"
