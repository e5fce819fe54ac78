"""Encodes releases into records and dead letters, which leave for Kafka together.

Rule: a release that would bring its line (partition or stream) too many dead letters is refused;
those before are encoded, it and all behind stay in the lane. An unforeseen exception costs only the
row whose record cannot be made: the release is cut until it is alone, and tried once more. A letter
that cannot be made in full is shortened, not left out.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import NamedTuple

from penstock.core.progress.line_stop import LineStop
from penstock.core.progress.order import Release, Room
from penstock.core.records.failed_rows import OF_ARRAYS, OF_ROWS, Failed
from penstock.core.records.output_records import (
    FRAME_BYTES,
    Blocks,
    Encoded,
    Labels,
    Records,
    bundled,
    ends_alone,
)
from penstock.core.routing.stream_keys import key_of
from penstock.core.rows.blocks import Ticket, leading
from penstock.core.rows.rejections import Rejection
from penstock.encodings.arrow_blocks import OF_BLOCKS, ArrowRecords
from penstock.errors import Unforeseen
from penstock.failures.unexpected_errors import Guard, Guards
from penstock.lane.dedupe import Dedupe
from penstock.lane.lane import Lane
from penstock.messages.prediction import Result
from penstock.ports import Clock, Outgoing, Sink
from penstock.stages.reject import Reject
from penstock.stages.result_objects import ObjectResults
from penstock.telemetry.worker import Telemetry
from penstock.tracing import Tracer

# So many rows make about 1 MB of records, the size of a Kafka batch, and take a few ms of the event
# loop.
RELEASE_ROWS = 2_500
# So many objects that end take as long as all these rows.
PIECE_RELEASES = 100
# The limit if records are long, because of large answers or many attributes: two Kafka batches.
# While they leave, they are in memory twice.
RELEASE_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class PublishTerms:
    """`partition_of`: a function that returns the partition of the output topic for a ticket's
    answers.
    """

    partition_of: Callable[[Ticket], int]
    blocks: Blocks | None = None  # None: a Kafka record for each row


class Leaving(NamedTuple):
    """A release that leaves, with its records and dead letters."""

    release: Release
    encoded: Encoded
    letters: list[bytes]


class RefusedReleases(NamedTuple):
    """The refused releases of one partition or stream, and why they are refused."""

    stop: LineStop
    releases: list[Release]


class Encode:
    """One `Encode` serves all lanes of a pipeline; each call is for the releases of one lane."""

    def __init__(
        self,
        sink: Sink,
        reject: Reject,
        labels: Labels,
        terms: PublishTerms,
        dedupe: Dedupe | None,
        clock: Clock,
        telemetry: Telemetry,
        guards: Guards,
        results: ObjectResults | None,
        tracer: Tracer | None,
    ) -> None:
        self._sink = sink
        self._reject = reject
        self._output_topic = labels.output_topic
        self._partition_of = terms.partition_of
        self._dedupe = dedupe
        self._clock = clock
        self._telemetry = telemetry
        self._guard = guards.at("record")
        self._tracer = tracer
        blocks = terms.blocks
        # Without result objects the records of rows are the only answers, so they are always on.
        of_rows = results is None or results.of_rows
        self._of_objects = of_objects = results is not None and results.of_objects
        self._array_rows: int | None = None
        if blocks is not None and blocks.form == "arrow":
            self._records: Records = ArrowRecords(
                labels, self._fits, blocks.rows, of_rows=of_rows, of_objects=of_objects
            )
            self._form = OF_BLOCKS
        else:
            self._array_rows = blocks.rows if blocks is not None else None
            self._form = OF_ROWS if blocks is None else OF_ARRAYS
            self._records = Records(labels, self._fits, of_rows=of_rows, of_objects=of_objects)

    def room(self, most_bytes: int = RELEASE_BYTES) -> Room:
        """How much may be encoded and sent at once."""
        return Room(RELEASE_ROWS, min(RELEASE_BYTES, most_bytes), self._records.frame_bytes)

    async def releases(
        self, lane: Lane, releases: Sequence[Release]
    ) -> tuple[list[Leaving], list[RefusedReleases]]:
        """Returns two things: the releases that leave, encoded; and the refused releases, one entry
        for each line. The lane may have ended meanwhile.
        """
        passed: list[Leaving] = []
        refused: dict[str, RefusedReleases] = {}
        for number, whole in enumerate(releases):
            # A thousand objects may have a row each, or an error.
            if number and not number % PIECE_RELEASES:
                await asyncio.sleep(0)
            line = lane.line_of(whole.ticket)
            # An earlier release of the same partition or stream was refused in this step.
            if line in refused:
                refused[line].releases.append(whole)
                continue
            for release, made in _encoded(self._records, self._guard, whole):
                ticket = release.ticket
                # An earlier part of the same release was refused.
                if line in refused:
                    refused[line].releases.append(release)
                    continue
                limit = lane.account.letters.refuses(
                    ticket.stream,
                    ticket.record.offset,
                    failed=bool(made.failed),
                    finished=release.finished,
                )
                if limit is not None:
                    refused[line] = RefusedReleases(
                        self._stop(ticket, made.failed[0], limit), [release]
                    )
                    continue
                letters: list[bytes] = []
                if made.failed:
                    if ticket.trace is not None:
                        ticket.trace.failed(made.failed[0].why.code, made.failed[0].why.message)
                    letters = list(self._reject.letters(ticket, made.failed))
                    # `dedupe` is told of the failure before the letters leave. Once a letter has
                    # left, the object may be announced again, and it must then be read again
                    # instead of counting as a duplicate.
                    if self._dedupe is not None:
                        self._dedupe.rejected(ticket)
                passed.append(Leaving(release, made, letters))
        return passed, list(refused.values())

    def add_results(
        self, leaving: Sequence[Leaving], results: Sequence[Result | Rejection | None]
    ) -> None:
        """`results`: for each release, what `LaneResults.write` returned. If a release ends an
        object, the object's record is appended after its row records.
        """
        for delivery, result in zip(leaving, results, strict=True):
            ticket = delivery.release.ticket
            if isinstance(result, Rejection):
                delivery.encoded.values.append(self._records.lost_result(ticket, result))
                delivery.encoded.failed.append(Failed(None, 1, None, result))
                delivery.letters.append(self._reject.letter_of_object(ticket, result))
                if self._dedupe is not None:
                    self._dedupe.rejected(ticket)
            elif result is not None and self._of_objects:
                delivery.encoded.values.append(self._records.object_record(ticket, result))

    def outgoing(self, leaving: Sequence[Leaving]) -> list[Outgoing]:
        """The Kafka records of these releases, with their letters behind them."""
        outgoing: dict[int, Outgoing] = {}
        tickets: dict[int, list[tuple[int, Ticket]]] = {}
        letters: list[bytes] = []
        for release, made, its_letters in leaving:
            # All releases for one partition leave as one Kafka batch, so that small objects do not
            # each pay for a batch of their own.
            ticket, values = release.ticket, made.values
            partition = self._partition_of(ticket)
            key = key_of(ticket.stream, ticket.record.key)
            if self._array_rows is not None:
                fits = partial(self._sink.fits, self._output_topic, key)
                values = list(bundled(values, self._array_rows, fits))
            # The headers let the reader of a record find the trace of the record's object.
            headers = None if self._tracer is None else self._tracer.headers(release.ticket)
            out = outgoing.get(partition)
            if out is None:
                out = outgoing[partition] = Outgoing(
                    self._output_topic,
                    partition,
                    [key] * len(values),
                    list(values),
                    None if headers is None else [headers] * len(values),
                )
                begins = tickets[partition] = [(0, ticket)]
                # Not `out` itself: a circle would keep its records until the collector comes.
                out.instead = partial(self._instead, out.then, begins)
            else:
                tickets[partition].append((len(out.values), ticket))
                out.add(key, values, headers)
            letters += its_letters
            for failed in made.failed:
                self._rejected(ticket, failed)
        filled = [out for out in outgoing.values() if out.values]
        if letters:
            filled.append(
                self._reject.outgoing(leaving[0].release.ticket.owner.where.partition, letters)
            )
        return filled

    def _instead(
        self,
        then: list[Outgoing],
        begins: Sequence[tuple[int, Ticket]],
        index: int,
        refused_value: bytes,
        reason: str,
    ) -> Sequence[bytes] | None:
        """What is sent in place of a record which the output topic refused: its halves, or if it
        has one row, the error that answers it, whose letter follows. `begins`: each ticket, with
        the index of its first record.
        """
        halves = self._form.halves(refused_value)
        if len(halves) > 1:
            return halves
        why = Rejection(
            "result_refused", f"{self._output_topic} refused it: {reason}", "publish", 1
        )
        error = self._form.error(refused_value, why)
        if error is None:
            return None
        ticket = begins[bisect_right(begins, index, key=itemgetter(0)) - 1][1]
        failed = Failed(error.row, 1, error.member, why)
        letters = list(self._reject.letters(ticket, [failed]))
        if self._dedupe is not None:
            self._dedupe.rejected(ticket)
        self._rejected(ticket, failed)
        then.append(self._reject.outgoing(ticket.owner.where.partition, letters))
        return [error.value]

    def _rejected(self, ticket: Ticket, failed: Failed) -> None:
        code, message, rows = failed.why.code, failed.why.message, failed.rows
        self._telemetry.rejected(code, rows)
        self._telemetry.streams.rejected(
            ticket.stream, ticket.owner.where, code, message, rows, self._clock.now()
        )

    def _fits(self, key: bytes | None, value_bytes: int) -> bool:
        """True if the output topic takes a record of this size. If records are sent in arrays, the
        brackets of an array with only this record count as well.
        """
        frame_bytes = 0 if self._array_rows is None else FRAME_BYTES
        return self._sink.fits(self._output_topic, key, value_bytes + frame_bytes)

    def _stop(self, ticket: Ticket, failed: Failed, limit: str) -> LineStop:
        return LineStop(
            *ticket.owner.where,
            stream=ticket.stream,
            offset=ticket.record.offset,
            object_index=ticket.object_index,
            row=failed.row,
            code=failed.why.code,
            message=failed.why.message,
            limit=limit,
            since_ms=self._clock.wall_ms(),
            record_ms=ticket.record.timestamp_ms,
        )


def _encoded(records: Records, guard: Guard, release: Release) -> Iterator[tuple[Release, Encoded]]:
    """The release as a whole if it can be encoded, else its parts, in order."""
    try:
        with guard:
            made = records.encode(release)
    except Unforeseen as error:
        parts = _cut(release)
        if parts is None:
            yield release, _alone(records, guard, release, error)
            return
    else:
        yield release, made
        return
    for part in parts:
        yield from _encoded(records, guard, part)


def _alone(records: Records, guard: Guard, release: Release, error: Unforeseen) -> Encoded:
    """Try once more to encode a release of one row, or the end of an object. If that fails as well,
    the row or object is answered by an error. If the error cannot be encoded either, the process
    ends.
    """
    try:
        with guard:
            return records.encode(release)
    except Unforeseen:
        why = Rejection(error.code, str(error), "publish", 2)
        if release.blocks:
            release.blocks[0].retract(why)
        else:
            release.ticket.failure = why
        return records.encode(release)


def _cut(release: Release) -> tuple[Release, Release] | None:
    """Cut a release into two parts. Each part has half of the rows; if there is only one row, the
    parts are the row and the end of its object. None: the release cannot be cut further.
    """
    rows = release.rows
    if rows > 1:
        first, rest = leading(release.blocks, rows // 2)
    elif rows and ends_alone(release):
        first, rest = release.blocks, []
    else:
        return None
    ticket = release.ticket
    return Release(ticket, first, finished=False), Release(ticket, rest, release.finished)
