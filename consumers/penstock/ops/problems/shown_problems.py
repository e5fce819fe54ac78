"""How the problems of a worker are shown: in which words, in which order, and for how long, so that
no line of the page flickers.

Rule: texts from outside are cut, and stay on one line. A problem appears at once. A problem that is
a state, such as a stopped line, is shown exactly while it is found. A problem that is measured,
such as lateness, stays until it has not been found for `HOLD_S`. Meanwhile it is shown at its worst
level of the last `HOLD_S`, and its sentence keeps naming the same stream. Pure: time is an
argument. Owner: the status; `found_in_status` and `limits` make the problems.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

Document = Mapping[str, Any]

BAD: Final = "bad"
WARN: Final = "warn"

# All kinds of problems, the most urgent kind first.
KINDS: Final = (
    *("process", "stopped", "away", "unanswered_rows", "breaker", "refused"),
    *("model", "store", "kafka", "worker", "skew"),
    *("buffer", "late", "over_bound", "route", "no_partition"),
)

# The page gets one update a second, so this is three updates.
HOLD_S: Final = 3.0
# For each kind of problem that is measured: the name of its line on the page. Of the kinds that
# share a line, only one is found at a time. The other kinds are states, or are shown for a minute
# anyway.
LINES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("away", "unanswered_rows"), "away"),
    "breaker": "breaker",
    **dict.fromkeys(("model", "store", "kafka", "worker", "skew"), "limit"),
    "late": "late",
    "buffer": "buffer",
    "over_bound": "over_bound",
}

SHOWN_NAME: Final = 80
SHOWN_TEXT: Final = 200

Found = TypeVar("Found")


class Problem(NamedTuple):
    """`what`: cause and stream, in a sentence. `do`: how to mend the problem. `kind`: the name of
    the rule that found it. `stream`: the name of the stream to look at. `service`: the service that
    is away or ill.
    """

    level: str
    kind: str
    what: str
    do: str
    stream: str | None = None
    service: str | None = None


def in_order(found: Iterable[Problem]) -> list[Problem]:
    """The problems, the worst one first. Problems that are equally bad are in the order of
    `KINDS`.
    """
    return sorted(found, key=lambda one: (one.level != BAD, KINDS.index(one.kind)))


def value_at(document: Document, *path: str) -> Any:
    """The value in the document at this path of keys; None if a key of the path is missing."""
    found: Any = document
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def one_line(text: str) -> str:
    text = text.strip()
    text = text if text.isprintable() else repr(text)[1:-1]
    return text if len(text) <= SHOWN_TEXT else text[:SHOWN_TEXT] + " ..."


def named(stream: str) -> str:
    text = stream if stream.isprintable() and stream.strip() else repr(stream)
    return text if len(text) <= SHOWN_NAME else text[:SHOWN_NAME] + " ..."


def seconds(number: float) -> str:
    """Seconds as a text, in the unit that fits: `31 ms`, `4.2 s`, `7 min`, `2.5 h`."""
    if number < 1.0:
        return f"{number * 1000:.0f} ms"
    if number < 90.0:
        return f"{number:.1f} s"
    return f"{number / 60:.0f} min" if number < 5400.0 else f"{number / 3600:.1f} h"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


class SteadyValue(Generic[Found]):
    """Takes the flicker out of a value that is measured again and again. Another value is told only
    when the value that was told so far has not been measured for `HOLD_S`.
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
    """A measured problem that is shown at the moment. `seen_s`: when the problem was last found.
    `bad_s`: when its level was last bad.
    """

    problem: Problem
    seen_s: float
    bad_s: float | None


class SteadyProblems:
    def __init__(self) -> None:
        self._told: dict[tuple[str, str | None], _Told] = {}

    def tell(self, found: Sequence[Problem], now_s: float) -> list[Problem]:
        """The problems to tell now, worst first. `found`: the problems that were found just now."""
        states = [one for one in found if one.kind not in LINES]
        measured = {(LINES[one.kind], one.service): one for one in found if one.kind in LINES}
        told = {
            line: _next(self._told.get(line), measured.get(line), now_s)
            for line in {**self._told, **measured}
        }
        self._told = {line: one for line, one in told.items() if one is not None}
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
