"""Encodes releases into records and letters. Of each line it encodes the releases before the first
one that the line refuses.

Rule: a line refuses a release because of its dead letters; the releases behind that one in the line
are not even encoded. An unforeseen exception at encoding costs only the row whose record cannot be
made: the release is cut until that row is alone, the row is tried once more, then answered by
`unavailable`. A letter that cannot be made in full is shortened, not left out. Owner: the publish
stage.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.calls.unexpected_errors import Guard
from penstock.core.bad_rows.cuts import leading
from penstock.core.order.line_stop import LineStop
from penstock.core.order.releases import Release
from penstock.core.records.failed_rows import Failed
from penstock.core.records.output_records import Encoded, Records, ends_alone
from penstock.core.rows.blocks import Ticket
from penstock.core.rows.rejections import Rejection
from penstock.errors import Unforeseen
from penstock.lane.dedupe import Dedupe
from penstock.lane.lane import Lane
from penstock.ports import Clock
from penstock.stages.dead_letters import Reject


class Leaving(NamedTuple):
    """A release with its records and dead letters."""

    release: Release
    encoded: Encoded
    letters: list[bytes]


class Refused(NamedTuple):
    """The releases of a line that stay, and why."""

    stop: LineStop
    releases: list[Release]


class Encode:
    """One `Encode` serves all lanes of a pipeline; each call is for the releases of one lane."""

    def __init__(
        self, records: Records, reject: Reject, dedupe: Dedupe | None, guard: Guard, clock: Clock
    ) -> None:
        self._records = records
        self._reject = reject
        self._dedupe = dedupe
        self._guard = guard
        self._clock = clock

    def releases(
        self, lane: Lane, releases: Sequence[Release]
    ) -> tuple[list[Leaving], list[Refused]]:
        """Encode the releases of each line before the first that the line refuses. The others stay
        in the lane.
        """
        passed: list[Leaving] = []
        refused: dict[str, Refused] = {}
        for whole in releases:
            line = lane.line_of(whole.ticket)
            # The line has refused an earlier release of this step.
            if line in refused:
                refused[line].releases.append(whole)
                continue
            for release, made in _encoded(self._records, self._guard, whole):
                ticket = release.ticket
                # The line has refused an earlier part of this release.
                if line in refused:
                    refused[line].releases.append(release)
                    continue
                limit = lane.letters.refuses(
                    ticket.stream,
                    ticket.record.offset,
                    failed=bool(made.failed),
                    finished=release.finished,
                )
                if limit is not None:
                    refused[line] = Refused(self._stop(ticket, made.failed[0], limit), [release])
                    continue
                letters: list[bytes] = []
                if made.failed:
                    if ticket.trace is not None:
                        ticket.trace.failed(made.failed[0].why.code, made.failed[0].why.message)
                    letters = list(self._reject.letters(ticket, made.failed))
                    # The failure is reported before the letters leave: if the object is announced
                    # again, the object must be read again, and not count as a duplicate of one that
                    # failed.
                    if self._dedupe is not None:
                        self._dedupe.rejected(ticket)
                passed.append(Leaving(release, made, letters))
        return passed, list(refused.values())

    def _stop(self, ticket: Ticket, failed: Failed, limit: str) -> LineStop:
        return LineStop(
            partition=ticket.owner.partition,
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
    """The record of one row, or of the end of an object. A second try is made to encode this
    record; if it fails, an error takes the record's place. If the error cannot be encoded either,
    the process ends.
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
    """Two parts with half of the rows each, or a row and the end of its object. None: the release
    cannot be cut further.
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
