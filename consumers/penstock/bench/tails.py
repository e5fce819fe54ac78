"""Percentiles in which a miss counts, and how sure a number of ticks makes us of one.

Rule: a tick that was not answered is slower than every bound. The test is the early stopping of
MLPerf Inference (rules, appendix): with so many misses among n ticks the percentile holds, if a
service just failing it would do this well with a chance of at most 1 %.
"""

import math
from collections.abc import Sequence

PERCENTILE = 0.99
CONFIDENCE = 0.99


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest rank; a value without an answer is infinite."""
    # Not one rank too high where the product is whole but for its rounding.
    rank = max(1, math.ceil(share * len(values) - 1e-9))
    return sorted(values)[rank - 1]


def is_proven(ticks: int, misses: int) -> bool:
    """Do so few misses among so many ticks prove that the 99th percentile holds?"""
    return _at_most(misses, ticks, 1 - PERCENTILE) <= 1 - CONFIDENCE


def ticks_needed(misses: int) -> int:
    """The fewest ticks that are a proof with so many misses."""
    low, high = misses, max(1, misses)
    while not is_proven(high, misses):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_proven(middle, misses) else (middle, high)
    return high


def _at_most(misses: int, ticks: int, chance: float) -> float:
    """Of a binomial distribution, in logarithms as the factors are beyond floats."""
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
