"""When a request is late, and how many may be sent a second time."""

import random

import pytest

from penstock.core.health.limiter import Limiter
from penstock.core.health.retries import (
    LATE_SHARE,
    LEAST_ANSWERS,
    LEAST_S,
    MOST_SAVED,
    REST_S,
    Hedging,
    Times,
)


def learned(took_s: float = 0.1, answers: int = LEAST_ANSWERS) -> Hedging:
    hedging = Hedging()
    for _ in range(answers):
        hedging.answered(None, took_s)
    return hedging


@pytest.mark.parametrize("sigma", [0.05, 0.4, 1.0])
def test_a_time_is_late_if_95_of_100_are_shorter(sigma: float) -> None:
    draw = random.Random(1)
    times = Times()
    for _ in range(5_000):
        times.add(0.03 * draw.lognormvariate(0, sigma))
    assert times.late_s is not None
    over = sum(0.03 * draw.lognormvariate(0, sigma) > times.late_s for _ in range(20_000))
    assert 0.02 < over / 20_000 < 0.07


def test_a_store_that_becomes_slow_is_known_as_slow_after_some_hundred_reads() -> None:
    times = Times()
    for _ in range(3_000):
        times.add(0.002)
    for _ in range(200):
        times.add(0.060)
    assert times.late_s == pytest.approx(0.060, rel=0.1)


def test_nothing_is_late_before_there_is_a_95th_percentile() -> None:
    hedging = Hedging()
    for _ in range(LEAST_ANSWERS - 1):
        hedging.answered(None, 0.1)
    assert hedging.late_s(None) is None
    hedging.answered(None, 0.1)
    assert hedging.late_s(None) == pytest.approx(0.1, rel=0.11)


def test_a_near_store_is_not_asked_twice_for_what_comes_within_some_milliseconds() -> None:
    assert learned(0.001).late_s(None) == LEAST_S


def test_each_size_has_its_own_times_and_an_unseen_one_those_of_all() -> None:
    hedging = Hedging()
    for _ in range(100):
        hedging.answered(1_000, 0.05)
        hedging.answered(5 << 20, 0.5)
    assert hedging.late_s(2_000) == pytest.approx(0.05, rel=0.11)
    assert hedging.late_s(6 << 20) == pytest.approx(0.5, rel=0.11)
    assert hedging.late_s(100 << 20) == pytest.approx(0.5, rel=0.11)


def test_at_most_5_of_100_requests_are_sent_again_even_if_all_are_late() -> None:
    hedging = learned()
    again = 0
    for _ in range(2_000):
        hedging.asked()
        again += hedging.may_ask_again(0.0)
    assert again <= 1 + LATE_SHARE * 2_000
    assert again >= 0.9 * LATE_SHARE * 2_000


def test_a_quiet_hour_saves_up_a_few_only() -> None:
    hedging = learned()
    for _ in range(100_000):
        hedging.asked()
    assert sum(hedging.may_ask_again(0.0) for _ in range(100)) == MOST_SAVED


def test_after_a_refusal_nothing_is_sent_again_for_a_while() -> None:
    hedging = learned()
    hedging.refused(100.0)
    assert not hedging.may_ask_again(100.0 + REST_S - 0.1)
    assert hedging.may_ask_again(100.0 + REST_S)


@pytest.mark.parametrize(("unanswered", "least", "most"), [(1, 0.04, 0.05), (10, 0.0, 0.001)])
def test_one_request_in_a_thousand_without_an_answer_stops_nothing_and_ten_do(
    unanswered: int, least: float, most: float
) -> None:
    hedging, again = learned(), 0
    for number in range(20_000):
        hedging.asked()
        if number % (1_000 // unanswered) == 0:
            hedging.unanswered()
        again += hedging.may_ask_again(0.0)
    assert least <= again / 20_000 <= most


def test_while_the_limit_shrinks_nothing_is_sent_again() -> None:
    limiter = Limiter(64, 16)
    hedging = Hedging(limiter)
    limiter.failed(limiter.begin(0.0), 5.0, is_full=False)
    assert not hedging.may_ask_again(60.0)
    for _ in range(16):
        limiter.answered(limiter.begin(60.0), 60.0)
    assert hedging.may_ask_again(60.0)
