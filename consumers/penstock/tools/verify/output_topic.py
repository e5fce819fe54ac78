"""Judges the output topic: is every record in its place, in order, and the same when it repeats?

Rule: of a complete object only its place is kept, of an incomplete one its rows as ranges. The few
lines of `take` judge the next row of the same object; `_place` any other record. A marker may point
to an earlier object of the same input partition, asked for with the same rows and answered without
a failure.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from msgspec import Raw

from penstock.core.routing.stream_keys import key_of
from penstock.core.rows.origin import END
from penstock.tools.verify.dead_letters import Letters
from penstock.tools.verify.fields import AskedFields, Fields
from penstock.tools.verify.findings import Findings, Kind
from penstock.tools.verify.records_and_open_objects import (
    NOT_JSON,
    NULL,
    AnswerRecord,
    OpenObject,
    Sequence,
    constant_of,
    decode_answer,
    identify,
    wrong_end,
)
from penstock.tools.verify.repeats import Between, Repeat, Repeats, row_text
from penstock.tools.verify.result_objects import Claims, ResultClaim
from penstock.tools.verify.scope_and_input_topic import Done, InputPartition, ObjectAt, Scope, Want


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
        judged = [
            (pointer, self._judge(pointer, wants, is_done)) for pointer in self._pointers.values()
        ]
        return [(pointer, why) for pointer, why in judged if why is not None]

    def _judge(
        self,
        pointer: Pointer,
        wants: Callable[[ObjectAt], Want | None],
        is_done: Callable[[ObjectAt], bool],
    ) -> str | None:
        place = self._at(pointer.first_id)
        if place is None or place[0].partition != pointer.at.partition:
            return "which is no id of its partition"
        first, row = place
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


class OutputTopic:
    """Call `take` once with every record. After that, `undone` names the incomplete objects."""

    def __init__(
        self,
        scope: Scope,
        asked: Mapping[int, InputPartition],
        fields: Mapping[int, AskedFields],
        letters: Letters,
        findings: Findings,
    ) -> None:
        self.claims = Claims()
        self.rows = self.marked = self.rejected = self.outside = 0
        self.streams: set[str] = set()
        self.repeats = Repeats()
        self.announced_again = AnnouncedAgain(scope.input_topic)
        self._scope = scope
        self._asked = asked
        self._fields = fields
        self._between = Between(asked, scope)
        self._letters = letters
        self._findings = findings
        self._sequences: dict[tuple[int, str], Sequence] = {}
        self._current: dict[int, OpenObject] = {}
        self._open: dict[ObjectAt, OpenObject] = {}
        self.done = Done(asked)

    def take(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        """Judge a record. The long condition recognises the common case: the record has a
        prediction for the next row of the same object, and the object's fields are unchanged.
        """
        try:
            answer = decode_answer(value or b"")
        except NOT_JSON as error:
            self._tell("malformed", partition, offset, f"not a prediction: {error}")
            return
        current = self._current.get(partition)
        row = answer.row
        if (
            current is not None
            and row is not None
            and row == current.seen.stops[-1]
            and row < current.limit
            and not answer.last
            and answer.rows is None
            and answer.error is None
            and answer.prediction != NULL
            and answer.source == current.like.source
            and answer.object == current.like.object
            and answer.stream == current.like.stream
            and answer.model == current.like.model
            and answer.event_time == current.like.event_time
            and answer.attributes == current.like.attributes
            and key == current.key
            and answer.id == f"{current.prefix}{row}"
        ):
            current.seen.stops[-1] = row + 1
            current.sequence.row = row
            self.rows += 1
            return
        self._place(partition, offset, key, answer)

    def _place(self, partition: int, offset: int, key: bytes | None, answer: AnswerRecord) -> None:
        """Judge a record that is not the common case: find its object and compare its fields."""
        self._current.pop(partition, None)
        try:
            identity = identify(answer)
            about, fields = answer.about, answer.fields
        except NOT_JSON as error:
            self._tell("malformed", partition, offset, f"not a prediction: {error}")
            return
        if isinstance(identity, str):
            self._tell("bad_id", partition, offset, identity)
            return
        at, source = identity
        asked = self._asked.get(at.partition)
        is_ours = self._scope.is_about(source)
        if not is_ours or (asked and not asked.begin <= at.offset < asked.end):
            self.outside += 1
            return
        wants = asked.at(at.offset) if asked else ()
        if at.object_index >= len(wants) or not wants[at.object_index].is_ours:
            text = f"{answer.id} answers a message that asks for {len(wants)} objects"
            self._tell("not_asked", partition, offset, text)
            return
        if key != key_of(answer.stream, key):
            self._tell("bad_key", partition, offset, f"the key is not its stream {answer.stream!r}")
        self._compare_fields(partition, offset, at, answer, fields)
        name = f"{about.bucket}/{about.key}" if about else "the message"
        version = about.version if about else None
        self._note(partition, offset, key, answer, at, name, version, wants[at.object_index])

    def _compare_fields(
        self, partition: int, offset: int, at: ObjectAt, answer: AnswerRecord, fields: Fields
    ) -> None:
        less = answer.error is not None or answer.row is None
        wrong = self._fields[at.partition].wrong(at, fields, less=less, row=answer.row)
        if wrong:
            self._tell("wrong_field", partition, offset, f"{answer.id} was not asked for {wrong}")
        if answer.contradiction:
            self._tell("wrong_field", partition, offset, f"{answer.id}: {answer.contradiction}")

    def _compare_with_first(
        self,
        partition: int,
        offset: int,
        known: OpenObject,
        answer: AnswerRecord,
        version: str | None,
    ) -> None:
        if known.is_unlike_first(answer, version):
            text = f"{answer.id} is of version {version} by {answer.model}, no first row is"
            self._tell("wrong_field", partition, offset, text)

    def _note(
        self,
        partition: int,
        offset: int,
        key: bytes | None,
        answer: AnswerRecord,
        at: ObjectAt,
        about: str,
        version: str | None,
        want: Want,
    ) -> None:
        self.streams.add(answer.stream)
        sequence = self._sequences.setdefault(
            (at.partition, answer.stream if self._scope.by_stream else ""), Sequence()
        )
        if answer.error is not None:
            if answer.row is not None:
                self._letters.rejected(at, about, answer.row, (answer.error.code, answer.model))
            else:
                why = (answer.error.code, answer.model)
                self._letters.failed(at, about, want, answer.rows or 0, why)
        row = END if answer.row is None else answer.row
        known = self._open.get(at)
        if answer.result is not None:
            marker = answer.rows or 0, answer.result, answer.model
            self._claim(partition, offset, ResultClaim(at, about, want, *marker, partition, offset))
            # If rows have records of their own and the object did not fail, the record of its last
            # row has ended the object already.
            if self._scope.of_rows and answer.error is None and answer.result.rows:
                self._check_behind(partition, offset, at)
                return
        if known is not None:
            self._compare_with_first(partition, offset, known, answer, version)
        if at in self.done or (
            known and (row in known.seen or (row == END and known.end is not None))
        ):
            ends = answer.last or answer.row is None
            self._repeated(partition, offset, sequence, Repeat(at, row, ends))
            return
        home = self._scope.partition_of(at.partition, key_of(answer.stream, key))
        in_order = home == partition and self._in_order(partition, offset, sequence, at, row)
        if home != partition:
            text = f"{answer.id} belongs into partition {home}"
            self._tell("foreign_partition", partition, offset, text)
        if known is None:
            prefix = answer.id[: answer.id.rindex("/") + 1]
            known = OpenObject(at, about, want, prefix, constant_of(answer), key, sequence)
            self._open[at] = known
            self._compare_with_first(partition, offset, known, answer, version)
        self._add(partition, offset, known, answer)
        if in_order and known.end is None:
            self._current[partition] = known

    def _claim(self, partition: int, offset: int, claim: ResultClaim) -> None:
        is_first = self.claims.add(claim)
        if not is_first and self._scope.exactly_once and self._scope.of_rows:
            text = f"the result of object {claim.at.object_index} of offset {claim.at.offset}"
            self._tell("repeated", partition, offset, f"{text} came before")

    def _check_behind(self, partition: int, offset: int, at: ObjectAt) -> None:
        if at not in self.done:
            text = (
                f"the result of object {at.object_index} of offset {at.offset} is before its rows"
            )
            self._tell("disorder", partition, offset, text)

    def _in_order(
        self, partition: int, offset: int, sequence: Sequence, at: ObjectAt, row: int
    ) -> bool:
        sequence.runs.break_off()
        place = (at.offset, at.object_index)
        if (*place, row) < (*sequence.top, sequence.row):
            (top_offset, top_index), top = sequence.top, sequence.row
            text = (
                f"{row_text(row)} of object {at.object_index} of offset {at.offset} comes after "
                f"{row_text(top)} of object {top_index} of offset {top_offset}"
            )
            self._tell("disorder", partition, offset, text)
            return False
        sequence.top, sequence.row = place, row
        return True

    def _repeated(self, partition: int, offset: int, sequence: Sequence, again: Repeat) -> None:
        self.repeats.note(partition, again.at, again.row)
        if left_out := sequence.runs.go_on(again, self._between.left_out):
            text = f"a repeat goes on at {row_text(again.row)} and leaves out {left_out}"
            self._tell("disorder", partition, offset, text)
        if self._scope.exactly_once:
            at = again.at
            text = f"{row_text(again.row)} of object {at.object_index} of offset {at.offset}"
            self._tell("repeated", partition, offset, f"{text} came before")

    def _add(self, partition: int, offset: int, known: OpenObject, answer: AnswerRecord) -> None:
        row = answer.row
        if row is not None:
            self.rows += 1
            self.rejected += answer.error is not None
            if wrong := known.why_unwanted(row):
                self._tell("not_asked", partition, offset, f"row {row} of {known.about}: {wrong}")
            selected = known.want.rows.within(row, END)
            known.seen.add(row, row + 1)
            known.limit = selected.stops[0] if selected else 0
        else:
            self.marked += answer.result is None
            if answer.result is not None and not self._scope.of_rows:
                self._take_whole(known, answer)
            if self._scope.of_objects and _has_no_result(answer):
                text = f"{known.about} has neither a result nor an error"
                self._tell("bad_result", partition, offset, text)
            if answer.error is not None:
                self.announced_again.failed(known.at)
            if answer.duplicate_of is not None:
                first = answer.duplicate_of
                self.announced_again.note(partition, offset, known.at, first, answer.object)
        if answer.last or answer.rows is not None or row is None:
            if wrong := wrong_end(known, answer):
                self._tell("bad_end", partition, offset, f"{known.about}: {wrong}")
            known.end = answer.rows if answer.rows is not None else known.seen.stop
        if known.end is not None and not known.missing:
            del self._open[known.at]
            self.done.add(known.at)

    def _take_whole(self, known: OpenObject, answer: AnswerRecord) -> None:
        """Count all rows of a result as seen. They are checked when the result object is read."""
        for start, stop in known.want.rows.within(0, answer.rows or 0):
            known.seen.add(start, stop)
        self.rows += answer.result.rows if answer.result else 0

    def undone(self, partition: int) -> Iterator[tuple[ObjectAt, OpenObject | None]]:
        """The objects without a complete answer, in order, each with its `OpenObject`. If an object
        has no answer at all, None takes the place of the `OpenObject`.
        """
        return ((at, self._open.get(at)) for at in self.done.missing(partition))

    def compare(self, partition: int, offset: int, _key: bytes | None, value: bytes | None) -> None:
        """Call this with each record of the second reading. If the record's row was repeated, the
        record is compared with the first record of this row.
        """
        try:
            answer = decode_answer(value or b"")
            identity = identify(answer)
        except NOT_JSON:
            return
        if isinstance(identity, str) or not self._scope.is_about(identity[1]):
            return
        self.announced_again.compare(identity[0], answer.object)
        row = END if answer.row is None else answer.row
        if self.repeats.includes(identity[0], row) and not self.repeats.compare(
            identity[0], row, answer.content()
        ):
            text = f"{answer.id} was answered before, but not like this"
            self._tell("differs", partition, offset, text)

    def _tell(self, kind: Kind, partition: int, offset: int, text: str) -> None:
        self._findings.tell(kind, self._scope.output_topic, partition, offset, text)


def _has_no_result(answer: AnswerRecord) -> bool:
    return (answer.result or answer.error or answer.duplicate_of) is None
