"""Percentiles in which a miss counts, and the early-stopping test."""

import math

import pytest

from penstock.tools.bench.verdict import is_proven, percentile, ticks_needed


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(value) for value in range(1, 101)]
    assert percentile(values, 0.5) == 50.0
    assert percentile(values, 0.99) == 99.0
    assert percentile(values, 1.0) == 100.0
    assert percentile([7.0], 0.99) == 7.0


def test_the_order_of_the_values_does_not_matter() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0


def test_ticks_without_an_answer_are_slower_than_all_others() -> None:
    values = [1.0] * 98 + [math.inf] * 2
    assert percentile(values, 0.98) == 1.0
    assert percentile(values, 0.99) == math.inf


@pytest.mark.parametrize(("misses", "ticks"), [(0, 459), (1, 662), (2, 838), (3, 1_001)])
def test_a_proof_takes_as_many_ticks_as_the_published_table_says(misses: int, ticks: int) -> None:
    assert ticks_needed(misses) == ticks
    assert is_proven(ticks, misses)
    assert not is_proven(ticks - 1, misses)
    assert not is_proven(ticks, misses + 1)


def test_too_few_ticks_prove_nothing() -> None:
    assert not is_proven(0, 0)


def test_a_proof_allows_less_than_one_miss_in_a_hundred_however_long_it_is() -> None:
    assert is_proven(100_000, 900)
    assert not is_proven(100_000, 1_000)
