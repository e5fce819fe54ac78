"""One partition of the input topic as the checks see it: which objects, in which stream, and what
is true of each.

Rule: an object has a number for good, (index of its record, index in it). Owner: the simulation.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from consumers.core import cursor
from consumers.ports import Record
from consumers.testing.truth import Asked, Truth, Truths

Number = tuple[int, int]


class Letter(NamedTuple):
    """A dead letter that has to be there: of a row, or of the rest of an object (`row` None)."""

    offset: int
    key: str | None
    row: int | None
    code: str


class Log:
    """`unsteady` names objects whose answer depends on when they are read, and the code of that."""

    def __init__(self, records: Sequence[Record], truths: Truths) -> None:
        self.records = records
        self.letters: set[Letter] = set()
        self.unsteady: dict[str, str] = {}
        self._truths = truths
        self._asked: list[Sequence[Asked]] = []

    @property
    def end(self) -> int:
        return self.records[-1].offset + 1 if self.records else 0

    @property
    def streams(self) -> set[str]:
        return {asked.stream for objects in self._asked for asked in objects}

    def index(self, offset: int) -> int:
        """Of the first record at or after this offset."""
        return bisect_left(self.records, offset, key=lambda record: record.offset)

    def objects(self, index: int) -> Sequence[Asked]:
        """Of the record at this index."""
        while len(self._asked) <= index:
            self._asked.append(self._truths.asked(self.records[len(self._asked)]))
        return self._asked[index]

    def asked(self, number: Number) -> Asked:
        return self.objects(number[0])[number[1]]

    def truth(self, number: Number, version: str | None) -> Truth | None:
        return self._truths.of(self.asked(number), self.records[number[0]], version)

    def digest(self, number: Number, version: str | None) -> str:
        """What a cursor into this object has to be bound to."""
        asked = self.asked(number)
        if asked.inline is not None:
            offset = str(self.records[number[0]].offset)
            return cursor.digest("inline", offset, self._truths.row_rules)
        return cursor.digest(asked.name, version, self._truths.row_rules)

    def may_fail(self, asked: Asked, code: str) -> bool:
        """Failures that have nothing to do with what the object holds."""
        if asked.reference is None:
            return code == "bad_reference" and asked.inline is None
        return self.unsteady.get(asked.name) == code

    def told(self, number: Number) -> str:
        return f"offset {self.records[number[0]].offset}, object {number[1]}"
