"""How does another consumer group fare: does another region's group need help, and does the live
group beside a replay keep up?

Rule for a region: it needs help if for `after_s` it has had no workers of its own, or a lag above
its limit; it has recovered if for `after_s` it has had workers and at most half of that lag. While
its state is unknown, nothing changes. Each joining and leaving costs a rebalance, so a region that
soon needs help again is helped longer.

Rule for a live group: it is behind when it has not committed records that were in its topics a
certain time ago; while it was watched for less than that time, when it has anything left to commit.
A partition without a commit does not count, because the group does not read it. Pure: times are
arguments.
"""

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

# If a region needs help again within `SOON` times `after_s`, it had not recovered.
SOON = 6.0
MOST_PATIENCE = 8.0


class RegionState(NamedTuple):
    """The state of a region: how many records its group has not committed, and how many workers of
    its own it has.
    """

    lag: int
    workers: int


class HelpTerms(NamedTuple):
    """`lag`: a region with more uncommitted records than this needs help. `after_s`: how long a
    state must last before it counts.
    """

    lag: int
    after_s: float


@dataclass(slots=True)
class RegionHelp:
    """Call `look` with the state of a region from time to time. `is_on`: this worker is to help the
    region now.
    """

    terms: HelpTerms
    is_on: bool = False
    _since_s: float | None = None
    _ended_s: float | None = None
    _patience: float = 1.0

    def look(self, standing: RegionState | None, now_s: float, *, is_free: bool = True) -> bool:
        """Returns whether to help from now on. `standing`: the state of the region; None: it is
        unknown. `is_free`: this worker's own region is in no trouble, so help may begin.
        """
        if standing is None or not self._should_change(standing, is_free=is_free):
            self._since_s = None
            return self.is_on
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s >= self.terms.after_s * (self._patience if self.is_on else 1.0):
            self._change(now_s)
        return self.is_on

    def failed(self) -> None:
        """An attempt to help failed, so the need for help is judged from the start again."""
        self.is_on, self._since_s = False, None

    def _should_change(self, standing: RegionState, *, is_free: bool) -> bool:
        if self.is_on:
            return standing.workers > 0 and standing.lag <= self.terms.lag // 2
        return is_free and (standing.workers == 0 or standing.lag > self.terms.lag)

    def _change(self, now_s: float) -> None:
        self.is_on, self._since_s = not self.is_on, None
        if not self.is_on:
            self._ended_s = now_s
            return
        soon_s = SOON * self.terms.after_s
        is_soon = self._ended_s is not None and now_s - self._ended_s < soon_s
        self._patience = min(MOST_PATIENCE, self._patience * 2) if is_soon else 1.0


Part = TypeVar("Part", bound=Hashable)

# If a topic gets no new record for this long, it is not live: cameras and sensors send several
# records a second.
LIVE_S = 5.0

# The state of the live group beside a replay. `quiet`: no records come for the group; `live`: the
# group keeps up; `behind`: the group does not keep up.
Neighbour = Literal["quiet", "live", "behind"]


class GroupState(NamedTuple):
    """The state of the group, and how many records it has not committed."""

    neighbour: Neighbour
    lag: int


class KeepingUp(Generic[Part]):
    """Call `look` again and again. `within_s`: a group that keeps up commits records within this
    time.
    """

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._looks: deque[tuple[float, Mapping[Part, int]]] = deque()
        self._grew_s: float | None = None

    def look(
        self, now_s: float, ends: Mapping[Part, int], committed: Mapping[Part, int]
    ) -> GroupState:
        """`ends`: the end offset of each partition; `committed`: the committed offset of each
        partition that the group reads.
        """
        if self._looks and any(ends[part] > self._looks[-1][1].get(part, 0) for part in ends):
            self._grew_s = now_s
        self._looks.append((now_s, dict(ends)))
        while len(self._looks) > 1 and self._looks[1][0] <= now_s - self._within_s:
            self._looks.popleft()
        first_s, before = self._looks[0]
        due = before if first_s <= now_s - self._within_s else ends
        lag = sum(max(0, ends[part] - offset) for part, offset in committed.items() if part in ends)
        if any(offset < due.get(part, 0) for part, offset in committed.items()):
            return GroupState("behind", lag)
        is_live = self._grew_s is not None and now_s - self._grew_s < LIVE_S
        return GroupState("live" if is_live and committed else "quiet", lag)
