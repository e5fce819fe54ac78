"""When something is tried again, and when an object is given up."""

import pytest

from penstock.core.health.retries import Backoff, Tries

BACKOFF = Backoff(first_s=1.0, most_s=8.0, give_up_s=60.0)


def test_the_wait_doubles_up_to_its_limit() -> None:
    waits = [BACKOFF.delay_s(attempt, 0.0, jitter=1.0) for attempt in range(1, 7)]
    assert waits == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_jitter_takes_off_at_most_half() -> None:
    assert BACKOFF.delay_s(3, 0.0, jitter=0.0) == pytest.approx(2.0)


def test_a_wait_that_the_other_side_asked_for_is_honoured() -> None:
    assert BACKOFF.delay_s(1, 0.0, jitter=0.0, asked_s=30.0) == 30.0


def test_a_pause_that_was_asked_for_is_granted_up_to_five_minutes() -> None:
    assert BACKOFF.delay_s(1, 0.0, jitter=0.0, asked_s=1e8) == 300.0


def test_it_gives_up_when_the_time_is_spent() -> None:
    assert BACKOFF.delay_s(1, 59.9, jitter=0.0) is not None
    assert BACKOFF.delay_s(1, 60.0, jitter=0.0) is None


def test_without_a_limit_it_never_gives_up() -> None:
    assert Backoff(first_s=1.0, most_s=8.0).delay_s(10_000, 1e9, jitter=0.0) == 4.0


def failed(
    tries: Tries,
    at_s: float,
    *,
    is_away: bool = False,
    has_new: bool = False,
    asked_s: float | None = None,
    waited_s: float = 0.0,
) -> float | None:
    return tries.failed(at_s, waited_s, 1.0, asked_s, is_away=is_away, has_new=has_new)


def test_tries_without_new_bytes_end_after_the_time_that_they_took() -> None:
    tries = Tries(0.0, BACKOFF, Backoff(1.0, 8.0))
    assert failed(tries, 59.0) == 1.0
    assert failed(tries, 60.0) is None
    assert tries.count == 2


def test_new_bytes_begin_the_time_anew() -> None:
    tries = Tries(0.0, BACKOFF, Backoff(1.0, 8.0))
    assert failed(tries, 59.0) == 1.0
    assert failed(tries, 1_000.0, has_new=True) == 1.0
    assert failed(tries, 1_059.0) == 2.0
    assert failed(tries, 1_060.0) is None


def test_neither_outages_nor_our_own_pauses_count() -> None:
    tries = Tries(0.0, BACKOFF, Backoff(1.0, 8.0))
    assert failed(tries, 1_000.0, is_away=True) == 1.0
    assert failed(tries, 1_559.0, waited_s=500.0) == 2.0
    assert failed(tries, 1_560.0, waited_s=500.0) is None


def test_a_pause_that_was_asked_for_ends_with_the_time_that_is_left() -> None:
    tries = Tries(0.0, BACKOFF, Backoff(1.0, 8.0))
    assert failed(tries, 20.0, asked_s=300.0) == 40.0
    assert failed(tries, 60.0, asked_s=300.0) is None
