"""The checks of a life: what one assignment of one partition publishes, and what it commits.

Rule: from its start on a life publishes all rows that are asked for, in order (of the partition, or
of each stream), each once and with its true answer. It commits only what was acknowledged to it,
and nothing after its end. It may skip rows only by a cursor that fits what it reads now: this
object, this version, and row options that give the same rows.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.core.progress.cursor import MAX_CHARS, PartitionProgress, Position
from penstock.core.rows.origin import START, Cursor
from penstock.ports import Commit, Where
from penstock.tools.simulation.checks.history import History, Violation
from penstock.tools.simulation.checks.truth import (
    Letter,
    Number,
    PartitionLog,
    Truth,
    Truths,
    queue_of,
)
from penstock.tools.simulation.kafka.group import Watched


@dataclass(frozen=True, slots=True)
class LifeTerms:
    """`truths`: how a worker reads objects. All others: the worker's optional promises.
    `from_first_row`: True if rows are only in result objects, because these are always written from
    the first row on.
    """

    truths: Truths
    by_stream: bool = False
    exactly_once: bool = False
    dedupe: bool = False
    markers: bool = True
    from_first_row: bool = False


class Inherited:
    def __init__(self, log: PartitionLog, start: Commit, terms: LifeTerms) -> None:
        self._log = log
        self._terms = terms
        self._progress = Position.of(start).progress

    def is_done(self, number: Number) -> bool:
        """True if the commit says that all of this object was delivered."""
        offset, before = self._log.records[number[0]].offset, self._progress
        place = self._log.asked(number).place
        return offset in before.completed or place in before.objects.get(offset, ())

    def cursor(self, number: Number) -> Cursor:
        offset, place = self._log.records[number[0]].offset, self._log.asked(number).place
        return self._progress.rows.get((offset, place), START)

    def truth(self, number: Number, version: str | None) -> Truth | None:
        log = self._log
        return self._terms.truths.of(log.asked(number), log.records[number[0]], version)

    def begins(self, number: Number, version: str | None, row: int | None) -> int:
        """The row at which this life must begin the object. `row`: the first row of the object that
        this life has published.
        """
        allowed = self._may_begin(number, version)
        if len(allowed) > 1:
            truth = self.truth(number, version)
            first = truth.next(0) if truth else None
            is_first = truth and first is not None and row == truth.numbers[first]
            return 0 if is_first else max(allowed)
        return max(allowed)

    def _may_begin(self, number: Number, version: str | None) -> set[int]:
        """The rows at which the life may begin. If row options have changed but give the same rows
        so far, the life may begin at the cursor or at the first row. If the object can no longer be
        read, no version contradicts the cursor, so the life must begin at the cursor.
        """
        log, asked, ours = self._log, self._log.asked(number), self._terms.truths
        at = self.cursor(number)
        is_read = version is not None or asked.inline is not None
        if not at.row or not is_read:
            return {at.row}
        if self._terms.from_first_row:
            return {0}
        made = log.bound(number, at.version)
        if made is None or made.version != version:
            return {0}
        if made.truths is ours:
            return {at.row}
        record = log.records[number[0]]
        pair = [truths.of(asked, record, version) for truths in (ours, made.truths)]
        rows = [truth.below(at.row) if truth else None for truth in pair]
        return {0, at.row} if rows[0] is not None and rows[0] == rows[1] else {0}

    def may_be_silent(
        self, number: Number, before: tuple[str | None, int] | None, *, is_written: bool
    ) -> bool:
        """True if the object may end without a record that says so. Only a deployment without
        markers allows this. With `is_written`, an object that failed may end in this way only if
        its dead letter was delivered. `before`: the version of the object, and how many of its rows
        this life has published; None: it has published no row.
        """
        if self._terms.markers:
            return False
        log, asked = self._log, self._log.asked(number)
        versions: Collection[str | None] = (None,)
        rows: Collection[int] = (0, self.cursor(number).row)
        if before is not None:
            versions, rows = (before[0],), (before[1],)
        elif asked.reference:
            versions = self._terms.truths.versions(asked.name)
        ends = [
            truth.failure
            for version in versions
            if (truth := self.truth(number, version)) is not None
            and any(truth.next(row) is None for row in rows)
        ]
        if None in ends:
            return True
        if not is_written:
            return bool(ends) or asked.reference is None or bool(log.unsteady.get(asked.name))
        place = (log.records[number[0]].offset, asked.key, None)
        written = [
            letter.code
            for letter in log.letters
            if letter[:3] == place and asked.model in (None, letter.model)
        ]
        return any(code in ends or log.may_fail(asked, code) for code in written)


class Reached(NamedTuple):
    """How far an object is published: all rows before `row`. `ended`: True if the object's last
    record is published. `failed`: True if this last record is an error.
    """

    number: Number
    row: int
    version: str | None
    ended: bool = False
    failed: bool = False


class Life(Watched):
    """Call `published` and `acknowledged` for the records in the partition's order."""

    def __init__(
        self,
        log: PartitionLog,
        name: str,
        where: Where,
        start: Commit,
        terms: LifeTerms,
        history: History,
    ) -> None:
        self.name = name
        self.where = where
        self._log = log
        self._terms = terms
        self._history = history
        self._inherited = Inherited(log, start, terms)
        self._committed = start.next_offset
        self._first = self._swept = log.index(start.next_offset)
        self._heads: dict[str, Number] = {}
        self._published: dict[Number, Reached] = {}
        self._acked: dict[Number, Reached] = {}
        self._letters: dict[Number, list[Letter]] = defaultdict(list)

    def broken(self, promise: str) -> Violation:
        return self._history.broken(f"{self.name}, {self.where}: {promise}")

    def sending(self) -> None:
        """A batch leaves the worker. From now on the worker cannot hold it back."""
        if self.over or self.suspended:
            raise self.broken("a batch is sent after the partition was handed back")

    def published(self, records: Sequence[Mapping[str, Any]]) -> Sequence[Reached]:
        """Check records that reach the output topic. Returns for each record how far its object is
        published with this record.
        """
        return [self._publish(record) for record in records]

    def acknowledged(self, reached: Sequence[Reached]) -> None:
        self._acked |= {commit.number: commit for commit in reached}

    def committing(self, commit: Commit) -> None:
        """A commit, or the end of a transaction, leaves the worker."""
        if self.over or self.suspended:
            raise self.broken(f"{commit} is committed after the partition was handed back")

    def committed(self, commit: Commit) -> None:
        """Check a commit. Everything that it claims must be delivered; its offset must not be
        before the last commit; and each cursor must be bound to the version that was read.
        """
        claim = Position.of(commit)
        if not claim.is_whole or len(commit.metadata) > MAX_CHARS or not commit.metadata.isascii():
            raise self.broken(f"the metadata {commit.metadata!r} cannot be read")
        most = max(self._log.end, self._committed)  # a life may start beyond the end
        if not self._committed <= commit.next_offset <= most:
            raise self.broken(f"{commit} is committed after {self._committed}")
        for number in self._claimed(claim.progress):
            if not self._is_done(number):
                raise self.broken(
                    f"{commit} is committed, not acknowledged is {self._log.account(number)}"
                )
            self._check_letters(commit, number)
        for (offset, place), reached in claim.progress.rows.items():
            self._check_rows(commit, self._at_place(offset, place), reached)
        self._committed = commit.next_offset
        self._swept = self._log.index(commit.next_offset)

    def _claimed(self, claims: PartitionProgress) -> Iterator[Number]:
        """The objects that this commit claims as done and that the last commit did not claim."""
        log = self._log
        # A commit claims records before its offset only if the offset has moved. A life that began
        # beyond the topic's end commits the offset of its beginning. Records that are appended
        # after that get lower offsets, although nobody has read them.
        moves = claims.next_offset > self._committed
        for index in range(self._swept, log.index(claims.next_offset)) if moves else ():
            yield from ((index, number) for number in range(len(log.objects(index))))
        for start, stop in claims.completed:
            for index in range(log.index(start), log.index(stop)):
                yield from ((index, number) for number in range(len(log.objects(index))))
        for offset, ranges in claims.objects.items():
            for start, stop in ranges:
                yield from (self._at_place(offset, place) for place in range(start, stop))

    def _at_place(self, offset: int, place: int) -> Number:
        number = self._log.at_place(offset, place)
        if number is None:
            raise self.broken(f"a commit tells of offset {offset}, object {place}, which is none")
        return self._log.index(offset), number

    def _is_done(self, number: Number) -> bool:
        acked = self._acked.get(number)
        if (acked is not None and acked.ended) or self._inherited.is_done(number):
            return True
        is_silent = self._may_be_silent(number, is_written=True)
        if is_silent:
            self._log.silent.add(number)
        return is_silent

    def _may_be_silent(self, number: Number, *, is_written: bool) -> bool:
        before = self._published.get(number)
        at = None if before is None else (before.version, before.row)
        return self._inherited.may_be_silent(number, at, is_written=is_written)

    def _check_rows(self, commit: Commit, number: Number, reached: Cursor) -> None:
        # If rows are only in result objects, a cursor does not tell how far rows are delivered, but
        # how far dead letters are delivered.
        if self._terms.from_first_row or self._inherited.cursor(number) == reached:
            return
        acked = self._acked.get(number)
        if acked is None or acked.row < reached.row:
            rows = acked.row if acked is not None else 0
            raise self.broken(
                f"{commit} is committed, of {self._log.account(number)} only {rows} rows are "
                "acknowledged"
            )
        truths = self._terms.truths
        if not self._log.bind(number, reached.version, acked.version, truths):
            raise self.broken(f"{commit} is not bound to the version {acked.version}")
        self._check_letters(commit, number, reached.row)

    def _check_letters(self, commit: Commit, number: Number, below: int | None = None) -> None:
        for letter in self._letters.get(number, ()):
            is_due = below is None or (letter.row is not None and letter.row < below)
            if is_due and letter not in self._log.letters:
                raise self.broken(f"{commit} is committed without the dead letter {letter}")

    def _head(self, queue: str, head: tuple[int, int | None]) -> Number | None:
        """The object whose turn it is: the first object of the queue that was not done before this
        life, has not ended, and must have a record. `head`: the object of the record that is
        published now, as the offset of its message and its number within the message.
        """
        log = self._log
        index, of_record = self._heads.get(queue, (self._first, 0))
        while index < len(log.records):
            if of_record == len(log.objects(index)):
                index, of_record = index + 1, 0
                continue
            number = (index, of_record)
            is_here = not self._terms.by_stream or log.asked(number).queue == queue
            ended = number in self._published and self._published[number].ended
            if is_here and not ended and not self._inherited.is_done(number):
                self._heads[queue] = number
                is_found = head == (log.records[index].offset, of_record)
                if is_found or not self._may_be_silent(number, is_written=False):
                    return number
            of_record += 1
        return None

    def _publish(self, record: Mapping[str, Any]) -> Reached:
        offset, model = record["source"]["offset"], record["model"]
        answered = (offset, self._log.answered(offset, record["id"], model))
        of_model = None if self._log.fan is None else model
        queue = queue_of(record["stream"], of_model) if self._terms.by_stream else ""
        head = self._head(queue, answered)
        if head is None:
            raise self.broken(f"{record['id']} is published, nothing more was asked for")
        if answered != (self._log.records[head[0]].offset, head[1]):
            raise self.broken(f"{record['id']} is published, the turn is {self._log.account(head)}")
        asked, about = self._log.asked(head), record["object"]
        if (record["stream"], about and about["key"]) != (asked.stream, asked.key):
            raise self.broken(f"{record['id']} is of {record['stream']}, {about}, not {asked}")
        before = self._before(record, head, about["version"] if about else None)
        check = self._check_marker if record["row"] is None else self._check_row
        reached = self._published[head] = check(record, before)
        if "error" in record and not self._is_repeated(head, record["row"]):
            code = record["error"]["code"]
            letter = Letter(offset, asked.key, record["row"], code, model)
            self._letters[head].append(letter)
        return reached

    def _is_repeated(self, number: Number, row: int | None) -> bool:
        """True if a former life published this row, and this life only writes it again into the
        result object. The former life wrote the row's dead letter, perhaps for another model.
        """
        is_below = row is not None and row < self._inherited.cursor(number).row
        return self._terms.from_first_row and is_below

    def _before(self, record: Mapping[str, Any], head: Number, version: str | None) -> Reached:
        """How far the object `head` was published before this record. Breaks a promise if the
        record's row is of another version than the rows before.
        """
        before = self._published.get(head)
        if before is None:
            return Reached(head, self._inherited.begins(head, version, record["row"]), version)
        if before.version != version:
            raise self.broken(f"{record['id']} is of {version}, the rows before were not")
        return before

    def _check_row(self, record: Mapping[str, Any], before: Reached) -> Reached:
        number, row = before.number, record["row"]
        truth = self._inherited.truth(number, before.version)
        index = truth.next(before.row) if truth else None
        if truth is None or index is None or truth.numbers[index] != row:
            expected = truth.numbers[index] if truth and index is not None else "no row"
            raise self.broken(f"{record['id']} is published, expected is row {expected}")
        code = record["error"]["code"] if "error" in record else None
        if (record["prediction"], code, record.get("member")) != truth.answers[index]:
            raise self.broken(f"{record['id']} says {record}, true is {truth.answers[index]}")
        is_last = index + 1 == len(truth.numbers) and truth.failure is None
        says_last = bool(record.get("last"))
        if says_last and not (is_last and record["rows"] == truth.rows):
            raise self.broken(f"{record['id']} says it is the last of {record['rows']} rows")
        if is_last and not says_last and self._log.asked(number).name not in self._log.unsteady:
            raise self.broken(f"{record['id']} is the last of its object and does not say so")
        return Reached(number, row + 1, before.version, says_last)

    def _check_marker(self, record: Mapping[str, Any], before: Reached) -> Reached:
        number = before.number
        if "duplicate_of" in record:
            return self._check_pointer(record, before)
        truth = self._inherited.truth(number, before.version)
        code = record["error"]["code"] if "error" in record else None
        is_unsteady = code is not None and self._log.may_fail(self._log.asked(number), code)
        is_true = truth is not None and truth.failure == code and truth.next(before.row) is None
        if not is_unsteady and not (is_true and (code is not None or not before.row)):
            raise self.broken(f"{record['id']} is a marker with {code}, true is {truth}")
        if code is not None and record["rows"] < before.row:
            raise self.broken(f"{record['id']} counts less than the {before.row} rows before it")
        return before._replace(ended=True, failed=code is not None)

    def _check_pointer(self, record: Mapping[str, Any], before: Reached) -> Reached:
        """Check a marker that points to an earlier answer. This life must have given that answer to
        its end, and from the same version of the same object.
        """
        log, name = self._log, record["duplicate_of"]
        _, partition, offset, _, row = name.rsplit("/", 4)
        number = log.answered(int(offset), name, record["model"])
        first = (log.index(int(offset)), -1 if number is None else number)
        reached = self._published.get(first)
        is_known = reached is not None and reached.ended and not reached.failed
        if not (self._terms.dedupe and is_known and int(partition) == self.where.partition):
            raise self.broken(f"{record['id']} points to {name}, which does not answer it")
        asked, truth = log.asked(before.number), self._inherited.truth(first, before.version)
        is_same = asked.reference == log.asked(first).reference
        if before.row or reached is None or reached.version != before.version or not is_same:
            raise self.broken(f"{record['id']} points to {name}, which is another object")
        if truth is None or row not in ("-", str(next(iter(truth.numbers), "-"))):
            raise self.broken(f"{record['id']} points to {name}, true is {truth}")
        self._history.counts["pointer"] += 1
        return before._replace(ended=True)
