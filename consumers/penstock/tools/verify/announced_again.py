"""Judges markers that point to an earlier answer. A worker writes such a marker if the same object
is announced again.

Rule: a marker may point to an earlier object of the same input partition. For that object the same
rows must have been asked for. It must be answered to its end, without a failure. Its answers must
have the same `object` field as the marker. The `object` fields are compared in the second reading.
Memory grows with the number of these markers and of failed objects. Owner: the judge.
"""

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Raw

from penstock.tools.verify.scope_and_input_topic import ObjectAt, Want


class Pointer(NamedTuple):
    """A marker: its place on the output topic, the object that the marker answers, and the id that
    the marker points to.
    """

    partition: int
    offset: int
    at: ObjectAt
    first_id: str
    object: bytes


class AnnouncedAgain:
    """Call `note` and `failed` in the first reading of the output topic, `compare` in the second
    reading, and then `wrong`.
    """

    def __init__(self, input_topic: str) -> None:
        self.partitions: set[int] = set()
        self._input_topic = input_topic
        self._pointers: dict[ObjectAt, Pointer] = {}
        self._objects: dict[ObjectAt, bytes | None] = {}
        self._failed: set[ObjectAt] = set()

    def __len__(self) -> int:
        return len(self._pointers)

    def __contains__(self, at: ObjectAt) -> bool:
        return at in self._pointers

    def note(self, partition: int, offset: int, at: ObjectAt, first_id: str, named: Raw) -> None:
        self.partitions.add(partition)
        self._pointers[at] = Pointer(partition, offset, at, first_id, bytes(named))
        if first := self._at(first_id):
            self._objects[first[0]] = None

    def failed(self, at: ObjectAt) -> None:
        """Note an object that could not be read to its end. No marker may point to such an
        object.
        """
        self._failed.add(at)

    def compare(self, at: ObjectAt, named: Raw) -> None:
        if at in self._objects:
            self._objects[at] = bytes(named)

    def wrong(
        self,
        wants: Callable[[ObjectAt], Want | None],
        is_done: Callable[[ObjectAt], bool],
    ) -> list[tuple[Pointer, str]]:
        """The markers that point to a wrong answer, each with the reason. `wants`: a function that
        gives the rows which are asked for of an object, or None if its message was not read.
        `is_done`: a function that says whether an object is answered to its end.
        """
        found = [(one, self._judge(one, wants, is_done)) for one in self._pointers.values()]
        return [(one, why) for one, why in found if why is not None]

    def _judge(
        self,
        pointer: Pointer,
        wants: Callable[[ObjectAt], Want | None],
        is_done: Callable[[ObjectAt], bool],
    ) -> str | None:
        found = self._at(pointer.first_id)
        if found is None or found[0].partition != pointer.at.partition:
            return "which is no id of its partition"
        first, row = found
        own, others = wants(pointer.at), wants(first)
        if first >= pointer.at:
            return "which is not an earlier object"
        if first in self._pointers:
            return "which is such a marker itself"
        if others is None:
            return None
        if own is None or own != others:
            return "which asks for other rows"
        if row not in ("-", str(own.rows.starts[0])):
            return "which is not the first row of its object"
        if not is_done(first):
            return "which is not completely answered"
        if first in self._failed:
            return "which failed"
        named = self._objects[first]
        return None if named in (None, pointer.object) else "which is another object"

    def _at(self, first_id: str) -> tuple[ObjectAt, str] | None:
        topic, *numbers = first_id.rsplit("/", 4)
        if topic != self._input_topic or len(numbers) != 4:
            return None
        if not all(number.isdecimal() for number in numbers[:3]):
            return None
        partition, offset, index = (int(number) for number in numbers[:3])
        return ObjectAt(partition, offset, index), numbers[3]
