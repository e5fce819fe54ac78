"""Do most streams suffer from a slow part of the flow, or only a few?

Rule: a slow part makes all streams late, a slow camera only itself and those that wait behind it.
One slow camera is enough to make a part's mean time long, so a part is blamed only if most streams
take as long as it does. Told are the streams in most trouble, one by one, and all others together.
Pure. Owner: the worker's figures.
"""

from collections.abc import Mapping, Sequence
from typing import Any


def are_most_late(
    streams: Sequence[Mapping[str, Any]],
    others: Mapping[str, Any] | None,
    part_ms: float,
    least_ms: float = 0.0,
) -> bool:
    """`others`: None if `streams` are all; `part_ms`: how long the part takes on average; a part
    that takes less than `least_ms` makes nobody late. A stream that stopped is no part of the flow.
    """
    if part_ms < least_ms:
        return False
    moving = [one for one in streams if not one.get("stopped")]
    late = sum(_is_late(one, part_ms) for one in moving)
    if others is not None:
        return late == len(moving) and _is_late(others, part_ms)
    return late > len(moving) / 2


def _is_late(stream: Mapping[str, Any], part_ms: float) -> bool:
    return max((stream["age_s"] or 0.0) * 1000, stream["p99_ms"] or 0.0) >= part_ms
