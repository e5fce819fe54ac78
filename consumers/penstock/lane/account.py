"""What a lane owes, what of it is delivered and committed, and where its lines stopped.

Rule: the ledger says how far may be committed, the order what may leave, the letters when a line
stops; here they are one account. Owner: the lane.
"""

import logging
from collections.abc import Collection, Iterator, Sequence

from penstock.core.order.line_stop import LetterAccount, LineLimits, LineStop
from penstock.core.order.releases import Order, PartitionOrder, Release, StreamOrder, place
from penstock.core.order.stall import Snapshot, holder
from penstock.core.progress.cursor import Cursor
from penstock.core.progress.ledger import Ledger, read, written
from penstock.core.rows.blocks import Ticket
from penstock.core.rows.log_keys import of_place
from penstock.ports import Commit, Where

log = logging.getLogger(__name__)


class LaneAccount:
    """`committed`: the position that Kafka has, where the next assignment would begin now."""

    def __init__(
        self,
        where: Where,
        start: Commit,
        limits: LineLimits,
        passing: Collection[tuple[str, int]],
        *,
        by_stream: bool,
    ) -> None:
        self.topic, self.partition = where
        self.alive = True
        self.suspended = False
        self.committed = start
        begin = read(start.next_offset, start.metadata, limits.digest)
        if not begin.is_whole:
            log.warning(
                "partition %d: not all of the commit's metadata could be read (%.40r); what the "
                "rest would have said is repeated",
                self.partition,
                start.metadata,
                extra=of_place(*where, start.next_offset),
            )
        self.ledger = Ledger(begin.progress)
        self.letters = LetterAccount(limits, begin.stopped_at, passing)
        self._stops: dict[str, LineStop] = {}
        self._streams = StreamOrder() if by_stream else None
        self._order: Order = PartitionOrder() if self._streams is None else self._streams
        self._leaving: Sequence[Release] = ()  # with the broker, which has not acknowledged them
        self._deliveries = 0

    @property
    def progress(self) -> Commit:
        """The position to commit now: the next record, and the rows delivered from there on."""
        progress = self.ledger.progress
        stopped_at = self.letters.stopped_at.union(stop.offset for stop in self.stops)
        metadata = written(progress, stopped_at, self.letters.limits.digest)
        return Commit(progress.next_offset, metadata)

    @property
    def due(self) -> Commit | None:
        """The position to commit, or None if it has not moved since the last commit. A stopped line
        still commits what it delivered before it stopped.
        """
        if not self.alive and self.stopped is None:
            return None
        progress = self.progress
        return progress if progress != self.committed else None

    def was_left_at(self, start: Commit) -> bool:
        """May the lane go on where the group says that the partition begins?

        Only from its own last commit, and only if that covers all that was delivered. If a commit
        failed, or did not count because the member was expelled, another member may have repeated
        a part of that meanwhile, and readers would miss the rest of its repeat.
        """
        return start == self.committed == self.progress

    @property
    def stops(self) -> Collection[LineStop]:
        """The places at which a stream (or the whole lane) has been stopped."""
        return self._stops.values()

    @property
    def stopped(self) -> LineStop | None:
        """The place at which the whole lane has been stopped, if it keeps one order."""
        return next(iter(self._stops.values()), None) if self._streams is None else None

    def line_of(self, ticket: Ticket) -> str:
        """The name of what stops together with this ticket: its stream, or "", the whole lane."""
        return "" if self._streams is None else ticket.stream

    @property
    def is_publishing(self) -> bool:
        """Has the lane handed records to the broker that are not acknowledged yet?"""
        return bool(self._leaving)

    def unanswered(self) -> Iterator[Ticket]:
        """The objects without a delivered answer. It walks over all of them, so it is for pages."""
        yield from self._order
        # A release has left the order before the broker has it.
        yield from (release.ticket for release in self._leaving if release.finished)

    @property
    def snapshot(self) -> Snapshot | None:
        """How far the lane is and which stage must act next, for the watchdog; None: it owes
        nothing.
        """
        if self.suspended:
            return None  # it waits for the group, which has a watch of its own
        offset = self.ledger.progress.next_offset
        # Asked backwards along the flow: the last stage that has work is the one to wait for.
        if self._leaving:
            return Snapshot("publish", offset, self._deliveries)
        if self._stops and not self.ledger.spare_marks():
            # The commit's metadata has no room to tell of more rows beyond the stopped streams, so
            # the lane waits for an operator; the watchdog must not take that for a fault.
            return None
        if head := min(self._order, key=place, default=None):
            stage = holder(head)
            return Snapshot(stage, offset, self._deliveries, head.next_row, head.read_bytes)
        if self.progress != self.committed:
            return Snapshot("settle", self.committed.next_offset, self._deliveries)
        return None

    def _deliver(self, release: Release) -> None:
        ticket = release.ticket
        offset = ticket.record.offset
        if release.finished:
            self.ledger.deliver(offset, ticket.index)
            ticket.forget()
        else:
            last = release.blocks[-1]
            # A result object is written from its first row again after a restart, though some of
            # its rows are published: those must not move the cursor back.
            row = max(last.first_row + last.rows, ticket.published_rows)
            cursor = Cursor(row, ticket.digest)
            self.ledger.reach(offset, ticket.index, cursor)
