"""What is told of a worker does not flicker, however what is measured does; by virtual time."""

from itertools import pairwise
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.diagnosis.problem import BAD, WARN, Problem
from penstock.core.diagnosis.steady import AFTER_S, HOLD_S, SteadyProblems

# Looks of a page, some at the same moment, some after nobody looked for long.
PAUSES_S: Final = st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.0, 1.0, 2.0, HOLD_S, 60.0])
SLOW: Final = Problem(WARN, "late", "cam-1 is 4.2 s behind", "", "cam-1")
AWAY: Final = Problem(BAD, "away", "the model server has not answered", "", service="model server")
STOPPED: Final = Problem(BAD, "stopped", "cam-1 stands still", "", "cam-1")
LIMIT: Final = Problem(WARN, "model", "the model is the limit", "")


@given(st.lists(st.tuples(PAUSES_S, st.sampled_from([LIMIT, SLOW, None]))))
def test_a_cause_is_told_at_once_and_left_only_after_some_looks_without_it(
    looks: list[tuple[float, Problem | None]],
) -> None:
    steady, now_s, seen_s = SteadyProblems(), 0.0, 0.0
    told: Problem | None = None
    for pause_s, found in looks:
        now_s += pause_s
        before, told = told, next(iter(steady.tell([found] if found else [], now_s)), None)
        if before is None:
            assert told == found
        elif told != before:
            assert told == found
            # That something is late is left for the part that makes it late.
            assert now_s - seen_s >= HOLD_S or (before, told) == (SLOW, LIMIT)
        if told == found:
            seen_s = now_s


@given(st.lists(st.tuples(PAUSES_S, st.sets(st.sampled_from([AWAY, STOPPED])))))
def test_a_problem_is_told_at_once_and_left_only_after_some_looks_without_it(
    looks: list[tuple[float, set[Problem]]],
) -> None:
    steady, now_s = SteadyProblems(), 0.0
    seen_s: dict[Problem, float] = {}
    for pause_s, found in looks:
        now_s += pause_s
        seen_s |= dict.fromkeys(found, now_s)
        held = {one for one, at_s in seen_s.items() if one is not STOPPED and now_s - at_s < HOLD_S}
        problems = steady.tell(list(found), now_s)
        assert set(problems) == held | found
        # A state is over when it is over; and the order is the same, whatever is found first.
        assert problems == [one for one in (STOPPED, AWAY) if one in problems]


def test_what_follows_from_another_cause_goes_at_once() -> None:
    steady = SteadyProblems()
    assert steady.tell([LIMIT], 0.0) == [LIMIT]
    assert steady.tell([AWAY], 1.0) == [AWAY]
    assert steady.tell([LIMIT, AWAY], 2.0) == [AWAY]
    # And it does not come back before the outage has left the figures.
    assert steady.tell([LIMIT], 3.0) == [AWAY]
    assert steady.tell([LIMIT], 3.0 + HOLD_S) == []
    assert steady.tell([LIMIT], 2.0 + AFTER_S) == [LIMIT]


@given(st.lists(st.sampled_from(["cam-1", "cam-2", "cam-3"]), min_size=1))
def test_of_two_slow_streams_the_line_keeps_to_one_while_it_is_slow(names: list[str]) -> None:
    steady, told = SteadyProblems(), list[str | None]()
    for at_s, name in enumerate(names):
        [one] = steady.tell([SLOW._replace(stream=name, what=f"{name} is slow")], float(at_s))
        told.append(one.stream)
    for at, (before, now) in enumerate(pairwise(told), start=1):
        if before != now:
            assert before not in names[max(0, at + 1 - int(HOLD_S)) : at + 1]


def test_one_that_is_bad_now_and_then_is_told_as_bad_and_with_its_newest_words() -> None:
    steady = SteadyProblems()
    levels = []
    for at_s, level in enumerate([WARN, BAD, WARN, WARN, WARN, WARN]):
        [one] = steady.tell([LIMIT._replace(level=level, what=f"look {at_s}")], float(at_s))
        levels.append(one.level)
        assert one.what == f"look {at_s}"
    assert levels == [WARN, BAD, BAD, BAD, WARN, WARN]


def test_two_services_that_are_away_are_both_told() -> None:
    steady, store = SteadyProblems(), AWAY._replace(service="object store")
    assert steady.tell([AWAY, store], 0.0) == [AWAY, store]
    assert steady.tell([store], 1.0) == [AWAY, store]


def test_streams_that_are_late_because_a_line_stood_still_are_not_blamed_when_it_goes_on() -> None:
    steady = SteadyProblems()
    assert steady.tell([STOPPED], 0.0) == [STOPPED]
    assert steady.tell([SLOW], 1.0) == []
    assert steady.tell([LIMIT], 2.0) == [LIMIT]
    assert steady.tell([SLOW], 1.0 + AFTER_S) == [SLOW]
