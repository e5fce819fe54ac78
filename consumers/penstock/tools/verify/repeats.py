"""Checks repeats: the same content as the first record, and runs without gaps.

Rule: the first reading notes which rows were repeated, and how often; the second keeps a repeated
row's content from its first record to its last. Records do not name the worker that wrote them, so
each run of repeats is judged by itself.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from penstock.core.rows.origin import END, Ranges
from penstock.tools.verify.scope_and_input_topic import InputPartition, ObjectAt, Scope

# Numbers count as equal if they differ by no more than float32's rounding. In a batch of another
# size the model adds numbers up in another order, so its answers may differ by that much. float32
# has 24 bits (6e-8); sums of some hundred terms lose two to three digits.
RELATIVE = 1e-5
ABSOLUTE = 1e-6
# How many interrupted runs are remembered. This is plenty: more than two owners of a partition
# repeat rows at the same time only if workers die faster than their sessions end.
MAX_BROKEN_OFF = 8


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
            return False  # a number is too large for a double, or the JSON is nested too deeply


class _Times:
    """Counts how often each number was added. `levels[n]` has the numbers that were added more than
    `n` times.
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
    """Checks that all records of a row have the same content. Call `note` in the first reading of
    the output topic, `compare` in the second reading, and then `once`.
    """

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
        """The rows that have only one record, although they were noted as repeats because they came
        after their object's end.
        """
        nothing = Ranges()
        for where, rows in self._rows.items():
            again = self._again.get(where)
            alone = rows.levels[0].minus(again.levels[0] if again else nothing)
            if alone:
                yield where, alone


def _close(a: Any, other: Any) -> bool:
    if isinstance(a, dict) and isinstance(other, dict):
        return a.keys() == other.keys() and all(_close(a[key], other[key]) for key in a)
    if isinstance(a, list) and isinstance(other, list):
        return len(a) == len(other) and all(map(_close, a, other))
    if isinstance(a, float) and isinstance(other, float | int):
        return math.isclose(a, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    if isinstance(a, int) and isinstance(other, float):
        return _close(other, a)
    return type(a) is type(other) and bool(a == other)


def row_text(row: int) -> str:
    return "the marker" if row == END else f"row {row}"


class Repeat(NamedTuple):
    """A repeated record. `ends`: True if it is the last record of its object."""

    at: ObjectAt
    row: int
    ends: bool


LeftOut = Callable[[Repeat, Repeat], str | None]


class Runs:
    """The runs of repeats of one partition, or of one stream of a partition.

    A worker that takes over may begin at any row, but from there on it must leave out no row. An
    interrupted run may go on later, because a worker that the group has removed as dead may still
    be sending a batch.
    """

    def __init__(self) -> None:
        self._last: Repeat | None = None
        self._broken_off: deque[Repeat] = deque(maxlen=MAX_BROKEN_OFF)

    def break_off(self) -> None:
        """Interrupt the current run. Call this when a record comes that does not continue the
        run.
        """
        if self._last is not None:
            self._broken_off.append(self._last)
            self._last = None

    def go_on(self, again: Repeat, left_out: LeftOut) -> str | None:
        """Add a repeat. If rows are left out before it, returns a text that names them. None: the
        repeat begins a new run, or follows the last repeat of the current run or of an interrupted
        one.
        """
        last = self._last
        wrong = left_out(last, again) if last is not None and last < again else None
        if last is not None and (wrong or again <= last):
            self.break_off()
        self._last = again
        if not wrong:
            return None
        for run in self._broken_off:
            if run < again and not left_out(run, again):
                self._broken_off.remove(run)
                return None
        return wrong


class Between:
    """Finds the rows and objects that were asked for and lie between two repeats."""

    def __init__(self, asked: Mapping[int, InputPartition], scope: Scope) -> None:
        self._asked = asked
        self._scope = scope

    def left_out(self, before: Repeat, again: Repeat) -> str | None:
        at, row = again.at, again.row
        rows = self._asked[at.partition].at(at.offset)[at.object_index].rows
        first = before.row + 1 if before.at == at else 0
        if row < END and (missing := rows.within(first, row)):
            return f"row {missing}"
        if before.at == at or not self._scope.markers:
            return None  # without markers there may be no record that ends an object
        if not before.ends:
            return f"what follows {row_text(before.row)} of offset {before.at.offset}"
        between = None if self._scope.by_stream else self._after(before.at)
        if between is not None and between < at:
            return f"object {between.object_index} of offset {between.offset}"
        return None

    def _after(self, at: ObjectAt) -> ObjectAt | None:
        """The next object after this one that is asked for."""
        asked = self._asked[at.partition]
        wanted = asked.at(at.offset)
        for index in range(at.object_index + 1, len(wanted)):
            if wanted[index].is_ours:
                return at._replace(object_index=index)
        offset = asked.after(at.offset)
        if offset is None:
            return None
        first = next(n for n, want in enumerate(asked.at(offset)) if want.is_ours)
        return ObjectAt(at.partition, offset, first)
