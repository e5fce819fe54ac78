"""Decides which problems a worker shows from second to second, so that no line of its page
flickers.

Rule: a problem appears at once. A problem that is measured, such as lateness, stays until it has
not been found for `HOLD_S`. Meanwhile it is shown at its worst level of the last `HOLD_S`, and its
sentence keeps naming the same stream. A problem that is a state, such as a stopped line, is shown
exactly while it is found. Pure: time is an argument. Owner: the status.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from penstock.ops.problems.found_in_status import in_order
from penstock.ops.problems.problem import BAD, Problem

# The page gets one update a second, so this is three updates.
HOLD_S: Final = 3.0
# From each kind that is measured to its place. Of the kinds that share a place, only one is found
# at a time. Kinds that are not here are states, or are shown for a minute anyway.
PLACES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("away", "unanswered_rows"), "away"),
    "breaker": "breaker",
    **dict.fromkeys(("model", "store", "kafka", "worker", "skew"), "limit"),
    "late": "late",
    "buffer": "buffer",
    "over_bound": "over_bound",
}

Found = TypeVar("Found")


class SteadyValue(Generic[Found]):
    """Tells a value that is measured again and again, without flicker. The told value stays until
    it has not been found for `HOLD_S`. Only then another value is told.
    """

    def __init__(self) -> None:
        self._told: Found | None = None
        self._seen_s = 0.0

    def tell(self, found: Found | None, now_s: float) -> Found | None:
        """The value to tell now. `found`: the value that was measured just now."""
        if self._told is None or now_s - self._seen_s >= HOLD_S:
            self._told = found
        if self._told == found:
            self._seen_s = now_s
        return self._told


class _Told(NamedTuple):
    """A measured problem that is told. `seen_s`: when the problem was last found. `bad_s`: when its
    level was last bad.
    """

    problem: Problem
    seen_s: float
    bad_s: float | None


class SteadyProblems:
    def __init__(self) -> None:
        self._told: dict[tuple[str, str | None], _Told] = {}

    def tell(self, found: Sequence[Problem], now_s: float) -> list[Problem]:
        """The problems to tell now, worst first. `found`: the problems that were found just now."""
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
