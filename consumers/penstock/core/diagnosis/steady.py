"""For how long a problem is told, so that no line of the page flickers.

Rule: a problem appears at once. One that is a state, such as a stopped line, is told exactly while
it is found; one that is measured until it has not been found for `HOLD_S`, at its worst level of
that time, with the same kind and stream. A line that another problem explains goes at once, and so
does one that only tells what is late, when the part that makes it late is found. After an outage
the figures of the flow, which are means of the last seconds, still tell of it: they are not judged
until it has left them; nor is it told what is late after a line that stood still goes on.
"""

from collections.abc import Sequence
from math import inf
from typing import Final, NamedTuple

from penstock.core.diagnosis.diagnose import in_order, without_consequences
from penstock.core.diagnosis.problem import BAD, OF_FLOW, Problem

# The page gets one update a second, so this is three updates.
HOLD_S: Final = 3.0
# Figures are means of up to this time.
AFTER_S: Final = 10.0
# For each kind of problem that is measured: its line. Of the kinds that share a line, only one is
# told at a time. The other kinds are states, or are told for a while anyway.
LINES: Final = {
    **dict.fromkeys(("away", "unanswered_rows"), "away"),
    "breaker": "breaker",
    **dict.fromkeys(OF_FLOW, "flow"),
}
OUTAGES: Final = ("away", "unanswered_rows", "breaker")
OF_AN_OUTAGE: Final = {*OF_FLOW} - {"starved", "backlog"}
# These kinds tell that objects are late, and name no part that makes them late.
LATE: Final = ("late", "over_bound", "backlog")


class _Told(NamedTuple):
    """A measured problem that is told at the moment. `seen_s`: when it was last found. `bad_s`:
    when its level was last bad.
    """

    problem: Problem
    seen_s: float
    bad_s: float | None


class SteadyProblems:
    def __init__(self) -> None:
        self._lines: dict[tuple[str, str | None], _Told] = {}
        self._outage_s = self._released_s = -inf
        self._stopped: set[str | None] = set()

    def tell(self, problems: Sequence[Problem], now_s: float) -> list[Problem]:
        """The problems to tell now, worst first. `problems`: those that were found just now."""
        if any(problem.kind in OUTAGES and problem.level == BAD for problem in problems):
            self._outage_s = now_s
        if now_s - self._outage_s < AFTER_S:
            problems = [problem for problem in problems if problem.kind not in OF_AN_OUTAGE]
        stopped = {problem.stream for problem in problems if problem.kind == "stopped"}
        if self._stopped - stopped:
            self._released_s = now_s
        self._stopped = stopped
        if now_s - self._released_s < AFTER_S:
            problems = [
                problem for problem in problems if problem.kind not in ("late", "over_bound")
            ]
        states = [problem for problem in problems if problem.kind not in LINES]
        measured = {
            (LINES[problem.kind], problem.service): problem
            for problem in problems
            if problem.kind in LINES
        }
        lines = {
            line: _next(self._lines.get(line), measured.get(line), now_s)
            for line in {**self._lines, **measured}
        }
        held = {line: held_line for line, held_line in lines.items() if held_line is not None}
        kept = without_consequences([*states, *(entry.problem for entry in held.values())])
        self._lines = {line: entry for line, entry in held.items() if entry.problem in kept}
        return in_order(kept)


def _next(before: _Told | None, problem: Problem | None, now_s: float) -> _Told | None:
    if before is not None and now_s - before.seen_s >= HOLD_S:
        before = None
    if problem is None:
        return before
    is_bad = problem.level == BAD
    if before is None:
        return _Told(problem, now_s, now_s if is_bad else None)
    if _is_other(before.problem, problem):
        return before
    bad_s = now_s if is_bad else before.bad_s
    if bad_s is not None and now_s - bad_s < HOLD_S:
        problem = problem._replace(level=BAD)
    return _Told(problem, now_s, bad_s)


def _is_other(before: Problem, now: Problem) -> bool:
    """True if the line would change to another cause. A line that says more of the same trouble
    (a stream is named that was not) may change at once.
    """
    if LINES[now.kind] == "flow" and before.kind != now.kind:
        return before.kind not in LATE or now.kind in LATE
    return bool(before.stream and now.stream and before.stream != now.stream)
