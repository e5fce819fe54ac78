"""Does another region need help, and when is it well again?

Rule: it needs help when none of its own workers is left or its lag is above a limit, and does so
for a while; it is well again when workers of its own are there and the lag is half of the limit or
less, for as long. What is not known changes nothing. A region that was helped twice within a short
time is helped longer, as each joining and leaving costs it a rebalance. Nobody begins to help while
the own region is above its own limit. Pure: times are arguments. Owner: the stage that assists, one
for each region that it may help.
"""

from dataclasses import dataclass
from typing import NamedTuple

# A region that is called on again so soon after it was left, in `after_s`, was not well.
SOON = 6.0
MOST_PATIENCE = 8.0


class Standing(NamedTuple):
    """Of a region: records that its group has not committed, and workers of its own."""

    lag: int
    workers: int


class HelpTerms(NamedTuple):
    """`lag` is the limit, in records; `after_s` for how long something must be so."""

    lag: int
    after_s: float


@dataclass(slots=True)
class Help:
    """`look` at a region from time to time; `is_on` says what is to be done."""

    terms: HelpTerms
    is_on: bool = False
    _since_s: float | None = None
    _ended_s: float | None = None
    _patience: float = 1.0

    def look(self, standing: Standing | None, now_s: float, *, is_free: bool = True) -> bool:
        """Whether to help from now on. None: nobody knows. `is_free`: is our own region well?"""
        if standing is None or not self._should_change(standing, is_free=is_free):
            self._since_s = None
            return self.is_on
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s >= self.terms.after_s * (self._patience if self.is_on else 1.0):
            self._change(now_s)
        return self.is_on

    def failed(self) -> None:
        """Helping was not possible: it is found out anew whether it is needed."""
        self.is_on, self._since_s = False, None

    def _should_change(self, standing: Standing, *, is_free: bool) -> bool:
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
