"""Publishes a lane's answers in order and reports what the broker has.

Rule: a lane has one release with the broker at a time; what becomes ready meanwhile leaves together
in the next, so that batches grow with the load and none waits without it. Rows count as delivered
when every record of their release (dead letters included) was acknowledged; in transactions, when
these and the position that they reach were committed as one. A release whose letters the line
refuses stays, and so does everything behind it. Records are encoded in bulk, the constant part once
per object.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from consumers.core.blocks import Block, Rejection, Ticket
from consumers.core.line import LineStop
from consumers.core.order import Release
from consumers.core.pace import Pace
from consumers.dedupe import Dedupe
from consumers.lane import Lane
from consumers.ports import Clock, Outgoing, Outlet, Sink
from consumers.stages.reject import Failed, Reject
from consumers.telemetry import Telemetry, Way
from schemas.prediction import RecordFrame

# About 1 MB of records, the size of a Kafka batch, and a few ms of the event loop.
RELEASE_ROWS = 2_500


@dataclass(frozen=True, slots=True)
class Labels:
    """What every prediction says about where it comes from."""

    input_topic: str
    output_topic: str
    model: str
    model_version: str | None
    markers: bool


class _Encoded(NamedTuple):
    """Records of a release; `letters` for what `failed` of it."""

    values: list[bytes]
    letters: list[bytes]
    failed: list[Failed]


class Publish:
    """One per pipeline; `lane_forever` or `lane_in_transactions` runs once per lane and ends with
    it.
    """

    def __init__(
        self,
        sink: Sink,
        reject: Reject,
        labels: Labels,
        partition_of: Callable[[Ticket], int],
        pace: Pace | None,
        dedupe: Dedupe,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        self._sink = sink
        self._pace = pace
        self._dedupe = dedupe
        self._reject = reject
        self._labels = labels
        self._partition_of = partition_of
        self._clock = clock
        self._telemetry = telemetry

    async def lane_forever(self, lane: Lane) -> None:
        while releases := await lane.release(RELEASE_ROWS):
            released_s = self._clock.now()
            encoded, stop = self._encode_all(lane, releases)
            releases = releases[: len(encoded)]
            outgoing = self._outgoing(releases, encoded)
            for delivery in [await self._sink.send(out) for out in outgoing]:
                await delivery
            lane.delivered(releases)
            self._delivered(releases, released_s)
            if stop is not None and lane.alive:
                lane.stop(stop)

    async def lane_in_transactions(self, lane: Lane, outlet: Outlet, idle_s: float) -> None:
        """Records that need no answer move the position alone, after `idle_s` without a release."""
        while (found := await _within(lane, idle_s)) is not None:
            if not found and lane.progress == lane.committed:
                continue
            released_s = self._clock.now()
            encoded, stop = self._encode_all(lane, found)
            if stop is not None:
                lane.line.stopped_at = stop.offset  # the position will say so
            releases = found[: len(encoded)]
            outgoing = self._outgoing(releases, encoded)
            lane.account(releases)
            position = lane.progress
            await outlet.publish(outgoing, position)
            lane.committed = position
            self._telemetry.committed()
            if found:
                lane.confirm(releases)
                self._delivered(releases, released_s)
            if stop is not None and lane.alive:
                lane.stop(stop)

    def _encode_all(
        self, lane: Lane, releases: Sequence[Release]
    ) -> tuple[list[_Encoded], LineStop | None]:
        """Those before the first that the line refuses, and why it does."""
        passed: list[_Encoded] = []
        for release in releases:
            encoded, ticket = self._encode(release), release.ticket
            limit = lane.line.refuses(
                ticket.stream,
                ticket.record.offset,
                failed=bool(encoded.failed),
                finished=release.finished,
            )
            if limit is not None:
                return passed, self._stop(ticket, encoded.failed[0], limit)
            passed.append(encoded)
            if encoded.failed:
                self._dedupe.rejected(ticket)
        return passed, None

    def _stop(self, ticket: Ticket, failed: Failed, limit: str) -> LineStop:
        return LineStop(
            partition=ticket.owner.partition,
            stream=ticket.stream,
            offset=ticket.record.offset,
            object_index=ticket.index,
            row=failed.row,
            code=failed.why.code,
            message=failed.why.message,
            limit=limit,
            since_ms=self._clock.wall_ms(),
        )

    def _outgoing(self, releases: Sequence[Release], encoded: Sequence[_Encoded]) -> list[Outgoing]:
        outgoing: dict[int, Outgoing] = {}
        letters: list[bytes] = []
        for release, (values, its_letters, failed) in zip(releases, encoded, strict=True):
            partition = self._partition_of(release.ticket)
            out = outgoing.get(partition)
            if out is None:
                out = outgoing[partition] = Outgoing(self._labels.output_topic, partition, [], [])
            out.keys += [release.ticket.stream.encode()] * len(values)
            out.values += values
            letters += its_letters
            for one in failed:
                self._telemetry.rejected(one.why.code)
        found = [out for out in outgoing.values() if out.values]
        if letters:
            found.append(self._reject.outgoing(releases[0].ticket.owner.partition, letters))
        return found

    def _delivered(self, releases: Sequence[Release], released_s: float) -> None:
        self._telemetry.rows_delivered(sum(release.rows for release in releases))
        now_s, now_ms = self._clock.now(), self._clock.wall_ms()
        latencies_s: list[float] = []
        ways: list[Way] = []
        for release in releases:
            if release.finished:
                latency_s = max(0, now_ms - release.ticket.record.timestamp_ms) / 1000
                latencies_s.append(latency_s)
                ways.append(_way(release, latency_s, released_s, now_s))
        if not ways:
            return
        self._telemetry.objects_delivered(latencies_s, ways)
        if self._pace is not None:
            for latency_s, way in zip(latencies_s, ways, strict=True):
                self._pace.elsewhere(latency_s - way.wait - way.call)

    def _encode(self, release: Release) -> _Encoded:
        ticket = release.ticket
        frame = ticket.frame = ticket.frame or self._frame(ticket)
        key = ticket.stream.encode()
        out = _Encoded([], [], [])
        for block in release.blocks:
            is_last = release.finished and block.next is None and ticket.failure is None
            self._encode_block(frame, block, ticket.rows if is_last else None, key, out)
        if release.finished and (ticket.failure is not None or ticket.tail is None):
            self._encode_end(frame, ticket, out)
        if out.failed:
            out.letters.extend(self._reject.letters(ticket, out.failed))
        return out

    def _encode_block(
        self,
        frame: RecordFrame,
        block: Block,
        last_rows: int | None,
        key: bytes,
        out: _Encoded,
    ) -> None:
        errors = dict(block.errors)
        if block.rejection is not None:
            errors = dict.fromkeys(range(block.rows), block.rejection)
        values = frame.rows(block.first_row, block.answers or [b"null"] * block.rows, block.member)
        final = block.rows - 1
        if last_rows is not None and block.answers is not None and final not in errors:
            row = block.first_row + final
            values[final] = frame.last_row(row, block.answers[final], block.member, last_rows)
        if not self._sink.fits(key, max(values, key=len)):
            errors |= _too_large(values, lambda value: self._sink.fits(key, value))
        for index, rejection in sorted(errors.items()):
            row = block.first_row + index
            values[index] = frame.rejected(
                row,
                rejection.code,
                rejection.message,
                block.member,
                last_rows if index == final else None,
            )
            out.failed.append(Failed(row, block.member, rejection))
        out.values.extend(values)

    def _encode_end(self, frame: RecordFrame, ticket: Ticket, out: _Encoded) -> None:
        """The marker of an object without rows, or that could not be read (to its end)."""
        failure = ticket.failure
        if self._labels.markers:
            error = (failure.code, failure.message) if failure else None
            out.values.append(
                frame.duplicate(*ticket.duplicate_of)
                if ticket.duplicate_of
                else frame.marker(ticket.rows if failure else 0, error)
            )
        if failure is not None:
            out.failed.append(Failed(None, None, failure))

    def _frame(self, ticket: Ticket) -> RecordFrame:
        reference, origin = ticket.reference, ticket.reference or ticket.inline
        return RecordFrame(
            topic=self._labels.input_topic,
            partition=ticket.owner.partition,
            offset=ticket.record.offset,
            object_index=ticket.index,
            stream=ticket.stream,
            bucket=reference.bucket if reference else None,
            key=reference.key if reference else None,
            version=ticket.version,
            event_time=origin.event_time if origin else None,
            attributes=origin.attributes if origin else None,
            model=self._labels.model,
            model_version=self._labels.model_version,
        )


async def _within(lane: Lane, idle_s: float) -> list[Release] | None:
    """What may be published next; empty after `idle_s` without any, None when the lane is
    closed.
    """
    try:
        async with asyncio.timeout(idle_s):
            return await lane.release(RELEASE_ROWS) or None
    except TimeoutError:
        return []


def _way(release: Release, latency_s: float, released_s: float, now_s: float) -> Way:
    """Where an object's time went, by its last rows."""
    times = release.ticket.times
    here_s = now_s - times.received_s
    if not release.blocks or release.blocks[-1].answers is None:
        return Way(kafka_in=latency_s - here_s, publish=now_s - released_s)
    last = release.blocks[-1]
    return Way(
        kafka_in=latency_s - here_s,
        queue=times.fetching_s - times.received_s,
        fetch=times.fetched_s - times.fetching_s,
        decode=max(0.0, last.arrived_s - times.fetched_s),
        wait=last.called_s - last.arrived_s,
        call=last.answered_s - last.called_s,
        hold_back=released_s - last.answered_s,
        publish=now_s - released_s,
    )


def _too_large(values: Sequence[bytes], fits: Callable[[bytes], bool]) -> dict[int, Rejection]:
    return {
        index: Rejection(
            "result_too_large",
            f"the prediction's record has {len(value)} bytes, more than the topic takes",
            "publish",
        )
        for index, value in enumerate(values)
        if not fits(value)
    }
