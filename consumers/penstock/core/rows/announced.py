"""Was this version of this object announced before?

Rule: an object counts once it was read to its end. The last `MAX_VERSIONS` versions of one
assignment of a partition are remembered. Owner: `dedupe`, one per lane.
"""

from penstock.core.rows.blocks import Ticket
from penstock.core.rows.owner import Answered
from penstock.messages.reference import RowRange

# About 400 bytes each: 4 MB per partition. At 20 announcements a second this is a memory of 8
# minutes, several times as long as stores take to send a notification again.
MAX_VERSIONS = 10_000

# Digest of name and version, the rows that were asked for, and the model that answers them.
_Version = tuple[str, tuple[RowRange, ...] | None, str | None]


class Announced:
    """`read` tells it of an object that was read; `first` returns the earlier one of the same
    version. The version that was not asked for longest is forgotten first.
    """

    def __init__(self, max_versions: int = MAX_VERSIONS) -> None:
        self._max_versions = max_versions
        self._answered: dict[_Version, Answered] = {}

    def first(self, ticket: Ticket) -> Answered | None:
        """The earlier object with the version of this one, if it was answered. Asked when this one
        is open, as its version is known only then.
        """
        version = _version(ticket)
        answered = self._answered.pop(version, None) if version else None
        if version and answered:
            self._answered[version] = answered
        return answered

    def read(self, ticket: Ticket) -> None:
        """The ticket's object was read to its end."""
        version = _version(ticket)
        if version is None:
            return
        start = version[1][0][0] if version[1] else 0
        row = start if start < ticket.rows else None
        self._answered[version] = Answered(ticket.record.offset, ticket.object_index, row)
        if len(self._answered) > self._max_versions:
            del self._answered[next(iter(self._answered))]

    def forget(self, ticket: Ticket) -> None:
        """Forget this version: the next announcement of it is answered in full."""
        version = _version(ticket)
        if version is not None:
            self._answered.pop(version, None)


def _version(ticket: Ticket) -> _Version | None:
    if ticket.reference is None or not ticket.version:
        return None
    return ticket.digest, ticket.reference.rows, ticket.model
