"""One partition of the input topic as the checks see it: which objects, in which stream, and what
is true of each.

Rule: an object has a number for good, (index of its record, index in it). Owner: the simulation.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from penstock.core.routing.routes import Routes
from penstock.ports import Record
from penstock.simulation.checks.truth import Asked, Truths, asked_by

Number = tuple[int, int]


class Letter(NamedTuple):
    """A dead letter that has to be there: of a row, or of the rest of an object (`row` None)."""

    offset: int
    key: str | None
    row: int | None
    code: str
    model: str


class Bound(NamedTuple):
    """What a cursor was made for: the rows of this object as these truths number them."""

    name: str
    version: str | None
    truths: Truths


class Log:
    """`fan`: routes that may name several models; an object has a number for each of them then.
    `unsteady` names objects whose answer depends on when they are read, and the codes of that.
    `silent`: objects that were rightly answered by nothing.
    """

    def __init__(self, records: Sequence[Record], fan: Routes | None = None) -> None:
        self.records = records
        self.fan = fan
        self.gap_end = 0
        self.letters: set[Letter] = set()
        self.silent: set[Number] = set()
        self.unsteady: Mapping[str, Collection[str]] = {}
        self._asked: list[Sequence[Asked]] = []
        self._bound: dict[tuple[Number, str], Bound] = {}

    @property
    def end(self) -> int:
        return max(self.records[-1].offset + 1 if self.records else 0, self.gap_end)

    @property
    def streams(self) -> set[str]:
        """Of each model, where several may answer one."""
        return {asked.queue for objects in self._asked for asked in objects}

    def index(self, offset: int) -> int:
        """Of the first record at or after this offset."""
        return bisect_left(self.records, offset, key=lambda record: record.offset)

    def objects(self, index: int) -> Sequence[Asked]:
        """Of the record at this index."""
        while len(self._asked) <= index:
            self._asked.append(asked_by(self.records[len(self._asked)], self.fan))
        return self._asked[index]

    def answered(self, offset: int, id: str, model: str) -> int | None:
        """Which of the record's objects an id is of, as this model answers it."""
        object_index = int(id.rsplit("/", 2)[1])
        return self._find(
            offset,
            lambda one: one.object_index == object_index and one.model in (None, model),
        )

    def at_place(self, offset: int, place: int) -> int | None:
        """Which of the record's objects a commit means."""
        return self._find(offset, lambda one: one.place == place)

    def _find(self, offset: int, fits: Callable[[Asked], bool]) -> int | None:
        index = self.index(offset)
        if index == len(self.records) or self.records[index].offset != offset:
            return None
        return next((n for n, one in enumerate(self.objects(index)) if fits(one)), None)

    def asked(self, number: Number) -> Asked:
        return self.objects(number[0])[number[1]]

    def bind(self, number: Number, digest: str, version: str | None, truths: Truths) -> bool:
        """A cursor is committed. False: the same digest stands for another version already."""
        name = self.asked(number).name
        before = self._bound.get((number, digest))
        self._bound[number, digest] = Bound(name, version, truths)
        return bool(digest) and (before is None or before.version == version)

    def bound(self, number: Number, digest: str) -> Bound | None:
        """What the last cursor with this digest was made for."""
        return self._bound.get((number, digest))

    def may_fail(self, asked: Asked, code: str) -> bool:
        """Failures that have nothing to do with what the object holds."""
        if asked.reference is None:
            return code == "bad_reference" and asked.inline is None
        return code in self.unsteady.get(asked.name, ())

    def account(self, number: Number) -> str:
        return f"offset {self.records[number[0]].offset}, object {number[1]}"
