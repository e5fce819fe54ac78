"""When a GET is tried again, and when its object is given up."""

from penstock.core.health.download_retry import Tries
from penstock.core.health.retry import Backoff

BACKOFF = Backoff(first_s=1.0, most_s=8.0, give_up_s=60.0)


def failed(
    tries: Tries,
    at_s: float,
    *,
    is_away: bool = False,
    has_new: bool = False,
    asked_s: float | None = None,
) -> float | None:
    tries.begin()
    return tries.failed(at_s, 1.0, asked_s, is_away=is_away, has_new=has_new)


def test_tries_that_bring_nothing_are_given_up_by_the_time_they_took() -> None:
    tries = Tries(0.0, BACKOFF, Backoff(1.0, 8.0))
    assert failed(tries, 59.0) == 1.0
    assert failed(tries, 60.0) is None
    assert tries.count == 2


def test_something_new_begins_the_time_anew() -> None:
    tries = Tries(0.0, BACKOFF, Backoff(1.0, 8.0))
    assert failed(tries, 59.0) == 1.0
    assert failed(tries, 1_000.0, has_new=True) == 1.0
    assert failed(tries, 1_059.0) == 2.0
    assert failed(tries, 1_060.0) is None


def test_neither_outages_count_nor_what_we_kept_waiting() -> None:
    tries = Tries(0.0, BACKOFF, Backoff(1.0, 8.0))
    assert failed(tries, 1_000.0, is_away=True) == 1.0
    tries.kept_waiting(500.0)
    assert failed(tries, 1_559.0) == 2.0
    assert failed(tries, 1_560.0) is None


def test_a_pause_that_was_asked_for_ends_with_the_time_that_is_left() -> None:
    tries = Tries(0.0, BACKOFF, Backoff(1.0, 8.0))
    assert failed(tries, 20.0, asked_s=300.0) == 40.0
    assert failed(tries, 60.0, asked_s=300.0) is None
