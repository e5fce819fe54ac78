"""What illness does to the calls that are allowed."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.asking.gate import Breaker, Call
from penstock.core.health.limiter import Limiter
from penstock.core.health.retries import FLOOR, MOST_ASKED_S, RETRY_SHARE


def begin(breaker: Breaker, now_s: float = 0.0) -> Call:
    assert breaker.wait_s(now_s) == 0.0
    return breaker.begin(now_s)


def fail(breaker: Breaker, now_s: float = 0.0, **how: bool) -> None:
    breaker.failed(begin(breaker, now_s), now_s, 1.0, **how)


def opened(calls: int = 4) -> Breaker:
    breaker = Breaker(Limiter(calls))
    while not breaker.is_open:
        fail(breaker)
    return breaker


def test_a_healthy_server_gets_all_calls_at_once() -> None:
    breaker = Breaker(Limiter(3))
    for _ in range(3):
        begin(breaker)
    assert breaker.wait_s(0.0) == math.inf


def test_calls_that_fail_together_halve_the_number_once() -> None:
    breaker = Breaker(Limiter(16))
    calls = [begin(breaker) for _ in range(16)]
    for call in calls[:2]:
        breaker.failed(call, 0.0, 1.0)
    assert breaker.allowed == 8


def test_a_third_failure_without_many_answers_opens_it_and_one_probe_at_a_time_passes() -> None:
    breaker = Breaker(Limiter(4))
    for _ in range(3):
        assert not breaker.is_open
        fail(breaker)
    assert breaker.is_open
    assert breaker.wait_s(0.0) == pytest.approx(0.05)
    assert begin(breaker, 0.05).is_probe
    assert breaker.wait_s(0.05) == math.inf


def test_probes_come_ever_later_up_to_a_limit_with_jitter_taking_off_at_most_half() -> None:
    breaker, now_s, waits = opened(), 0.0, []
    for _ in range(12):
        now_s += (wait_s := breaker.wait_s(now_s))
        waits.append(wait_s)
        fail(breaker, now_s)
    assert waits[:4] == pytest.approx([0.05, 0.1, 0.2, 0.4])
    assert max(waits) == pytest.approx(5.0)
    now_s += 5.0
    breaker.failed(begin(breaker, now_s), now_s, 0.0)
    assert breaker.wait_s(now_s) == pytest.approx(2.5)


def test_an_answer_closes_it_for_one_call_and_more_follow_with_each_answer() -> None:
    breaker = opened(8)
    breaker.answered(begin(breaker, 1.0), 0.0)
    assert (breaker.is_open, breaker.allowed) == (False, 1)
    for allowed in range(2, 9):
        breaker.answered(begin(breaker, 1.0), 0.0)
        assert breaker.allowed == allowed


def test_the_first_failure_after_an_outage_opens_it_again() -> None:
    breaker = opened()
    breaker.answered(begin(breaker, 1.0), 0.0)
    fail(breaker, 1.0)
    assert breaker.is_open


def test_late_failures_of_calls_from_before_do_not_put_the_probe_off() -> None:
    breaker = Breaker(Limiter(8))
    early = [begin(breaker) for _ in range(8)]
    for call in early[:3]:
        breaker.failed(call, 0.0, 1.0)
    until_s = breaker.wait_s(0.0)
    for call in early[3:]:
        breaker.failed(call, 0.01, 1.0)
    assert breaker.wait_s(0.01) == pytest.approx(until_s - 0.01)


def test_a_probe_that_was_dropped_leaves_its_place() -> None:
    breaker = opened()
    breaker.dropped(begin(breaker, 1.0))
    assert breaker.wait_s(1.0) == 0.0


def test_a_pause_that_the_server_asks_for_holds_for_all_calls_up_to_a_limit() -> None:
    breaker = Breaker(Limiter(4))
    breaker.failed(begin(breaker), 0.0, 1.0, is_full=True, asked_s=7.0)
    assert breaker.wait_s(0.0) == pytest.approx(7.0)
    breaker.failed(begin(breaker, 7.0), 7.0, 1.0, asked_s=1e9)
    assert breaker.wait_s(7.0) == pytest.approx(MOST_ASKED_S)


def test_a_full_queue_is_found_with_few_refusals() -> None:
    """Rounds of all allowed calls at a server that takes five."""
    breaker, refused, asked = Breaker(Limiter(16)), [], 0
    now_s = 0.0
    for _ in range(2_000):
        now_s += 1.0
        calls = []
        while not breaker.wait_s(now_s):
            calls.append(breaker.begin(0.0))
        for place, call in enumerate(calls):
            asked += 1
            if place < 5:
                breaker.answered(call, 0.0)
            else:
                refused.append(asked)
                breaker.failed(call, now_s, 1.0, is_full=True)
    assert asked > 7_000
    late = [number for number in refused if number > 200]
    assert 0 < len(late) / asked < 0.03


@given(st.lists(st.sampled_from([True] * 20 + [False]), max_size=600))
def test_rare_failures_are_sent_again_without_opening_it(ends: list[bool]) -> None:
    breaker, budget = Breaker(Limiter(4)), FLOOR
    for is_answered in ends:
        call = begin(breaker, 0.0)
        budget = min(FLOOR, budget + RETRY_SHARE) if is_answered else budget - 1.0
        if is_answered:
            breaker.answered(call, 0.0)
        else:
            breaker.failed(call, 0.0, 0.5)
        assert breaker.is_open == (budget < 1.0)
        assert 1 <= breaker.allowed <= 4
        if breaker.is_open:
            return
