"""Which of several replicas to ask.

Rule: the first replica in their order that works is asked, and a replica that is away is skipped.
Every few seconds one caller tries a skipped replica again, so a silent replica delays only this one
call. Each replica has a small budget: a failure spends one unit of it, an answer earns a tenth of a
unit, and a replica without budget counts as away. If all are away, all are asked in their order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.health.retries import FLOOR, RETRY_SHARE


@dataclass(slots=True)
class _Replica:
    is_well: bool = True
    budget: float = FLOOR
    look_again_s: float = 0.0


class Standby:
    """Replicas are numbered by place: place 0 is preferred to place 1. All times are by the
    caller's clock.
    """

    def __init__(self, places: int, *, look_again_s: float) -> None:
        self._standings = [_Replica() for _ in range(places)]
        self._look_again_s = look_again_s

    def well(self) -> Sequence[int]:
        """The places to ask, in this order; never empty."""
        return [n for n, standing in enumerate(self._standings) if standing.is_well] or self._all

    def due(self, now_s: float, *, waits_at: int | None = None) -> int | None:
        """The first place that is away and due for another try; it is given to one caller only. If
        the caller already waits for an answer of place `waits_at`, the result is another place.
        """
        if waits_at is None and not any(standing.is_well for standing in self._standings):
            return None  # all places are asked anyway
        for number, standing in enumerate(self._standings):
            if number != waits_at and not standing.is_well and now_s >= standing.look_again_s:
                standing.look_again_s = now_s + self._look_again_s
                return number
        return None

    def is_another_well(self, place: int) -> bool:
        return any(standing.is_well for n, standing in enumerate(self._standings) if n != place)

    def answered(self, place: int) -> None:
        standing = self._standings[place]
        if standing.is_well:
            standing.budget = min(FLOOR, standing.budget + RETRY_SHARE)
        else:
            # Just enough budget for one call: after another failure the place is skipped again.
            standing.is_well, standing.budget = True, 1.0

    def failed(self, place: int, now_s: float, *, is_away: bool = True) -> bool:
        """Returns True if this failure is the one from which the place is skipped. `is_away`: the
        replica did not answer at all.
        """
        standing = self._standings[place]
        standing.budget = 0.0 if is_away else standing.budget - 1.0
        if standing.budget >= 1.0:
            return False
        was_well, standing.is_well = standing.is_well, False
        standing.look_again_s = now_s + self._look_again_s
        return was_well

    @property
    def _all(self) -> Sequence[int]:
        return range(len(self._standings))
