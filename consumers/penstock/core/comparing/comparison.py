"""The comparison of two models: agreement by stream, the time that both took, what is missing.

Rule: comparisons add up, over intervals and over workers. Times are counted in twenty classes a
decade, so that a quantile of many workers is at most twelve percent too high. Owner: the shadow
stage, and the report that sums up what workers wrote.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.core.comparing.agreement import Tally

# The first class ends here.
FIRST_S: Final = 1e-4
CLASSES_A_DECADE: Final = 20


class Took:
    """How long calls took, by class: class k is up to 0.1 ms * 10^(k/20)."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def add(self, took_s: float) -> None:
        above = math.log10(max(took_s, FIRST_S) / FIRST_S) * CLASSES_A_DECADE
        self.counts[math.ceil(above)] += 1

    def merge(self, counts: Mapping[int, int]) -> None:
        self.counts.update(counts)

    def quantile_s(self, share: float) -> float | None:
        """The time within which this share of the calls was answered; None: there were none."""
        left = share * self.counts.total()
        for number in sorted(self.counts):
            left -= self.counts[number]
            if left <= 0:
                return float(FIRST_S * 10 ** (number / CLASSES_A_DECADE))
        return None


@dataclass(slots=True)
class Comparison:
    """`dropped`: rows for which the buffer had no room. `unanswered`: rows that the shadow did not
    answer. `unsent`: disagreements that are counted but have no record.
    """

    tally: Tally = field(default_factory=Tally)
    live_took: Took = field(default_factory=Took)
    shadow_took: Took = field(default_factory=Took)
    dropped: int = 0
    unanswered: int = 0
    unsent: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.tally.total.rows or self.dropped or self.unanswered or self.unsent)
