"""How fast the input grows, by the ends of its partitions as Kafka tells them now and then.

Rule: only partitions that were known all the time count, so that a new assignment is no growth.
Pure. Owner: the lookout.
"""

from collections import deque
from collections.abc import Mapping

# Records a second are over this time.
OVER_S = 10.0


class Growth:
    """`add` every answer."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Mapping[int, int]]] = deque()

    def add(self, now_s: float, ends: Mapping[int, int]) -> None:
        self._seen.append((now_s, dict(ends)))
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - OVER_S:
            self._seen.popleft()

    @property
    def per_s(self) -> float | None:
        """Records a second; None: not known yet."""
        if len(self._seen) < 2:
            return None
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        grown = sum(end - first[number] for number, end in last.items() if number in first)
        return grown / max(last_s - first_s, 1e-3)
