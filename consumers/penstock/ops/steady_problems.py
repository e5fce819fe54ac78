"""The problems of a worker as they are told over time, so that no line flickers.

Rule: a problem appears at once. One that is measured, and not a state, stays until it was not found
for `HOLD_S`, as bad as it was in that time; and a sentence that names one of many streams keeps to
its stream for as long. Pure: time is an argument. Owner: the status.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from penstock.ops.problem import BAD, Problem
from penstock.ops.problems import in_order

# Some looks of a page, which looks once a second.
HOLD_S: Final = 3.0
# The place of each kind of problem. Kinds that share a place are never found at the same time. The
# kinds not listed are states, or last for a minute by themselves.
PLACES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("away", "unanswered_rows"), "away"),
    "breaker": "breaker",
    **dict.fromkeys(("model", "store", "kafka", "worker", "skew"), "limit"),
    "late": "late",
    "buffer": "buffer",
    "over_bound": "over_bound",
}

Found = TypeVar("Found")


class Steady(Generic[Found]):
    """One of several values, or None."""

    def __init__(self) -> None:
        self._told: Found | None = None
        self._seen_s = 0.0

    def tell(self, found: Found | None, now_s: float) -> Found | None:
        """What to tell, after this was found. Another value waits until the one before has gone."""
        if self._told is None or now_s - self._seen_s >= HOLD_S:
            self._told = found
        if self._told == found:
            self._seen_s = now_s
        return self._told


class _Told(NamedTuple):
    """`seen_s`: when it was found last; `bad_s`: when it was bad last."""

    problem: Problem
    seen_s: float
    bad_s: float | None


class SteadyProblems:
    def __init__(self) -> None:
        self._told: dict[tuple[str, str | None], _Told] = {}

    def tell(self, found: Sequence[Problem], now_s: float) -> list[Problem]:
        """What to tell, worst first, after these were found."""
        states = [one for one in found if one.kind not in PLACES]
        measured = {(PLACES[one.kind], one.service): one for one in found if one.kind in PLACES}
        told = {
            place: _next(self._told.get(place), measured.get(place), now_s)
            for place in {**self._told, **measured}
        }
        self._told = {place: one for place, one in told.items() if one is not None}
        return in_order([*states, *(one.problem for one in self._told.values())])


def _next(before: _Told | None, found: Problem | None, now_s: float) -> _Told | None:
    if before is not None and now_s - before.seen_s >= HOLD_S:
        before = None
    if found is None:
        return before
    is_bad = found.level == BAD
    if before is None:
        return _Told(found, now_s, now_s if is_bad else None)
    if before.problem.stream and found.stream and before.problem.stream != found.stream:
        return before
    bad_s = now_s if is_bad else before.bad_s
    if bad_s is not None and now_s - bad_s < HOLD_S:
        found = found._replace(level=BAD)
    return _Told(found, now_s, bad_s)
