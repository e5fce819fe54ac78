"""Percentiles of latencies, and how many ticks prove a percentile, given the number of misses.

Rule: a tick without an answer counts as slower than every bound. The proof is the early stopping of
MLPerf Inference (rules, appendix). By this rule, n ticks with m misses prove a percentile if a
service that just fails the percentile would have m misses or fewer in at most 1 % of its runs.
Owner: the bench.
"""

import math
from collections.abc import Sequence

PERCENTILE = 0.99
CONFIDENCE = 0.99


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile. The value of a tick without an answer must be infinite."""
    # Rounding may put the product just above a whole number. This must not raise the rank.
    rank = max(1, math.ceil(share * len(values) - 1e-9))
    return sorted(values)[rank - 1]


def is_proven(ticks: int, misses: int) -> bool:
    """True if this many ticks with this many misses prove that the 99th percentile holds."""
    return _at_most(misses, ticks, 1 - PERCENTILE) <= 1 - CONFIDENCE


def ticks_needed(misses: int) -> int:
    """The fewest ticks that prove the 99th percentile with this many misses."""
    low, high = misses, max(1, misses)
    while not is_proven(high, misses):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_proven(middle, misses) else (middle, high)
    return high


def _at_most(misses: int, ticks: int, chance: float) -> float:
    """The probability of at most `misses` misses in `ticks` ticks, if each tick misses with
    probability `chance`. It is computed by logarithms, because the factorials are too large for
    floats.
    """
    if misses >= ticks:
        return 1.0
    hit, miss = math.log1p(-chance), math.log(chance)
    terms = (
        math.lgamma(ticks + 1)
        - math.lgamma(count + 1)
        - math.lgamma(ticks - count + 1)
        + count * miss
        + (ticks - count) * hit
        for count in range(misses + 1)
    )
    return math.fsum(math.exp(term) for term in terms)
