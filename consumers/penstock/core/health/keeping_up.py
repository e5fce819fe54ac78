"""Does a group keep up with its topics?

Rule: a group is behind when it has not committed records that were in its topics a certain time
ago. So lag is measured in time by offsets alone; neither the rate of records nor the interval of
commits matters. As long as a group was watched for less than that time, it counts as behind if it
has anything left to commit. A partition without a commit does not count, because the group does not
read it. Owner: the replay.
"""

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

from penstock.core.window.bulk_gives_way import Neighbour

Part = TypeVar("Part", bound=Hashable)

# A topic without a new record for this long is not live: cameras and sensors send several a second.
LIVE_S = 5.0


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
        if self._looks and any(ends[one] > self._looks[-1][1].get(one, 0) for one in ends):
            self._grew_s = now_s
        self._looks.append((now_s, dict(ends)))
        while len(self._looks) > 1 and self._looks[1][0] <= now_s - self._within_s:
            self._looks.popleft()
        first_s, before = self._looks[0]
        due = before if first_s <= now_s - self._within_s else ends
        lag = sum(max(0, ends[one] - offset) for one, offset in committed.items() if one in ends)
        if any(offset < due.get(one, 0) for one, offset in committed.items()):
            return GroupState("behind", lag)
        is_live = self._grew_s is not None and now_s - self._grew_s < LIVE_S
        return GroupState("live" if is_live and committed else "quiet", lag)
