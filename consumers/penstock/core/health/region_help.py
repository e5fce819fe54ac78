"""Does another region need help, and when can it go on alone?

Rule: a region needs help if for `after_s` it has had no workers of its own, or a lag above its
limit. A region has recovered if for the same time it has had workers of its own and at most half of
that lag. While its state is unknown, nothing changes. A region that soon needs help again is helped
longer, because each joining and leaving costs it a rebalance. A worker does not begin to help while
its own region is in trouble. Pure: times are arguments. Owner: the stage that helps, one for each
region that it may help.
"""

from dataclasses import dataclass
from typing import NamedTuple

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
    """`lag`: the limit in records. `after_s`: how long a state must last before it counts."""

    lag: int
    after_s: float


@dataclass(slots=True)
class RegionHelp:
    """Call `look` with the state of a region from time to time. `is_on`: the region is to be helped
    now.
    """

    terms: HelpTerms
    is_on: bool = False
    _since_s: float | None = None
    _ended_s: float | None = None
    _patience: float = 1.0

    def look(self, standing: RegionState | None, now_s: float, *, is_free: bool = True) -> bool:
        """Returns whether to help from now on. `standing` None: the state is unknown. `is_free`:
        this worker's own region is in no trouble, so help may begin.
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
