"""Which objects are answered to their end, and which are not.

Rule: a message whose objects are all complete is kept only as an offset in a range; for other
messages the numbers of the complete objects are kept. Owner: `Answers`.
"""

from collections.abc import Iterator, Mapping

from penstock.core.progress.ranges import Ranges
from penstock.verify.input_topic import Asked
from penstock.verify.repeats import ObjectAt


class Done:
    """`add` each complete object once."""

    def __init__(self, asked: Mapping[int, Asked]) -> None:
        self._asked = asked
        self._messages = {partition: Ranges() for partition in asked}
        self._partly: dict[tuple[int, int], set[int]] = {}

    def add(self, at: ObjectAt) -> None:
        """Note that an object's rows, or its result, are on the topic to the end."""
        message = (at.partition, at.offset)
        objects = sum(want.is_ours for want in self._asked[at.partition].at(at.offset))
        if objects > 1:
            finished = self._partly.setdefault(message, set())
            finished.add(at.object_index)
            if len(finished) < objects:
                return
            del self._partly[message]
        self._messages[at.partition].add(at.offset, at.offset + 1)

    def __contains__(self, at: ObjectAt) -> bool:
        if at.offset in self._messages[at.partition]:
            return True
        return at.object_index in self._partly.get((at.partition, at.offset), ())

    def missing(self, partition: int) -> Iterator[ObjectAt]:
        """The objects that are asked for and not complete, in order."""
        complete = self._messages[partition]
        for start, stop, wants in self._asked[partition].spans():
            for low, high in Ranges([(start, stop)]).minus(complete):
                for offset in range(low, high):
                    for index, want in enumerate(wants):
                        at = ObjectAt(partition, offset, index)
                        if want.is_ours and at not in self:
                            yield at
