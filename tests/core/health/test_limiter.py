"""The limit finds what a service can bear, in virtual time, against the best constant."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.health.limiter import CAUTION_S, Limiter
from tests.core.health.synthetic_stores import (
    Counting,
    Crowded,
    Quadratic,
    Queueing,
    Rated,
    Service,
    Steady,
    run,
)

MOST = 256


def auto() -> Limiter:
    return Limiter(MOST, 16)


@pytest.mark.parametrize(
    ("make", "constants", "from_s", "end_s"),
    [
        (lambda: Steady(0.030), [256], 3, 6),
        (lambda: Rated(300, 0.030), [8, 9, 10, 11], 3, 25),
        (lambda: Quadratic(0.030, 8), [7, 8, 9], 3, 25),
        (lambda: Quadratic(0.030, 32), [28, 32, 36], 3, 25),
        (lambda: Quadratic(0.030, 100), [90, 100, 110], 3, 15),
        (lambda: Queueing(64, 0.030), [64, 70], 3, 15),
        (lambda: Queueing(64, 0.030, lost_at_s=8), [32, 36], 11, 25),
        (lambda: Queueing(4, 0.010), [4, 5], 3, 25),
    ],
    ids=["steady", "rated", "square-8", "square-32", "square-100", "queue", "halved", "few"],
)
def test_a_backlog_is_worked_off_nearly_as_fast_as_by_the_best_constant(
    make: Callable[[], Service], constants: list[int], from_s: float, end_s: float
) -> None:
    best, at = max((run(make(), Limiter(n), end_s, from_s=from_s).answered, n) for n in constants)
    ended = run(make(), auto(), end_s, from_s=from_s)
    assert ended.answered >= 0.9 * best
    assert ended.in_flight_s / (end_s - from_s) <= 1.5 * at
    assert ended.refused <= 0.02 * ended.answered


@pytest.mark.parametrize(
    ("make", "best"), [(lambda: Counting(300, 0.030), 9), (lambda: Crowded(20, 0.030), 20)]
)
def test_refusals_tell_what_a_service_bears_that_counts_by_the_second_or_what_is_in_flight(
    make: Callable[[], Service], best: int
) -> None:
    def answered(limiter: Limiter) -> int:
        return run(make(), limiter, 20.0, from_s=5.0).answered

    assert answered(auto()) >= 0.9 * answered(Limiter(best))


@pytest.mark.parametrize(
    ("places", "left", "within_s"), [(64, 32, 3), (64, 16, 3), (64, 8, 4), (256, 8, 9)]
)
def test_a_service_that_loses_most_of_its_places_gets_as_much_less_within_seconds(
    places: int, left: int, within_s: float
) -> None:
    def service() -> Queueing:
        return Queueing(places, 0.030, lost_at_s=10.0, left=left)

    from_s, end_s = 10.0 + within_s, 25.0
    best = run(service(), Limiter(left), end_s, from_s=from_s).answered
    ended = run(service(), auto(), end_s, from_s=from_s)
    assert ended.answered >= 0.9 * best
    assert ended.in_flight_s / (end_s - from_s) <= 1.5 * left


def test_a_level_that_was_refused_once_does_not_keep_the_limit_from_falling() -> None:
    service, limiter = Queueing(64, 0.030, lost_at_s=8.0, left=8), auto()
    is_chance = True

    def refuse_once(now_s: float) -> None:
        nonlocal is_chance
        if is_chance and now_s > 7.0 and limiter.has_room:
            is_chance = False
            limiter.failed(limiter.begin(now_s), now_s, is_full=True)

    ended = run(service, limiter, 30.0, from_s=15.0, each=refuse_once)
    assert not is_chance
    assert ended.in_flight_s / 15.0 <= 1.5 * 8


def test_a_refusal_counts_for_the_requests_in_flight_and_not_for_a_limit_that_nobody_reached() -> (
    None
):
    limiter = Limiter(MOST, 64)
    requests = [limiter.begin(0.0) for _ in range(12)]
    for request in requests[:8]:
        limiter.answered(request, 0.01)
    limiter.failed(requests[-1], 0.02, is_full=True)
    assert limiter.limit == 6


def test_a_limit_that_falls_by_comparison_is_no_strain() -> None:
    limiter, strained = auto(), False

    def look(now_s: float) -> None:
        nonlocal strained
        strained = strained or limiter.is_strained(now_s)

    run(Queueing(64, 0.030, lost_at_s=5.0, left=8), limiter, 12.0, each=look)
    assert limiter.limit < 16
    assert not strained


def test_a_store_that_becomes_far_is_kept_up_with_within_three_seconds() -> None:
    """640 arrivals a second need one request at a time at 2 ms, and 40 at 60 ms."""
    store, limiter = Steady(0.002, later_s=0.060, at_s=5.0), auto()
    seen = run(store, limiter, 12.0, per_s=640, from_s=8.0)
    assert seen.longest_wait_s < 0.050
    assert limiter.holds == "arrivals"


def test_a_start_before_a_far_store_keeps_up_within_three_seconds() -> None:
    seen = run(Steady(0.060), auto(), 8.0, per_s=640, from_s=3.0)
    assert seen.longest_wait_s < 0.050


def test_the_limit_stays_while_no_work_waits_for_it() -> None:
    limiter = auto()
    run(Steady(0.030), limiter, 10.0, per_s=100)
    assert limiter.limit == 16
    assert limiter.holds == "arrivals"


def test_a_service_with_one_place_gets_few_requests() -> None:
    seen = run(Queueing(1, 0.020), Limiter(MOST, 4), 60.0, from_s=20.0)
    assert seen.in_flight_s / 40.0 < 4


def test_it_holds_the_service_or_the_configured_most() -> None:
    queueing, steady = auto(), auto()
    run(Queueing(16, 0.010), queueing, 10.0)
    run(Steady(0.010), steady, 10.0)
    assert queueing.holds == "service"
    assert steady.holds == "most"


def test_failures_that_come_together_halve_the_limit_once() -> None:
    limiter = Limiter(16)
    requests = [limiter.begin(0.0) for _ in range(16)]
    for request in requests[:3]:
        limiter.failed(request, 0.0, is_full=False)
    assert limiter.limit == 8


def test_after_a_refusal_no_request_that_is_not_needed_is_made_for_a_while() -> None:
    limiter = auto()
    assert not limiter.is_strained(0.0)
    limiter.failed(limiter.begin(0.0), 0.0, is_full=True)
    assert limiter.is_strained(CAUTION_S - 0.1)
    assert not limiter.is_strained(CAUTION_S)


def test_a_refusal_by_chance_is_forgotten_within_three_seconds() -> None:
    """S3 says SlowDown now and then, however few requests there are."""
    store, limiter = Steady(0.030), auto()
    is_chance = True

    def refuse_once(now_s: float) -> None:
        nonlocal is_chance
        if is_chance and now_s > 4.0 and limiter.has_room:
            is_chance = False
            limiter.failed(limiter.begin(now_s), now_s, is_full=True)

    seen = run(store, limiter, 12.0, per_s=300, from_s=7.5, each=refuse_once)
    assert not is_chance
    assert seen.longest_wait_s < 0.050


def test_a_late_request_that_others_overtook_takes_no_room() -> None:
    limiter = Limiter(100, 2)
    late = [limiter.begin(0.0)]
    assert limiter.relieve(0.0) == pytest.approx(0.25)
    for number in range(20):
        limiter.answered(limiter.begin(0.01 * number), 0.01 * number + 0.005)
    assert limiter.relieve(0.3) is None
    assert (limiter.taken, limiter.late) == (0, 1)
    late += [limiter.begin(0.3) for _ in range(2)]
    assert limiter.taken == 2
    limiter.answered(late[0], 1.0)
    assert (limiter.taken, limiter.late, limiter.in_flight) == (2, 0, 2)


def test_a_service_that_answers_nothing_gets_twice_as_many_requests_at_most_and_one_by_one() -> (
    None
):
    limiter = Limiter(100, 4)
    now_s, begun = 0.0, []
    for _ in range(400):
        while limiter.has_room:
            begun.append(now_s)
            limiter.begin(now_s)
        limiter.relieve(now_s)
        now_s += 0.01
    assert len(begun) == 2 * limiter.limit
    assert min(after - before for before, after in pairwise(begun[3:])) >= 0.25


def test_requests_that_others_overtook_leave_those_behind_them_as_much_room_as_ever() -> None:
    limiter = Limiter(100, 2)
    for _ in range(2):
        limiter.begin(0.0)
    limiter.relieve(0.3)
    limiter.answered(limiter.begin(0.3), 0.301)
    limiter.relieve(0.4)
    assert (limiter.taken, limiter.late) == (0, 2)
    for _ in range(2):
        limiter.begin(0.4)
    limiter.relieve(0.7)
    assert (limiter.taken, limiter.late) == (1, 3)


def test_with_late_requests_there_are_never_more_than_the_most() -> None:
    limiter = Limiter(6, 4)
    for _ in range(3):
        limiter.begin(0.0)
    limiter.answered(limiter.begin(0.1), 0.11)
    limiter.relieve(0.3)
    while limiter.has_room:
        limiter.begin(0.3)
    assert (limiter.late, limiter.in_flight) == (3, 6)


@pytest.mark.parametrize("is_constant", [True, False])
def test_late_requests_take_room_where_a_number_says_so_or_the_service_just_refused(
    is_constant: bool,
) -> None:
    limiter = Limiter(2) if is_constant else Limiter(100, 2)
    if not is_constant:
        limiter.failed(limiter.begin(0.0), 0.1, is_full=True)
    limiter.begin(0.2)
    limiter.relieve(1.0)
    assert limiter.late == 0


def test_a_number_is_only_lowered_by_failures_and_comes_back() -> None:
    limiter = Limiter(16)
    run(Queueing(2, 0.010), limiter, 5.0)
    assert limiter.limit == 16
    limiter.failed(limiter.begin(5.0), 5.0, is_full=False)
    assert limiter.limit == 8
    for _ in range(10):
        limiter.answered(limiter.begin(5.0), 5.0)
    assert limiter.limit == 16


def test_a_store_is_slow_when_it_is_slower_than_itself() -> None:
    slow: list[tuple[float, bool]] = []
    limiter = auto()
    run(
        Steady(0.034, later_s=0.120, at_s=60.0),
        limiter,
        66.0,
        per_s=100,
        each=lambda now_s: slow.append((now_s, limiter.is_slower_than_usual)),
    )
    assert not any(is_slow for now_s, is_slow in slow if now_s < 60.0)
    assert all(is_slow for now_s, is_slow in slow if now_s > 62.0)


@given(
    steps=st.lists(st.sampled_from(["begin", "answered", "full", "lost", "dropped"]), max_size=400),
    begin_at=st.sampled_from([None, 1, 4, 16]),
    most=st.integers(1, 40),
)
def test_the_limit_is_never_below_one_nor_above_the_most(
    steps: list[str], begin_at: int | None, most: int
) -> None:
    limiter, flights = Limiter(most, begin_at), []
    for number, step in enumerate(steps):
        now_s = number * 0.01
        if step == "begin":
            if limiter.has_room:
                flights.append(limiter.begin(now_s))
        elif flights:
            request = flights.pop(0)
            if step == "answered":
                limiter.answered(request, now_s)
            elif step == "dropped":
                limiter.dropped(request)
            else:
                limiter.failed(request, now_s, is_full=step == "full")
        assert 1 <= limiter.limit <= most
        assert limiter.in_flight == len(flights)
