"""What a lane owes, what of that is delivered and committed, and where its lines stopped.

Rule: the ledger decides how far may be committed, the order decides which answers may leave, and
the account of dead letters decides when a line stops. `LaneAccount` keeps the three in step. Owner:
the lane.
"""

import logging
from collections import deque
from collections.abc import Collection, Iterator, Sequence

from penstock.core.order.line_stop import LetterAccount, LineLimits, LineStop, Passing
from penstock.core.order.releases import Order, PartitionOrder, Release, StreamOrder, place
from penstock.core.order.stall import Snapshot, holder
from penstock.core.progress.cursor import Cursor
from penstock.core.progress.ledger import Ledger, read, written
from penstock.core.rows.blocks import Ticket
from penstock.core.rows.log_keys import of_place
from penstock.ports import Commit, Where

log = logging.getLogger(__name__)


class LaneAccount:
    """`committed`: the position that Kafka has. If the lane ended now, the next assignment would
    begin there.
    """

    def __init__(
        self,
        where: Where,
        start: Commit,
        limits: LineLimits,
        passing: Collection[Passing],
        *,
        by_stream: bool,
    ) -> None:
        self.topic, self.partition = where
        # Which incarnation of the topic is read; None: it is not known.
        self.topic_id: str | None = None
        self.alive = True
        self.suspended = False
        self.committed = start
        begin = read(start.next_offset, start.metadata, limits.digest)
        if not begin.is_whole:
            log.warning(
                "%s: not all of the commit's metadata could be read (%.40r); rows that "
                "only the rest marks as delivered are answered again",
                where,
                start.metadata,
                extra=of_place(*where, start.next_offset),
            )
        self.ledger = Ledger(begin.progress)
        self.letters = LetterAccount(limits, begin.stopped_at, passing)
        self._stops: dict[str, LineStop] = {}
        self._streams = StreamOrder() if by_stream else None
        self._order: Order = PartitionOrder() if self._streams is None else self._streams
        # What `release` gave out and the broker has not acknowledged, in this order.
        self._leaving: deque[Sequence[Release]] = deque()
        self._deliveries = 0

    @property
    def progress(self) -> Commit:
        """The position to commit now. It says which record is next, and what is delivered of that
        record and beyond it.
        """
        progress = self.ledger.progress
        stopped_at = self.letters.stopped_at.union(stop.offset for stop in self.stops)
        metadata = written(progress, stopped_at, self.letters.limits.digest)
        return Commit(progress.next_offset, metadata)

    @property
    def due(self) -> Commit | None:
        """The position to commit; None: it has not moved since the last commit. A stopped line
        still commits what it delivered before it stopped.
        """
        if not self.alive and self.stopped is None:
            return None
        progress = self.progress
        return progress if progress != self.committed else None

    def was_left_at(self, start: Commit) -> bool:
        """The group says at which position the partition begins. May the lane go on there?

        Only if that position is the lane's own last commit, and this commit covers all that was
        delivered. Suppose a commit failed, or did not count because the member was expelled. Then
        another member may meanwhile have begun to publish the delivered answers again. If the lane
        went on from its own position, readers would never get the rest of these repeated answers.
        """
        return start == self.committed == self.progress

    @property
    def stops(self) -> Collection[LineStop]:
        """Where a stream, or the whole lane, was stopped."""
        return self._stops.values()

    @property
    def stopped(self) -> LineStop | None:
        """Where the whole lane was stopped. None: it goes on, or it keeps one order for each
        stream.
        """
        return next(iter(self._stops.values()), None) if self._streams is None else None

    def line_of(self, ticket: Ticket) -> str:
        """The name of the ticket's line: its stream, or "" if the whole lane is one line."""
        return "" if self._streams is None else ticket.stream

    @property
    def is_publishing(self) -> bool:
        """Does the lane wait for the broker to acknowledge records?"""
        return bool(self._leaving)

    def unanswered(self) -> Iterator[Ticket]:
        """The objects whose last answer is not delivered. There may be very many, so only the
        status pages ask for them.
        """
        yield from self._order
        # A release leaves the order before the broker acknowledges it, so its objects are named
        # here.
        for releases in self._leaving:
            yield from (release.ticket for release in releases if release.finished)

    def held_back(self) -> tuple[Ticket, int] | None:
        """The object whose answers all others of the lane wait for, and how many objects behind it
        are answered already. None: nothing waits, or order is kept per stream. Only the status
        pages ask.
        """
        if self._streams is not None:
            return None
        first, *rest = self._order or (None,)
        waiting = sum(ticket.closed and ticket.has_answers for ticket in rest)
        return (first, waiting) if first is not None and waiting else None

    @property
    def snapshot(self) -> Snapshot | None:
        """For the watchdog: how far the lane has come, and which stage must act next. None: the
        lane owes nothing, or it waits for its group or for an operator.
        """
        if self.suspended:
            return None  # the lane waits for the group, whose rebalance has its own time limit
        offset = self.ledger.progress.next_offset
        # The stages are asked from the end of the flow, because the last stage that has work is the
        # one that the others wait for.
        if self._leaving:
            return Snapshot("publish", offset, self._deliveries)
        if self._stops and not self.ledger.spare_marks():
            # The commit's metadata has no room for more rows beyond the stopped streams, so the
            # lane waits for an operator. The watchdog must not take this wait for a fault.
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
            # After a restart a result object is written again from its first row, although some of
            # its rows are already published. These rows must not move the cursor back.
            row = max(last.first_row + last.rows, ticket.published_rows)
            cursor = Cursor(row, ticket.digest)
            self.ledger.reach(offset, ticket.index, cursor)
