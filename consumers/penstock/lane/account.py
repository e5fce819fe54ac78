"""How far a lane may be committed, and where its lines stopped.

Rule: the ledger says what is delivered, and the letters say at which records lines stopped; the
position to commit has both.
"""

import logging
from collections.abc import Collection

from penstock.core.progress.cursor import Commit, Position
from penstock.core.progress.ledger import Ledger
from penstock.core.progress.line_stop import LetterAccount, LineLimits, LineStop, Passing
from penstock.core.progress.releases import Release
from penstock.core.rows.log_keys import of_place
from penstock.core.rows.origin import Cursor
from penstock.ports import Where

log = logging.getLogger(__name__)


class Account:
    """`committed`: the position that Kafka has. If the lane ended now, the next assignment would
    begin there. `limits`: how many dead letters stop a line. `passing`: the records whose dead
    letters an operator lets pass, so that these letters stop no line.
    """

    def __init__(
        self, where: Where, start: Commit, limits: LineLimits, passing: Collection[Passing]
    ) -> None:
        self.committed = start
        begin = Position.of(start)
        if not begin.is_whole:
            log.warning(
                "%s: not all of the commit's metadata could be read (%.40r); rows that "
                "only the rest marks as delivered are answered again",
                where,
                start.metadata,
                extra=of_place(where, start.next_offset),
            )
        self.ledger = Ledger(begin.progress)
        self.letters = LetterAccount(limits, begin.stopped_under(limits.digest), passing)
        self.stops: dict[str, LineStop] = {}
        self._digest = limits.digest

    @property
    def progress(self) -> Commit:
        """The position to commit now. It says which record is next, and what is delivered of that
        record and beyond it.
        """
        stopped_at = self.letters.stopped_at.union(stop.offset for stop in self.stops.values())
        return Position(self.ledger.progress, tuple(stopped_at), self._digest).commit

    def was_left_at(self, start: Commit) -> bool:
        """The group says at which position the partition begins. May the lane go on there?

        Only if that position is the lane's own last commit, and this commit covers all that was
        delivered. Suppose a commit failed, or did not count because the member was expelled. Then
        another member may meanwhile have begun to publish the delivered answers again. If the lane
        went on from its own position, readers would never get the rest of these repeated answers.
        """
        return start == self.committed == self.progress

    def deliver(self, release: Release) -> None:
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
