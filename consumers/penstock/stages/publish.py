"""Publishes a lane's answers in order and reports what the broker has.

Rule: a lane has one release with the broker at a time. Answers that become ready meanwhile leave
together in the next release. So releases grow with the load, and without load no answer waits for
another. Rows count as delivered when every record of their release (dead letters included) was
acknowledged; in transactions, when the records and the position after them were committed as one.
If the line refuses a release because of its letters, this release and all behind it stay in the
lane. Owner: the pipeline runs one loop for each lane.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from penstock.calls.unexpected_errors import Guards
from penstock.core.order.releases import Release, Room
from penstock.core.records.failed_rows import Failed
from penstock.core.records.output_records import Labels, Records
from penstock.core.records.partition_and_bundles import FRAME_BYTES, Blocks, bundled
from penstock.core.rows.blocks import Ticket
from penstock.core.rows.rejections import Rejection
from penstock.core.window.pace import Pace
from penstock.encodings.arrow_blocks import ArrowRecords
from penstock.errors import EXIT_UNREACHABLE, Fatal, Transient
from penstock.lane.dedupe import Dedupe
from penstock.lane.lane import Lane
from penstock.messages.prediction import Result
from penstock.ports import Clock, Commit, Outgoing, Sink
from penstock.stages.dead_letters import Reject
from penstock.stages.delivery_times import DeliveryTimes
from penstock.stages.encode_releases import Encode, Leaving, Refused
from penstock.stages.result_objects import LaneResults, ObjectResults
from penstock.telemetry.worker import Telemetry
from penstock.tracing.tracer import Tracer

# About 1 MB of records, the size of a Kafka batch, and a few ms of the event loop.
RELEASE_ROWS = 2_500
# The limit for long records (such as those with large answers or many attributes): two Kafka
# batches, which are in memory twice while they leave.
RELEASE_BYTES = 2 << 20

# Publishes records and a lane's new position as one.
Transact = Callable[[Sequence[Outgoing], Commit], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class PublishTerms:
    """`partition_of`: gives the partition of the output topic for a ticket's answers."""

    partition_of: Callable[[Ticket], int]
    blocks: Blocks | None = None  # None: a Kafka record for each row


class _Step(NamedTuple):
    """The releases that leave together, and those that their line refused."""

    releases: Sequence[Release]
    outgoing: list[Outgoing]
    refused: Sequence[Refused]
    released_s: float


class Publish:
    """One per pipeline; `lane_forever` or `lane_in_transactions` runs once for each lane."""

    def __init__(
        self,
        sink: Sink,
        reject: Reject,
        labels: Labels,
        terms: PublishTerms,
        paces: Mapping[str | None, Pace],
        dedupe: Dedupe | None,
        clock: Clock,
        telemetry: Telemetry,
        guards: Guards,
        results: ObjectResults | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        """With `results` answers are written as objects before any record of them is published."""
        self._tracer = tracer
        self._times = DeliveryTimes(paces, clock, telemetry, tracer)
        self._results = results
        self._sink = sink
        self._dedupe = dedupe
        self._reject = reject
        self._output_topic = labels.output_topic
        # Without result objects the records of rows are the only answers, so they cannot be off.
        of_rows = results is None or results.of_rows
        of_objects = results is not None and results.of_objects
        blocks = terms.blocks
        self._array_rows: int | None = None
        if blocks is not None and blocks.form == "arrow":
            self._records: Records = ArrowRecords(
                labels, self._fits, blocks.rows, of_rows=of_rows, of_objects=of_objects
            )
        else:
            self._array_rows = blocks.rows if blocks is not None else None
            self._records = Records(labels, self._fits, of_rows=of_rows, of_objects=of_objects)
        self._encode = Encode(self._records, reject, dedupe, guards.at("record"), clock)
        self._partition_of = terms.partition_of
        self._clock = clock
        self._telemetry = telemetry

    async def lane_forever(self, lane: Lane) -> None:
        async with self._results_of_lane() as results:
            while found := await lane.release(self._room):
                with lane.leaving():
                    await self._deliver(lane, found, results)

    async def _deliver(
        self, lane: Lane, found: Sequence[Release], results: LaneResults | None
    ) -> None:
        try:
            step = await self._step(lane, found, results)
        except Transient as error:
            # The answers in the broken upload are gone, and an open lane cannot ask the model
            # again. The next assignment of the partition asks the model for them.
            raise Fatal(
                f"results cannot be written; they will be repeated: {error}",
                exit_code=EXIT_UNREACHABLE,
            ) from error
        # All records are handed over before the first delivery is awaited, so they leave in one
        # request.
        for delivery in [await self._sink.send(out) for out in step.outgoing]:
            await delivery
        lane.delivered(step.releases)
        self._end(lane, step)

    async def lane_in_transactions(self, lane: Lane, transact: Transact, idle_s: float) -> None:
        """Like `lane_forever`, but in transactions. After `idle_s` without a release the position
        is committed alone, because records without objects may have moved it.
        """
        async with self._results_of_lane() as results:
            while (found := await self._next(lane, idle_s)) is not None:
                if not found and (lane.due is None or lane.suspended):
                    continue
                with lane.leaving():
                    await self._transact(lane, transact, found, results)

    def _results_of_lane(self) -> AbstractAsyncContextManager[LaneResults | None]:
        return nullcontext() if self._results is None else self._results.lane()

    async def _transact(
        self, lane: Lane, transact: Transact, found: Sequence[Release], results: LaneResults | None
    ) -> None:
        step = await self._step(lane, found, results)
        # The transaction carries the position, so the releases are accounted for before they are
        # delivered. If the transaction fails, the lane ends, and its account with it.
        lane.account(step.releases, [one.stop for one in step.refused])
        position = lane.progress
        await transact(step.outgoing, position)
        lane.committed = position
        self._telemetry.committed()
        if found:
            lane.confirm(step.releases)
        self._end(lane, step)

    async def _step(
        self, lane: Lane, found: Sequence[Release], results: LaneResults | None
    ) -> _Step:
        released_s = self._clock.now()
        # The releases are encoded before results are written, because a refused release must not
        # leave a result behind.
        leaving, refused = self._encode.releases(lane, found)
        releases = [one.release for one in leaving]
        if results is not None:
            self._add_results(leaving, await results.write(releases))
        return _Step(releases, self._outgoing(leaving), refused, released_s)

    def _add_results(
        self, leaving: Sequence[Leaving], results: Sequence[Result | Rejection | None]
    ) -> None:
        """For every object whose last rows are in these releases, append its object record after
        its row records.
        """
        for one, result in zip(leaving, results, strict=True):
            ticket = one.release.ticket
            if isinstance(result, Rejection):
                one.encoded.values.append(self._records.lost_result(ticket, result))
                one.encoded.failed.append(Failed(None, 1, None, result))
                one.letters.append(self._reject.letter_of_object(ticket, result))
                if self._dedupe is not None:
                    self._dedupe.rejected(ticket)
            elif result is not None and self._results is not None and self._results.of_objects:
                one.encoded.values.append(self._records.object_record(ticket, result))

    def _end(self, lane: Lane, step: _Step) -> None:
        if step.releases:
            self._times.delivered(step.releases, step.released_s)
        # A line stops only now, when the answers before the refused ones are delivered, so that the
        # line later goes on exactly at the refused ones. The first stop may close the lane.
        for one in step.refused:
            if lane.alive:
                lane.stop(one.stop, one.releases)

    async def _next(self, lane: Lane, idle_s: float) -> list[Release] | None:
        """The releases to publish next. Empty: there were none for `idle_s`; None: the lane is
        closed.
        """
        try:
            async with asyncio.timeout(idle_s):
                return await lane.release(self._room) or None
        except TimeoutError:
            return []

    def _fits(self, key: bytes | None, value_bytes: int) -> bool:
        """Does the topic take this record alone? If records are sent in arrays, an array's brackets
        count as well.
        """
        frame_bytes = 0 if self._array_rows is None else FRAME_BYTES
        return self._sink.fits(self._output_topic, key, value_bytes + frame_bytes)

    def _room(self) -> Room:
        return Room(RELEASE_ROWS, RELEASE_BYTES, self._records.frame_bytes)

    def _outgoing(self, leaving: Sequence[Leaving]) -> list[Outgoing]:
        outgoing: dict[int, Outgoing] = {}
        letters: list[bytes] = []
        for release, made, its_letters in leaving:
            # All releases for one partition leave as one Kafka batch, so that small objects do not
            # each pay for a batch of their own.
            partition = self._partition_of(release.ticket)
            out = outgoing.get(partition)
            if out is None:
                out = outgoing[partition] = Outgoing(self._output_topic, partition, [], [])
            key, values = release.ticket.stream.encode(), made.values
            if self._array_rows is not None:
                fits = partial(self._sink.fits, self._output_topic, key)
                values = list(bundled(values, self._array_rows, fits))
            # The reader of a record can follow the trace of its object.
            headers = None if self._tracer is None else self._tracer.headers(release.ticket)
            out.add(key, values, headers)
            letters += its_letters
            for failed in made.failed:
                self._rejected(release.ticket, failed)
        found = [out for out in outgoing.values() if out.values]
        if letters:
            found.append(self._reject.outgoing(leaving[0].release.ticket.owner.partition, letters))
        return found

    def _rejected(self, ticket: Ticket, failed: Failed) -> None:
        code, message, rows = failed.why.code, failed.why.message, failed.rows
        self._telemetry.rejected(code, rows)
        self._telemetry.streams.rejected(
            ticket.stream, ticket.owner.partition, code, message, rows, self._clock.now()
        )
