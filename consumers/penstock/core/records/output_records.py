"""The records of a release on the output topic.

Rule: records are encoded in bulk: what an object's records have in common once, an error once for
neighbouring rows that failed for one reason. No record is larger than the topic takes: it is
replaced by an error, and an error that is still too large is shortened. All answers of a stream are
in one partition. A bundle is a JSON array of records of one object, each with the same bytes as
alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from msgspec.structs import replace

from penstock.core.progress.order import Release
from penstock.core.records.failed_rows import (
    Failed,
    failed_rows,
    published_rows,
    too_large_rows,
    unpublished,
)
from penstock.core.routing.stream_keys import key_of
from penstock.core.rows.blocks import Block, Ticket
from penstock.core.rows.rejections import Rejection
from penstock.messages.prediction import Constants, ObjectId, RecordFrame, Result, Source, as_json
from penstock.messages.reference import time_of

# A function: does the topic take a record of this key with a value of this many bytes?
Fits = Callable[[bytes | None, int], bool]


@dataclass(frozen=True, slots=True)
class Labels:
    """The fields that are constant in every prediction: the input topic and the model. `versions`:
    for each model besides the default one, its version.
    """

    input_topic: str
    output_topic: str
    model: str
    model_version: str | None
    markers: bool
    versions: Mapping[str, str | None] = field(default_factory=dict)

    def model_of(self, ticket: Ticket) -> tuple[str, str | None]:
        """The name and version of the model that answers this ticket."""
        if ticket.model is None:
            return self.model, self.model_version
        return ticket.model, self.versions.get(ticket.model)


class Encoded(NamedTuple):
    """The records of a release in order, and the rows that failed. All of these records have the
    stream as their key.
    """

    values: list[bytes]
    failed: list[Failed]


def has_result(ticket: Ticket) -> bool:
    """Is a result object written for this closed ticket? No result object is written in three
    cases: the record names no object; the object could not be read at all; or an earlier object's
    answers count for this object too.
    """
    is_named = ticket.reference is not None or ticket.inline is not None
    is_read = ticket.failure is None or ticket.tail is not None
    return is_named and is_read and ticket.duplicate_of is None


class Records:
    """Encodes releases: as a record for each row, as one record for each object whose answers are
    written as a result, or as both.
    """

    def __init__(
        self, labels: Labels, fits: Fits, *, of_rows: bool = True, of_objects: bool = False
    ) -> None:
        self._labels = labels
        self._fits = fits
        self._of_rows = of_rows
        self._of_objects = of_objects

    def frame_bytes(self, ticket: Ticket) -> int:
        """The bytes that a record of this ticket takes besides its answer and its member."""
        return self._frame_of(ticket).nbytes

    def encode(self, release: Release) -> Encoded:
        ticket = release.ticket
        out = Encoded([], [])
        if self._of_rows:
            self._add_rows(release, out)
        else:
            out.failed.extend(failed_rows(release))
        if ticket.published_rows:
            known = published_rows(release)
            out = Encoded(out.values[known:], unpublished(ticket, out.failed))
        if ends_alone(release):
            self._add_end(ticket, out)
        return out

    def object_record(self, ticket: Ticket, result: Result) -> bytes:
        """The record of a finished object. It comes after the records of the object's rows."""
        failure = ticket.failure
        error = (failure.code, failure.message) if failure else None
        return self._shortened(ticket, lambda frame: frame.result(ticket.rows, result, error))

    def lost_result(self, ticket: Ticket, why: Rejection) -> bytes:
        """The record of an object whose result could not be written."""
        rows, error = ticket.rows if self._of_rows else 0, (why.code, why.message)
        return self._shortened(ticket, lambda frame: frame.marker(rows, error))

    def _add_rows(self, release: Release, out: Encoded) -> None:
        ticket = release.ticket
        for block in release.blocks:
            is_last = release.finished and block.next is None and ticket.failure is None
            last_rows = ticket.rows if is_last else None
            if block.answers is None:
                self._add_refused(block, last_rows, out)
            else:
                self._add_answered(block, block.answers, last_rows, out)

    def _add_refused(self, block: Block, last_rows: int | None, out: Encoded) -> None:
        row = block.first_row
        end = row + block.rows
        for rows, why in block.rejections():
            is_last = row + rows == end
            self._add_failed(
                block.ticket,
                Failed(row, rows, block.member, why),
                last_rows if is_last else None,
                out,
            )
            if block.kept is not None:
                self._keep_refused(block, row, rows, out)
            row += rows

    def _keep_refused(self, block: Block, row: int, rows: int, out: Encoded) -> None:
        """Insert the kept values into the records of rows that the model refused. If the topic
        would not take the longer record, the record stays without the kept values.
        """
        key, begin = block.ticket.stream.encode(), len(out.values) - rows
        for index in range(rows):
            value = self._with_kept(block, out.values[begin + index], row - block.first_row + index)
            if self._fits(key, len(value)):
                out.values[begin + index] = value

    def _add_answered(
        self, block: Block, answers: Sequence[bytes], last_rows: int | None, out: Encoded
    ) -> None:
        ticket, member = block.ticket, block.member
        frame, key = self._frame_of(ticket), ticket.stream.encode()
        values = frame.rows(block.first_row, answers, member)
        final = block.rows - 1
        if last_rows is not None:
            values[final] = frame.last_row(
                block.first_row + final, answers[final], member, last_rows
            )
        errors = dict(block.errors)
        # First an upper bound of all lengths is checked. The length of each record is checked only
        # if the topic would not take a record as long as this bound.
        most_bytes = frame.nbytes + 6 * len(member or "") + block.answer_bytes
        if block.kept is not None:
            values = [self._with_kept(block, value, row) for row, value in enumerate(values)]
            most_bytes += block.kept.row_bytes
        if not self._fits(key, most_bytes):
            errors = too_large_rows(values, lambda value: self._fits(key, len(value))) | errors
        if not errors:
            out.values.extend(values)
            return
        start = 0
        # The records between two errors are copied unchanged.
        for index in sorted(errors):
            out.values.extend(values[start:index])
            failed = Failed(block.first_row + index, 1, member, errors[index])
            self._add_failed(ticket, failed, last_rows if index == final else None, out)
            value = self._with_kept(block, out.values[-1], index)
            if self._fits(key, len(value)):
                out.values[-1] = value
            start = index + 1
        out.values.extend(values[start:])

    def _with_kept(self, block: Block, value: bytes, row: int) -> bytes:
        if block.kept is None:
            return value
        origin = block.ticket.reference or block.ticket.inline
        event_time = time_of(origin)
        time_json = None if event_time is None else as_json(event_time)
        return block.kept.into(value, row, time_json)

    def _add_failed(
        self, ticket: Ticket, failed: Failed, last_rows: int | None, out: Encoded
    ) -> None:
        """Append the errors of consecutive rows."""
        row, why = failed.row, failed.why
        assert row is not None
        out.failed.append(failed)
        key = ticket.stream.encode()
        for frame in self._frames(ticket):
            values = frame.rejected(
                row, failed.rows, why.code, why.message, failed.member, last_rows
            )
            if self._fits(key, len(values[-1])):  # the last value is the longest
                break
        out.values.extend(values)

    def _add_end(self, ticket: Ticket, out: Encoded) -> None:
        """Append the marker of an object that has no rows, or that could not be read to its end.
        The marker is left out if the record of the object's result already says that the object
        ends.
        """
        failure = ticket.failure
        if self._labels.markers and not (self._of_objects and has_result(ticket)):
            rows = ticket.rows if failure else 0
            error = (failure.code, failure.message) if failure else None
            first = ticket.duplicate_of
            if first is not None and not self._of_rows:
                first = first._replace(row=None)
            out.values.append(
                self._shortened(
                    ticket,
                    lambda frame: frame.duplicate(*first) if first else frame.marker(rows, error),
                )
            )
        if failure is not None:
            out.failed.append(Failed(None, 1, None, failure))

    def _shortened(self, ticket: Ticket, make: Callable[[RecordFrame], bytes]) -> bytes:
        """Makes the record with each frame in turn, and returns the first record that the topic
        takes. If the topic takes none of them, the last record is returned.
        """
        key, value = ticket.stream.encode(), b""
        for frame in self._frames(ticket):
            value = make(frame)
            if self._fits(key, len(value)):
                break
        return value

    def _frames(self, ticket: Ticket) -> Iterator[RecordFrame]:
        """Three frames, each shorter than the one before: the full frame; the frame without the
        sender's attributes; and the frame without the object's name, which is not needed because
        the object can still be found by `source`.
        """
        yield self._frame_of(ticket)
        less = replace(self._constants(ticket), attributes=None, event_time=None)
        yield RecordFrame(less)
        yield RecordFrame(replace(less, object=None, stream=ticket.stream[:200]))

    def _frame_of(self, ticket: Ticket) -> RecordFrame:
        if ticket.frame is None:
            ticket.frame = RecordFrame(self._constants(ticket))
        return ticket.frame

    def _constants(self, ticket: Ticket) -> Constants:
        reference, origin = ticket.reference, ticket.reference or ticket.inline
        model, version = self._labels.model_of(ticket)
        return Constants(
            source=source_of(ticket),
            object_index=ticket.object_index,
            stream=ticket.stream,
            object=None
            if reference is None
            else ObjectId(reference.bucket, reference.key, ticket.version, reference.store),
            event_time=time_of(origin),
            attributes=origin.attributes if origin else None,
            model=model,
            model_version=version,
        )


def source_of(ticket: Ticket) -> Source:
    """The record that named the ticket's object."""
    return Source(*ticket.owner.where, ticket.record.offset, ticket.owner.topic_id)


def ends_alone(release: Release) -> bool:
    """True if the object ends in this release and the end needs a record of its own: the object has
    no rows, or could not be read to its end.
    """
    ticket = release.ticket
    return release.finished and (ticket.failure is not None or ticket.tail is None)


def same_partition(ticket: Ticket) -> int:
    """The partition with the number of the input partition. Both topics have the same number of
    partitions.
    """
    return ticket.owner.where.partition


def by_stream(partition_of: Callable[[bytes], int]) -> Callable[[Ticket], int]:
    """Returns a function from a ticket to its partition: the one that a producer would choose by
    the key of the answers. So all answers of one stream share a partition.
    """

    def of_ticket(ticket: Ticket) -> int:
        return partition_of(key_of(ticket.stream, ticket.record.key))

    return of_ticket


# The bytes of the array's two brackets.
FRAME_BYTES = 2


class Blocks(NamedTuple):
    """In which form rows are put together into one Kafka record. `rows`: the most rows of such a
    record.
    """

    rows: int
    form: Literal["json", "arrow"] = "json"


def bundled(values: Sequence[bytes], most: int, fits: Callable[[int], bool]) -> Iterator[bytes]:
    """Join the records into bundles. `fits`: does the topic take a value of this many bytes? Each
    record alone is known to fit.
    """
    start = 0
    while start < len(values):
        stop = min(start + most, len(values))
        value = b"[%b]" % b",".join(values[start:stop])
        while stop > start + 1 and not fits(len(value)):
            stop = start + (stop - start) // 2
            value = b"[%b]" % b",".join(values[start:stop])
        yield value
        start = stop
