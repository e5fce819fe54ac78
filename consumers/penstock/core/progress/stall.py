"""Does a lane stand still although it owes answers?

Rule: bytes, rows, answers, deliveries and commits are progress. Every failed try at a service that
is known to be away also counts as progress, because a worker is meant to wait for the service. A
try that failed although the service answered is not progress, because the stage gives up such tries
by itself. A long time in which the watchdog did not look (because the process was stopped or the
machine slept) counts as one look.
"""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.core.rows.blocks import Ticket
from penstock.core.rows.origin import Where


class Snapshot(NamedTuple):
    """How far a lane has come. Two equal snapshots mean that the lane did not move in between.
    `stage`: the stage that must act next, on the record at `offset`.
    """

    stage: str
    offset: int
    deliveries: int
    rows: int = 0
    read_bytes: int = 0


class Stalled(NamedTuple):
    where: Where
    snapshot: Snapshot
    still_s: float


class Stall:
    """Call `look` about every `look_s`. It returns a partition that has stood still for `limit_s`,
    if there is one.
    """

    def __init__(self, limit_s: float, look_s: float, now_s: float) -> None:
        self._limit_s = limit_s
        self._look_s = look_s
        self._looked_s = now_s
        self._tries = 0
        self._since: dict[Where, tuple[Snapshot, float]] = {}

    def look(
        self, now_s: float, snapshots: Mapping[Where, Snapshot | None], tries: int
    ) -> Stalled | None:
        """`snapshots`: for each partition, how far its lane has come; None: the partition owes
        nothing. `tries`: how many tries have failed so far, of all services together. Returns the
        partition that has stood still longest, if that is at least `limit_s`; otherwise None.
        """
        late_s = max(0.0, now_s - self._looked_s - 2 * self._look_s)
        is_waiting = tries != self._tries
        self._looked_s, self._tries = now_s, tries
        before, self._since = self._since, {}
        for where, snapshot in snapshots.items():
            if snapshot is None:
                continue
            earlier, since_s = before.get(where, (None, now_s))
            moved = is_waiting or snapshot != earlier
            self._since[where] = (snapshot, now_s if moved else since_s + late_s)
        if not self._since:
            return None
        where, (snapshot, since_s) = min(self._since.items(), key=lambda item: item[1][1])
        still_s = now_s - since_s
        return Stalled(where, snapshot, still_s) if still_s >= self._limit_s else None


def holder(head: Ticket) -> str:
    """The stage that must act next on this ticket."""
    block = head.head
    if block is None or (block.is_answered and block.next is None):
        if head.closed:
            return "publish"
        if not head.started:
            return "download (no fetcher is free)"
        return "expand" if head.read_bytes else "download"
    if block.is_answered:
        return "publish"
    return "microbatch" if block.waiting else "predict"


def slowest(head: Ticket, now_s: float) -> str:
    """The stage by which this ticket is late: the one that must act next, or the download if that
    took longer than all since.
    """
    took_s = head.fetched_s - head.fetching_s
    return "download" if 0.0 <= now_s - head.fetched_s < took_s else holder(head)
