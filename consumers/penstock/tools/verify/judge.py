"""The judge: decides from the records of three topics alone whether every promise was kept, and
which rows are lost.

Rule: no I/O and no clock. The caller feeds the input topic, then the output topic, then the dead
letters, each partition in offset order; then once more the partitions that `repeated` names, to
`compare`. Memory grows with open objects, gaps, rejections and repeats, not with rows.
"""

from collections.abc import Mapping

from penstock.core.progress.cursor import PartitionProgress, Position
from penstock.core.rows.origin import END, START
from penstock.messages.codec import SchemaError
from penstock.messages.dead_letter import DeadLetter, decode_dead_letter
from penstock.messages.prediction import Source
from penstock.ports import Commit
from penstock.tools.verify.dead_letters import Letters
from penstock.tools.verify.fields import AskedFields, Fields, asked_of, named
from penstock.tools.verify.findings import Findings, VerifyReport
from penstock.tools.verify.output_topic import OutputTopic
from penstock.tools.verify.records_and_open_objects import OpenObject
from penstock.tools.verify.result_objects import ResultClaim, StoredContent, wrong_with
from penstock.tools.verify.scope_and_input_topic import (
    NO_REFERENCE,
    InputPartition,
    ObjectAt,
    Scope,
    Want,
    Wants,
    message_of,
    wants,
)


class Judge:
    """Call `reference`, `answer` and `dead_letter` with the records, then `compare` with the
    records of the partitions in `repeated`, then `report` once.
    """

    def __init__(self, scope: Scope, fields: Mapping[int, AskedFields] | None = None) -> None:
        """`fields`: a mapping from an input partition to the fields that are asked for there. If it
        is given, another judge fills it, and this judge only reads it. None: this judge fills a
        mapping of its own.
        """
        self._scope = scope
        self._fields = AskedFields.of(scope) if fields is None else fields
        self._findings = Findings()
        self._asked = {
            partition: InputPartition(begin, end) for partition, (begin, end) in scope.spans.items()
        }
        self._letters = Letters(scope, self._findings)
        self._answers = OutputTopic(scope, self._asked, self._fields, self._letters, self._findings)
        self._references = self._ignored = self._objects = 0
        self._dead_letters = self._unproven = self._results = self._replaced = self._waiting = 0
        self.answer = self._answers.take  # not wrapped: it is called once per row
        self.compare = self._answers.compare

    @property
    def repeated(self) -> set[int]:
        """The partitions of the output topic that have repeated rows, or markers that point to an
        earlier answer.
        """
        return self._answers.repeats.partitions | self._answers.announced_again.partitions

    @property
    def repeats(self) -> int:
        """How many repeated records have come so far."""
        return self._answers.repeats.count

    def reference(
        self, partition: int, offset: int, key: bytes | None, value: bytes | None
    ) -> None:
        message = message_of(value)
        self._fields[partition].add(
            offset, asked_of(message, key, partition, self._scope.naming, self._scope.times)
        )
        self.ask(partition, offset, wants(message))

    def asks_at(self, source: Source, object_index: int) -> bool:
        """True if this judge's input asks for this object."""
        asked = self._asked.get(source.partition)
        wanted = asked.at(source.offset) if asked else ()
        return object_index < len(wanted) and wanted[object_index].is_ours

    def ask(self, partition: int, offset: int, wanted: Wants) -> None:
        """Note the objects that the message at `offset` asks for. Must be called in offset
        order.
        """
        self._references += bool(wanted)
        self._ignored += not wanted
        self._objects += sum(want.is_ours for want in wanted)
        self._asked[partition].add(offset, wanted)

    def dead_letter(
        self, partition: int, offset: int, _key: bytes | None, value: bytes | None
    ) -> None:
        topic = self._scope.dead_letter_topic
        try:
            letter = decode_dead_letter(value or b"")
        except SchemaError as error:
            self._findings.tell("malformed", topic, partition, offset, str(error))
            return
        source = letter.source
        asked = self._asked.get(source.partition)
        if not self._scope.is_about(source) or (
            asked and not asked.begin <= source.offset < asked.end
        ):
            self._answers.outside += 1
        elif not self.asks_at(source, letter.object_index):
            text = f"nothing was asked for at {source.topic}/{source.partition}/{source.offset}"
            self._findings.tell("stray_dead_letter", topic, partition, offset, text)
        else:
            self._dead_letters += 1
            at = ObjectAt(source.partition, source.offset, letter.object_index)
            if wrong := self._wrong_in(at, letter):
                text = f"it is about {at}, which was not asked for {wrong}"
                self._findings.tell("wrong_field", topic, partition, offset, text)
            self._letters.take(partition, offset, at, letter)

    def _wrong_in(self, at: ObjectAt, letter: DeadLetter) -> str:
        again = letter.reference
        fields = Fields(
            named(letter.object),
            letter.stream,
            letter.event_time,
            again.attributes if again else None,
            letter.model,
        )
        return self._fields[at.partition].wrong(at, fields, less=again is None)

    @property
    def claims(self) -> list[tuple["Judge", list[ResultClaim]]]:
        """For each object with a result object: the judge that checks this result, and what the
        records claim about it.
        """
        return [(self, claims) for claims in self._answers.claims.by_object.values()]

    def result(self, claims: list[ResultClaim], content: StoredContent | str) -> None:
        """Judge an object's result by the claims about it. `content`: the stored result, or a text
        that says why it could not be read.
        """
        self._results += 1
        wrong, claim = wrong_with(claims, content)
        if wrong is not None:
            place = (self._scope.output_topic, claim.partition, claim.offset)
            self._findings.tell("bad_result", *place, f"{claim.about}: {wrong}")
        if self._scope.of_rows or isinstance(content, str):
            return
        for code, failed in content.failed.items():
            self._answers.rejected += sum(stop - start for start, stop in failed)
            for start, stop in failed:
                for row in range(start, stop):
                    self._letters.rejected(claim.at, claim.about, row, (code, claim.model))

    def replaced(self, claims: list[ResultClaim]) -> None:
        """Note that a later record's result has taken the place of an object's result."""
        self._replaced += 1
        self._letters.pass_over(claims[-1].at)

    def report(self) -> VerifyReport:
        for partition in self._asked:
            self._settle(partition)
        self._tell_late_rows()
        self._tell_wrong_duplicates()
        self._letters.settle(self._is_judged, self._may_be_silent)
        answers = self._answers
        return VerifyReport(
            references=self._references,
            ignored=self._ignored,
            objects=self._objects,
            rows=answers.rows,
            streams=len(answers.streams),
            duplicates=answers.repeats.count,
            markers=answers.marked,
            rejected=answers.rejected,
            dead_letters=self._dead_letters,
            outside=answers.outside,
            unproven=self._unproven,
            announced_again=len(answers.announced_again),
            results=self._results,
            replaced=self._replaced,
            waiting=self._waiting,
            violated=dict(self._findings.violated),
            violations=tuple(self._findings.violations),
        )

    def _settle(self, partition: int) -> None:
        """Report what is missing in an input partition, and whether the group's commit is ahead of
        the answers.
        """
        topic, until = self._scope.input_topic, self._scope.until[partition]
        progress = _progress(self._scope.committed.get(partition))
        ahead: tuple[int, str] | None = None
        for at, known in self._answers.undone(partition):
            if not self._scope.markers and self._is_silent(known):
                self._unproven += known is None and not self._letters.any_about(at)
                continue
            if ahead is None and (text := self._what_is_ahead(progress, at, known)):
                ahead = at.offset, text
            if at.offset < until:
                is_due = at.offset < progress.next_offset or at.offset in progress.completed
                self._waiting += not is_due and partition in self._scope.committed
                self._findings.tell("lost", topic, partition, at.offset, _what_is_lost(at, known))
        if ahead is not None:
            self._findings.tell("commit_ahead", topic, partition, *ahead)

    def _what_is_ahead(
        self, progress: PartitionProgress, at: ObjectAt, known: OpenObject | None
    ) -> str | None:
        """A text that says whether the offset or the cursor of the commit covers this incomplete
        object. None: the commit does not cover the object.
        """
        if at.offset < progress.next_offset:
            return (
                f"{progress.next_offset} is committed, but this message is not completely answered"
            )
        if at.offset in progress.completed:
            return "the cursor says that this message is answered, but not completely so"
        objects = progress.objects.get(at.offset)
        place = self._scope.place_of(at.object_index)
        if objects and place in objects:
            return f"the cursor is behind object {at.object_index}, which is not complete"
        want = self._asked[at.partition].at(at.offset)[at.object_index]
        covered = want.rows.within(0, progress.rows.get((at.offset, place), START).row)
        missing = covered.minus(known.seen) if known else covered
        return f"the cursor covers row {missing}, not delivered" if missing else None

    def _is_silent(self, known: OpenObject | None) -> bool:
        """True if the object may be complete although no record says that it is. This is possible
        if `output.markers` is off: then an empty object has no record, and an object that failed
        has only its letter.
        """
        if known is None:
            return True
        if known.end is not None:
            return False
        return not known.missing and self._letters.ends_at(known.at, known.want, known.seen.stop)

    def _tell_late_rows(self) -> None:
        for at, rows in self._answers.repeats.once():
            if at in self._answers.announced_again:
                continue  # the next worker did not know the first answer, so it made a full answer
            what = "a marker" if rows.starts[0] == END else f"row {rows}"
            text = f"object {at.object_index}: {what} came after its end, and only once"
            self._findings.tell("bad_end", self._scope.input_topic, at.partition, at.offset, text)

    def _tell_wrong_duplicates(self) -> None:
        answers = self._answers
        for pointer, why in answers.announced_again.wrong(self._wants, self._is_settled):
            text = f"the marker of {pointer.at} points to {pointer.first_id}, {why}"
            self._findings.tell(
                "bad_duplicate", self._scope.output_topic, pointer.partition, pointer.offset, text
            )

    def _wants(self, at: ObjectAt) -> Want | None:
        """The rows that are asked for of this object; None if its message was not read."""
        asked = self._asked.get(at.partition)
        if asked is None or not asked.begin <= at.offset < asked.end:
            return None
        wanted = asked.at(at.offset)
        return wanted[at.object_index] if at.object_index < len(wanted) else NO_REFERENCE[0]

    def _is_settled(self, at: ObjectAt) -> bool:
        return at.offset >= self._scope.until[at.partition] or at in self._answers.done

    def _is_judged(self, at: ObjectAt) -> bool:
        return at.offset < self._scope.until[at.partition]

    def _may_be_silent(self, at: ObjectAt) -> bool:
        return not self._scope.markers and at not in self._answers.done


def _progress(commit: Commit | None) -> PartitionProgress:
    """The progress that a commit claims. Without a commit nothing is claimed. A cursor that cannot
    be read claims nothing either, because the next owner of the partition ignores it.
    """
    if commit is None:
        return PartitionProgress(0)
    return Position.of(commit).progress


def _what_is_lost(at: ObjectAt, known: OpenObject | None) -> str:
    if known is None:
        return f"no row and no marker answers object {at.object_index} of this message"
    if known.end is None:
        rest = f"row {known.missing} and " if known.missing else ""
        return f"{known.about}: {rest}everything after row {known.seen.stop - 1} is missing"
    return f"{known.about}: row {known.missing} of {known.end} is missing"
