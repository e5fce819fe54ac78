"""One partition of the input topic as the checks see it: its objects, and what is known about them.

Rule: an object's number (index of its record, index within the record) never changes. Owner: the
simulation.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from penstock.core.routing.model_routes import Routes
from penstock.ports import Record
from penstock.tools.simulation.checks.truth import Asked, Truths, asked_by

Number = tuple[int, int]


class Letter(NamedTuple):
    """A dead letter about one row, or about the rest of an object (`row` is None)."""

    offset: int
    key: str | None
    row: int | None
    code: str
    model: str


class Bound(NamedTuple):
    """What a cursor was made for: object, version and row options."""

    name: str
    version: str | None
    truths: Truths


class PartitionLog:
    """`fan`: the routes; given only if they may name several models for an object. Such an object
    has a number for each of its models. `letters`: the dead letters that were delivered.
    `unsteady`: the objects whose answer depends on when they are read, by name, each with the error
    codes that are allowed for it. `silent`: objects that rightly got no record.
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
        """All streams. If several models may answer, each stream appears once for each model."""
        return {asked.queue for objects in self._asked for asked in objects}

    def index(self, offset: int) -> int:
        """The index of the first record at or after this offset."""
        return bisect_left(self.records, offset, key=lambda record: record.offset)

    def objects(self, index: int) -> Sequence[Asked]:
        """The objects of the record that has this index."""
        while len(self._asked) <= index:
            self._asked.append(asked_by(self.records[len(self._asked)], self.fan))
        return self._asked[index]

    def answered(self, offset: int, id: str, model: str) -> int | None:
        """The number of an object within its input record, which is the one at `offset`. `id` and
        `model` are those of the output record that answers the object.
        """
        object_index = int(id.rsplit("/", 2)[1])
        return self._find(
            offset,
            lambda one: one.object_index == object_index and one.model in (None, model),
        )

    def at_place(self, offset: int, place: int) -> int | None:
        """The number, within its record, of the object that commits know by this place."""
        return self._find(offset, lambda one: one.place == place)

    def _find(self, offset: int, fits: Callable[[Asked], bool]) -> int | None:
        index = self.index(offset)
        if index == len(self.records) or self.records[index].offset != offset:
            return None
        return next((n for n, one in enumerate(self.objects(index)) if fits(one)), None)

    def asked(self, number: Number) -> Asked:
        return self.objects(number[0])[number[1]]

    def bind(self, number: Number, digest: str, version: str | None, truths: Truths) -> bool:
        """Note a committed cursor. Returns True if its digest stands for only one version: the
        digest is not empty, and no commit used it for another version before.
        """
        name = self.asked(number).name
        before = self._bound.get((number, digest))
        self._bound[number, digest] = Bound(name, version, truths)
        return bool(digest) and (before is None or before.version == version)

    def bound(self, number: Number, digest: str) -> Bound | None:
        """What the last committed cursor with this digest was made for."""
        return self._bound.get((number, digest))

    def may_fail(self, asked: Asked, code: str) -> bool:
        """May the object be answered by this error, whatever its content is?"""
        if asked.reference is None:
            return code == "bad_reference" and asked.inline is None
        return code in self.unsteady.get(asked.name, ())

    def account(self, number: Number) -> str:
        return f"offset {self.records[number[0]].offset}, object {number[1]}"
