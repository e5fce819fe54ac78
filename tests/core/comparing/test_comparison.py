import pytest

from penstock.core.comparing.comparison import Comparison, Took


def test_a_quantile_is_at_most_twelve_percent_too_high_in_a_sum_too() -> None:
    one, other = Took(), Took()
    for number in range(1, 1001):
        (one if number % 2 else other).add(number / 1000)
    one.merge(other.counts)
    for share in (0.5, 0.99):
        assert share <= (one.quantile_s(share) or 0) <= share * 1.13
    assert one.counts.total() == 1000


def test_times_that_are_nothing_and_no_times_at_all() -> None:
    took = Took()
    assert took.quantile_s(0.5) is None
    took.add(0.0)
    assert took.quantile_s(0.5) == pytest.approx(1e-4)


def test_only_what_was_not_compared_is_something_to_tell_too() -> None:
    found = Comparison()
    assert found.is_empty
    found.dropped += 1
    assert not found.is_empty
