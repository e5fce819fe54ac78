"""What a judge must know of the input: its scope (what was read, and what the settings promise),
the objects and rows that each message of the input topic asks for, and which of these objects are
completely answered.

Rule: neighbouring messages that ask for the same objects and rows share one entry, so that a
million plain references take the memory of one. `InputPartition` is filled completely before the
first answer is judged.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from penstock.core.routing.stream_keys import KeyTimes, StreamNames
from penstock.core.rows.origin import Ranges
from penstock.messages.codec import Ignored, Inline, References, SchemaError, decode
from penstock.messages.prediction import Source
from penstock.messages.reference import RowRange
from penstock.ports import Commit


class ObjectAt(NamedTuple):
    """An object of the input topic: the place of its message, and its index in the message."""

    partition: int
    offset: int
    object_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Three mappings have input partitions as keys. `spans`: the offsets that were read. `until`:
    the offset before which every object must be complete. `committed`: the group's commit, if there
    is one. `topic_id`: which of the topics that had this name one after the other was read; None:
    the broker does not tell.
    """

    input_topic: str
    output_topic: str
    dead_letter_topic: str
    spans: Mapping[int, tuple[int, int]]
    until: Mapping[int, int]
    committed: Mapping[int, Commit]
    partition_of: Callable[[int, bytes], int]
    by_stream: bool
    exactly_once: bool
    markers: bool
    # `of_rows`: True if rows have records. `of_objects`: True if objects have records. Both come
    # from `output.records`.
    of_rows: bool = True
    of_objects: bool = False
    # `times_of_rows`: True if rows may have times of their own. `models`: the names of the models
    # that a reference may name.
    times_of_rows: bool = False
    models: frozenset[str] = frozenset()
    naming: StreamNames = field(default_factory=lambda: StreamNames(None))
    times: KeyTimes = field(default_factory=lambda: KeyTimes(None))
    # A function from an object's index in its message to the object's place in the ledger.
    place_of: Callable[[int], int] = int
    topic_id: str | None = None

    def is_about(self, source: Source) -> bool:
        """True if this message is of the topic that was read. Answers to a former topic of the same
        name have the same ids, but are about other messages.
        """
        if source.topic != self.input_topic:
            return False
        return None in (source.topic_id, self.topic_id) or source.topic_id == self.topic_id


# A decoded message of the input topic. None: it is of none of these kinds.
Message = References | Inline | Ignored | None


class Want(NamedTuple):
    """The rows that are asked for of one object. `selection`: the ranges of these rows; None: all
    rows. `inline_rows`: if the message itself carries the rows, their number.
    """

    selection: tuple[RowRange, ...] | None = None
    inline_rows: int | None = None
    is_reference: bool = True
    is_ours: bool = True  # False if the judge of another model checks this object

    @property
    def rows(self) -> Ranges:
        return Ranges.of(self.selection)

    def rest_from(self, row: int) -> Ranges:
        """The rows that a dead letter must ask for again if the object was unreadable from `row`
        on.
        """
        rows = self.rows
        return rows.within(row, rows.stops[-1]) or Ranges.of([(row, None)])


Wants = tuple[Want, ...]
PLAIN = Want()
NO_REFERENCE = (Want(is_reference=False),)
NOT_OURS = Want(is_ours=False)


@lru_cache(maxsize=10_000)
def _inline(rows: int) -> Wants:
    """Inline messages with the same number of rows share one tuple, to save memory."""
    return (Want(inline_rows=rows),)


def message_of(value: bytes | None) -> Message:
    try:
        return decode(value)
    except SchemaError:
        return None


def wants(message: Message) -> Wants:
    """The objects that a message asks for. Empty if it asks for none."""
    if message is None:
        return NO_REFERENCE
    if isinstance(message, Ignored):
        return ()
    if isinstance(message, Inline):
        return _inline(len(message.rows))
    return tuple(
        PLAIN if reference.rows is None else Want(reference.rows) for reference in message.items
    )


class InputPartition:
    """What one input partition asks for, from offset `begin` up to `end`."""

    def __init__(self, begin: int, end: int) -> None:
        self.begin = begin
        self.end = end
        self._next = begin
        self._starts = [begin]
        self._wants: list[Wants] = [()]

    def add(self, offset: int, wanted: Wants) -> None:
        """Note what a message asks for. Must be called in offset order. Offsets that are left out
        ask for nothing.
        """
        if offset > self._next:
            self._change(self._next, ())
        self._change(offset, wanted)
        self._next = offset + 1

    def _change(self, offset: int, wanted: Wants) -> None:
        if wanted != self._wants[-1]:
            self._starts.append(offset)
            self._wants.append(wanted)

    def at(self, offset: int) -> Wants:
        if offset >= self._next:
            return ()
        return self._wants[bisect_right(self._starts, offset) - 1]

    def after(self, offset: int) -> int | None:
        """The next offset after this one that asks for something. None: no later offset does."""
        place = bisect_right(self._starts, offset) - 1
        if self._wants[place] and offset + 1 < self._stop(place):
            return offset + 1
        wanted = (n for n in range(place + 1, len(self._starts)) if self._wants[n])
        return next((self._starts[n] for n in wanted), None)

    def _stop(self, place: int) -> int:
        return self._starts[place + 1] if place + 1 < len(self._starts) else self._next

    def spans(self) -> Iterator[tuple[int, int, Wants]]:
        """Yields runs of neighbouring offsets that ask for the same objects and rows. Each run is
        its first offset, the offset after its last one, and what each of its offsets asks for.
        Offsets that ask for nothing are left out.
        """
        stops = [*self._starts[1:], self._next]
        for start, stop, wanted in zip(self._starts, stops, self._wants, strict=True):
            if wanted and start < stop:
                yield start, stop, wanted


class Done:
    """The objects that are answered to their end. Call `add` once for each. When all objects of a
    message are complete, only the offset of the message is kept, in a range.
    """

    def __init__(self, asked: Mapping[int, InputPartition]) -> None:
        self._asked = asked
        self._messages = {partition: Ranges() for partition in asked}
        self._partly: dict[tuple[int, int], set[int]] = {}

    def add(self, at: ObjectAt) -> None:
        """Note that an object is answered to its end."""
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
        """Yields, in order, the objects that are asked for and not completely answered."""
        complete = self._messages[partition]
        for start, stop, wants in self._asked[partition].spans():
            for low, high in Ranges([(start, stop)]).minus(complete):
                for offset in range(low, high):
                    for index, want in enumerate(wants):
                        at = ObjectAt(partition, offset, index)
                        if want.is_ours and at not in self:
                            yield at
